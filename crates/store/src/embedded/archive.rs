//! The past beyond the ring in memory, read back from disk: older states, and watches that begin far behind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::checkpoint;
use super::disk::DiskFile;
use super::files::Files;
use super::frame::{self, Kind, Parsed};
use super::replay;
use super::volume::{Name, Volume, read_whole};
use crate::history::{BATCH_EVENTS, Commit};
use crate::shared::{Missing, Shared};
use crate::state::State;
use crate::{EventBatch, Revision, StoreError};

pub(crate) struct Archive {
    pub volume: Volume,
    pub files: RwLock<Files>,
    pub shared: Arc<Shared>,
    /// Older revisions are refused, whether their files are still there or not.
    forgotten: AtomicU64,
    compacting: Mutex<()>,
    turns: Semaphore,
}

/// Readers of the distant past at work at once; each needs memory, the disk and a thread.
const READERS: usize = 2;

/// A walk through history, forward from the checkpoint.
pub(crate) struct Walk {
    state: State,
    /// Segments still to be read. Open files stay readable when compaction removes their names.
    segments: VecDeque<Arc<dyn DiskFile>>,
    data: Vec<u8>,
    offset: usize,
}

impl Archive {
    pub fn new(volume: Volume, files: Files, shared: Arc<Shared>) -> Self {
        Archive {
            volume,
            files: RwLock::new(files),
            shared,
            forgotten: AtomicU64::new(0),
            compacting: Mutex::new(()),
            turns: Semaphore::new(READERS),
        }
    }

    /// To be held while reading. The semaphore is never closed.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.turns.acquire().await.ok()
    }

    pub fn floor(&self) -> Revision {
        let forgotten = self.forgotten.load(Ordering::Relaxed);
        self.files.read().floor.max(forgotten)
    }

    /// Refuses what is older than `revision` from now on.
    pub fn forget_before(&self, revision: Revision) {
        self.forgotten.fetch_max(revision, Ordering::Relaxed);
    }

    pub fn check_floor(&self, revision: Revision) -> Result<(), StoreError> {
        let oldest = self.floor();
        if revision < oldest {
            Err(StoreError::Compacted {
                requested: revision,
                oldest,
            })
        } else {
            Ok(())
        }
    }

    /// The state at `revision`, which must be published. Blocks on the disk.
    pub fn state_at(&self, revision: Revision) -> Result<State, StoreError> {
        Ok(self.walk_to(revision)?.state)
    }

    /// A walk that stands at `revision`. Blocks on the disk.
    pub fn walk_to(&self, revision: Revision) -> Result<Walk, StoreError> {
        let known = self.shared.state();
        let (floor, checkpoint, segments) = {
            let files = self.files.read();
            if revision < files.floor {
                return Err(StoreError::Compacted {
                    requested: revision,
                    oldest: files.floor,
                });
            }
            let checkpoint = match files.floor {
                0 => None,
                floor => Some(self.volume.disk.open(&Name::checkpoint(floor))?),
            };
            (files.floor, checkpoint, self.open_after(&files, files.floor)?)
        };
        let state = match checkpoint {
            Some(file) => checkpoint::read(&self.volume, &*file, floor, &known)?,
            None => State::default(),
        };
        let mut walk = Walk {
            state,
            segments,
            data: Vec::new(),
            offset: 0,
        };
        while walk.state.revision < revision {
            self.step(&mut walk, revision, &known, |_| ())?;
        }
        Ok(walk)
    }

    /// The next events of a walk, up to what is published. Blocks on the disk.
    pub fn next(&self, walk: &mut Walk) -> Result<EventBatch, StoreError> {
        let known = self.shared.state();
        let mut events = Vec::new();
        while events.len() < BATCH_EVENTS && walk.state.revision < known.revision {
            self.step(walk, known.revision, &known, |commit| events.extend(commit.events))?;
        }
        Ok(EventBatch {
            events,
            complete_to: walk.state.revision,
        })
    }

    /// Puts a checkpoint at `revision` and removes what lies before it. Blocks on the disk.
    pub fn compact_to(&self, revision: Revision) -> Result<(), StoreError> {
        let _one_at_a_time = self.compacting.lock();
        let old_floor = self.files.read().floor;
        if revision <= old_floor {
            return Ok(());
        }
        let state = match self.shared.rewind(revision) {
            Ok(state) => state,
            Err(Missing::Older { .. }) => Arc::new(self.state_at(revision)?),
            Err(missing @ Missing::Future { .. }) => return Err(missing.into_error(revision)),
        };
        checkpoint::write(&self.volume, &state)?;
        let obsolete = self.files.write().raise_floor(revision);
        self.shared.forget(revision);

        let mut names: Vec<String> = obsolete.iter().map(|segment| Name::segment(segment.first)).collect();
        if old_floor > 0 {
            names.push(Name::checkpoint(old_floor));
        }
        names.iter().for_each(|name| self.remove(name));
        Ok(())
    }

    /// Puts a checkpoint at the newest revision, also in place of one that is there. Blocks on the disk.
    pub fn rewrite(&self) -> Result<(), StoreError> {
        let state = self.shared.state();
        if state.revision > self.files.read().floor {
            return self.compact_to(state.revision);
        }
        let _one_at_a_time = self.compacting.lock();
        // Without a revision there is nothing to write.
        match state.revision {
            0 => Ok(()),
            _ => Ok(checkpoint::write(&self.volume, &state)?),
        }
    }

    /// Removes segments that ended only after compaction had passed them.
    pub fn remove_obsolete(&self) {
        let obsolete = {
            let mut files = self.files.write();
            let floor = files.floor;
            files.raise_floor(floor)
        };
        for segment in obsolete {
            self.remove(&Name::segment(segment.first));
        }
    }

    /// Superfluous files do no harm, and the next start removes them.
    fn remove(&self, name: &str) {
        if let Err(error) = self.volume.disk.remove(name) {
            tracing::warn!(%error, name, "Failed to remove an obsolete file of the store");
        }
    }

    /// Applies one more frame. Everything up to `limit` is durable, so a frame that is not whole is damage.
    fn step(
        &self,
        walk: &mut Walk,
        limit: Revision,
        known: &State,
        sink: impl FnMut(Commit),
    ) -> Result<(), StoreError> {
        let mut fresh = false;
        loop {
            if let Parsed::Frame { header, payload, end } =
                frame::parse(&walk.data, walk.offset, Kind::Log, self.volume.salt)
            {
                let codec = &*self.volume.codec;
                let last = replay::apply(&mut walk.state, &header, payload, limit, known, codec, sink)
                    .map_err(|_| self.unreadable(walk.state.revision))?;
                if last <= limit {
                    walk.offset = end;
                }
                return Ok(());
            }
            if let Some(file) = walk.segments.pop_front() {
                read_whole(&*file, &mut walk.data)?;
            } else if !fresh {
                // The last segment has grown, or there are new ones.
                fresh = true;
                let files = self.files.read();
                if walk.state.revision < files.floor {
                    return Err(StoreError::Compacted {
                        requested: walk.state.revision,
                        oldest: files.floor,
                    });
                }
                walk.segments = self.open_after(&files, walk.state.revision)?;
                walk.data.clear();
            } else {
                return Err(self.unreadable(walk.state.revision));
            }
            walk.offset = 0;
        }
    }

    fn open_after(&self, files: &Files, revision: Revision) -> Result<VecDeque<Arc<dyn DiskFile>>, StoreError> {
        let open = |first: Revision| Ok(self.volume.disk.open(&Name::segment(first))?);
        files
            .after(revision)
            .iter()
            .map(|segment| open(segment.first))
            .collect()
    }

    fn unreadable(&self, revision: Revision) -> StoreError {
        StoreError::Corrupt(format!(
            "{} cannot be read on after revision {revision}",
            self.volume.disk.path("log")
        ))
    }
}
