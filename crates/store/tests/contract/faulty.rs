//! A disk in memory that fails where it is told to and forgets, from a seed, what was never synced.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use store::embedded::{Disk, DiskFile};

/// The unit that is written whole or not at all when the power goes.
const SECTOR: usize = 512;

/// A small generator, so that one number tells a whole story.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// What goes wrong, and at which operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// From this operation on nothing works; a write at that point is cut somewhere.
    pub crash_at: Option<usize>,
    /// The first sync of a log at or after this operation fails.
    pub fail_sync_at: Option<usize>,
    /// Every sync of a log fails.
    pub fail_syncs: bool,
    /// No more bytes than this fit.
    pub capacity: Option<usize>,
}

/// How the machine goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The process is killed; the operating system still has all that was written.
    Killed,
    /// The power goes; of what was not synced any sector may be there or not.
    PowerLoss,
}

#[derive(Clone)]
pub struct FaultyDisk(Arc<Mutex<Inner>>);

struct Inner {
    random: Random,
    faults: Faults,
    operations: usize,
    crashed: bool,
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    /// The names after each change since they were synced.
    name_steps: Vec<BTreeMap<String, usize>>,
}

#[derive(Clone, Default)]
struct Content {
    data: Vec<u8>,
    synced: Vec<u8>,
}

impl FaultyDisk {
    pub fn new(seed: u64) -> Self {
        Self::with_files(Random(seed), Vec::new(), BTreeMap::new())
    }

    pub fn set_faults(&self, faults: Faults) {
        self.0.lock().faults = faults;
    }

    pub fn operations(&self) -> usize {
        self.0.lock().operations
    }

    /// The disk as the next process finds it.
    pub fn after(&self, crash: Crash) -> FaultyDisk {
        let mut inner = self.0.lock();
        inner.crashed = true;
        let mut random = Random(inner.random.next());
        let (files, names) = match crash {
            Crash::Killed => (
                inner.files.iter().map(|file| file.data.clone()).collect(),
                inner.names.clone(),
            ),
            Crash::PowerLoss => {
                let files = inner
                    .files
                    .iter()
                    .map(|file| file.after_power_loss(&mut random))
                    .collect();
                let step = random.below(inner.name_steps.len() + 1);
                let names = if step == 0 {
                    inner.synced_names.clone()
                } else {
                    inner.name_steps[step - 1].clone()
                };
                (files, names)
            }
        };
        Self::with_files(random, files, names)
    }

    /// The names of the files and how long they are.
    pub fn lengths(&self) -> BTreeMap<String, usize> {
        let inner = self.0.lock();
        let length = |(name, index): (&String, &usize)| (name.clone(), inner.files[*index].data.len());
        inner.names.iter().map(length).collect()
    }

    /// Flips one bit of a file that `choose` picks by name; returns which.
    pub fn flip(&self, choose: impl Fn(&str) -> bool, random: &mut Random) -> Option<(String, usize)> {
        let mut inner = self.0.lock();
        let candidates: Vec<_> = inner
            .names
            .iter()
            .filter(|(name, _)| choose(name))
            .map(|(n, i)| (n.clone(), *i))
            .collect();
        let (name, index) = candidates.get(random.below(candidates.len()))?.clone();
        let data = &mut inner.files[index].data;
        let bit = random.below(data.len() * 8);
        *data.get_mut(bit / 8)? ^= 1 << (bit % 8);
        Some((name, bit))
    }

    fn with_files(random: Random, files: Vec<Vec<u8>>, names: BTreeMap<String, usize>) -> Self {
        let files = files
            .into_iter()
            .map(|data| Content {
                synced: data.clone(),
                data,
            })
            .collect();
        FaultyDisk(Arc::new(Mutex::new(Inner {
            random,
            faults: Faults::default(),
            operations: 0,
            crashed: false,
            files,
            synced_names: names.clone(),
            names,
            name_steps: Vec::new(),
        })))
    }
}

impl Content {
    fn after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        let length = if random.chance(2) {
            self.synced.len()
        } else {
            self.data.len()
        };
        let mut left = self.synced.clone();
        left.resize(length, 0);
        for start in (0..length.min(self.data.len())).step_by(SECTOR) {
            let end = (start + SECTOR).min(length).min(self.data.len());
            if random.chance(2) {
                left[start..end].copy_from_slice(&self.data[start..end]);
            }
        }
        left
    }
}

impl Inner {
    /// Counts an operation; an error when the machine is down, `true` when it goes down with this one.
    fn begin(&mut self) -> io::Result<bool> {
        if self.crashed {
            return Err(io::Error::other("the machine is down"));
        }
        self.crashed = self.faults.crash_at.is_some_and(|at| self.operations >= at);
        self.operations += 1;
        Ok(self.crashed)
    }

    fn change_names(&mut self, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let crashes = self.begin()?;
        if !crashes || self.random.chance(2) {
            change(self);
            self.name_steps.push(self.names.clone());
        }
        if crashes {
            Err(io::Error::other("the machine went down"))
        } else {
            Ok(())
        }
    }

    fn is_log(&self, index: usize) -> bool {
        let mut names = self.names.iter();
        names.any(|(name, file)| *file == index && name.starts_with("log-"))
    }

    fn is_full(&self, growth: usize) -> bool {
        let capacity = self.faults.capacity;
        capacity.is_some_and(|capacity| self.used() + growth > capacity)
    }

    fn used(&self) -> usize {
        self.names.values().map(|index| self.files[*index].data.len()).sum()
    }
}

impl Disk for FaultyDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.0.lock();
        let index = *inner.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(FaultyFile {
            disk: self.clone(),
            index,
        }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.0.lock();
        let index = inner.files.len();
        inner.change_names(|inner| {
            inner.files.push(Content::default());
            inner.names.insert(name.into(), index);
        })?;
        Ok(Arc::new(FaultyFile {
            disk: self.clone(),
            index,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.lock().change_names(|inner| {
            let index = inner.names.remove(from).expect("renaming a file that is there");
            inner.names.insert(to.into(), index);
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().change_names(|inner| {
            inner.names.remove(name);
        })
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.0.lock();
        if inner.begin()? {
            return Err(io::Error::other("the machine went down"));
        }
        inner.synced_names = inner.names.clone();
        inner.name_steps.clear();
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        format!("faulty:{name}")
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    index: usize,
}

impl DiskFile for FaultyFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.0.lock().files[self.index].data.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let inner = self.disk.0.lock();
        let data = &inner.files[self.index].data;
        let source = data
            .get(offset as usize..offset as usize + buffer.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(source);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        let crashes = inner.begin()?;
        let end = offset as usize + data.len();
        let growth = end.saturating_sub(inner.files[self.index].data.len());
        let full = growth > 0 && inner.is_full(growth);
        let written = if crashes || full {
            inner.random.below(data.len() + 1)
        } else {
            data.len()
        };
        let file = &mut inner.files[self.index].data;
        if file.len() < offset as usize + written {
            file.resize(offset as usize + written, 0);
        }
        file[offset as usize..offset as usize + written].copy_from_slice(&data[..written]);
        match (crashes, full) {
            (true, _) => Err(io::Error::other("the machine went down")),
            (_, true) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        if inner.begin()? {
            return Err(io::Error::other("the machine went down"));
        }
        inner.files[self.index].data.resize(length as usize, 0);
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        if inner.begin()? {
            return Err(io::Error::other("the machine went down"));
        }
        let growth = (length as usize).saturating_sub(inner.files[self.index].data.len());
        if inner.is_full(growth) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        inner.files[self.index].data.resize(length as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.0.lock();
        let crashes = inner.begin()?;
        let fails = inner.is_log(self.index)
            && (inner.faults.fail_syncs || inner.faults.fail_sync_at.is_some_and(|at| inner.operations > at));
        if crashes || fails {
            inner.faults.fail_sync_at = None;
            let mut random = inner.random.clone();
            inner.random.next();
            let file = &mut inner.files[self.index];
            file.synced = file.after_power_loss(&mut random);
            return Err(io::Error::other("the sync failed"));
        }
        let file = &mut inner.files[self.index];
        file.synced = file.data.clone();
        Ok(())
    }
}
