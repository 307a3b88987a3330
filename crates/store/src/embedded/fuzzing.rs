//! Files that are not what was written, for `fuzz/`: reading them back ends with a state or with an error.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Options;
use super::disk::{Disk, DiskFile};
use super::frame::{self, Kind, Salt};
use super::record;
use super::recovery::recover;
use super::volume::{Name, Volume};
use crate::codec::Identity;
use crate::{Entry, Event, Revision, backup};

const SALT: Salt = Salt(7);
const CHECKPOINT: Revision = 5;

/// The first byte says what the others are: a log or a checkpoint as it lies on the disk, the content of a frame of
/// either whose checksum holds, or a backup.
pub fn read_back(data: &[u8]) {
    let Some((what, bytes)) = data.split_first() else {
        return;
    };
    match what % 5 {
        0 => reopen(Name::segment(1), bytes.to_vec()),
        1 => reopen(Name::segment(1), sealed(Kind::Log, 1, bytes)),
        2 => reopen(Name::checkpoint(CHECKPOINT), bytes.to_vec()),
        3 => reopen(
            Name::checkpoint(CHECKPOINT),
            sealed(Kind::Checkpoint, CHECKPOINT, bytes),
        ),
        _ => drop(backup::read(&mut &bytes[..])),
    }
}

/// What [`read_back`] can read, to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let (mut transactions, mut entries) = (Vec::new(), Vec::new());
    for number in 1..4 {
        let entry = entry(number);
        if record::write_entry(&mut entries, &entry, &Identity).is_err() {
            continue;
        }
        let event = |current: Option<Arc<Entry>>| Event {
            key: entry.key.clone(),
            revision: number,
            current,
            previous: None,
        };
        record::write_transaction(&mut transactions, &[event(Some(entry.clone()))], &[]);
        record::write_transaction(&mut transactions, &[event(None)], &[]);
    }
    let entries = [&3u32.to_le_bytes(), entries.as_slice()].concat();
    let end = [&0u32.to_le_bytes(), 3u64.to_le_bytes().as_slice()].concat();
    let checkpoint = [
        sealed(Kind::Checkpoint, CHECKPOINT, &entries),
        sealed(Kind::Checkpoint, CHECKPOINT, &end),
    ];
    let log = sealed(Kind::Log, 1, &transactions);
    [
        log,
        transactions,
        checkpoint.concat(),
        entries,
        b"karve-backup 1\n".to_vec(),
    ]
    .into_iter()
    .enumerate()
    .map(|(what, bytes)| [&[what as u8], bytes.as_slice()].concat())
    .collect()
}

fn entry(number: u64) -> Arc<Entry> {
    Arc::new(Entry {
        key: format!("/registry/pods/default/pod-{number}").into(),
        value: Bytes::from_static(br#"{"kind":"Pod"}"#),
        create_revision: number,
        mod_revision: number,
        expires_at_ms: 0,
    })
}

fn sealed(kind: Kind, first: Revision, payload: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::new();
    frame::begin(&mut buffer);
    buffer.extend_from_slice(payload);
    frame::seal(&mut buffer, kind, first, 0, SALT);
    buffer
}

fn reopen(name: String, bytes: Vec<u8>) {
    let disk = Arc::new(Memory::default());
    disk.files.lock().insert(name, Arc::new(Content(Mutex::new(bytes))));
    let volume = Volume {
        disk,
        salt: SALT,
        codec: Arc::new(Identity),
    };
    // What was read once and cut must read the same again.
    if let Ok(first) = recover(&volume, &Options::default(), 0) {
        let again = recover(&volume, &Options::default(), 0).map(|again| again.state.revision);
        assert!(matches!(again, Ok(revision) if revision == first.state.revision));
    }
}

#[derive(Default)]
struct Memory {
    files: Mutex<BTreeMap<String, Arc<Content>>>,
}

struct Content(Mutex<Vec<u8>>);

impl Disk for Memory {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.files.lock().get(name) {
            Some(content) => Ok(content.clone()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let content = Arc::new(Content(Mutex::default()));
        self.files.lock().insert(name.to_owned(), content.clone());
        Ok(content)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let content = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        name.to_owned()
    }
}

impl DiskFile for Content {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.0.lock();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let part = content.get(from..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut content = self.0.lock();
        let from = usize::try_from(offset).map_err(io::Error::other)?;
        let length = content.len().max(from + data.len());
        content.resize(length, 0);
        content[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.lock().resize(length as usize, 0);
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
