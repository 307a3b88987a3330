//! How much of everything the machine has, read from the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cri::{Runtime, v1};

use super::signal::Signal;

/// What is left of something, and what there is in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub available: u64,
    pub capacity: u64,
}

/// Signals that could not be read are missing, and no threshold is met by them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measurements(pub BTreeMap<Signal, Level>);

/// The file systems that are looked at.
#[derive(Clone, Debug)]
pub struct Places {
    /// Any directory on the disk of pods' files and logs.
    pub nodefs: PathBuf,
    /// Any directory on the disk of images.
    pub imagefs: PathBuf,
}

impl Places {
    /// One disk for everything.
    pub fn on(path: &Path) -> Places {
        Places {
            nodefs: path.to_owned(),
            imagefs: path.to_owned(),
        }
    }

    /// `root` is where the kubelet keeps pods' files; the runtime says where its images are.
    pub async fn find(runtime: &dyn Runtime, root: &Path) -> Places {
        let mut places = Places::on(root);
        if let Ok(answer) = runtime.image_fs_info(v1::ImageFsInfoRequest::default()).await {
            let first = answer
                .image_filesystems
                .into_iter()
                .next()
                .and_then(|usage| usage.fs_id);
            if let Some(id) = first.filter(|id| !id.mountpoint.is_empty()) {
                places.imagefs = id.mountpoint.into();
            }
        }
        places
    }
}

impl Measurements {
    pub fn take(places: &Places) -> Measurements {
        let mut levels = BTreeMap::new();
        let (nodefs, imagefs) = (disk(&places.nodefs), disk(&places.imagefs));
        let rows = [
            (Signal::MemoryAvailable, memory()),
            (Signal::NodefsAvailable, nodefs.map(|disk| disk.bytes)),
            (Signal::NodefsInodesFree, nodefs.and_then(|disk| disk.inodes)),
            (Signal::ImagefsAvailable, imagefs.map(|disk| disk.bytes)),
            (Signal::ImagefsInodesFree, imagefs.and_then(|disk| disk.inodes)),
            (Signal::PidAvailable, processes()),
        ];
        for (signal, level) in rows {
            if let Some(level) = level {
                levels.insert(signal, level);
            }
        }
        Measurements(levels)
    }

    pub fn level(&self, signal: Signal) -> Option<Level> {
        self.0.get(&signal).copied()
    }

    pub fn capacity(&self, signal: Signal) -> u64 {
        self.0.get(&signal).map_or(0, |level| level.capacity)
    }
}

#[derive(Clone, Copy)]
struct Disk {
    bytes: Level,
    /// File systems such as btrfs make inodes as they go and count none.
    inodes: Option<Level>,
}

fn disk(path: &Path) -> Option<Disk> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(Disk {
        bytes: Level {
            available: stat.f_bavail * stat.f_frsize,
            capacity: stat.f_blocks * stat.f_frsize,
        },
        inodes: (stat.f_files > 0).then_some(Level {
            available: stat.f_favail,
            capacity: stat.f_files,
        }),
    })
}

fn memory() -> Option<Level> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |field: &str| {
        let line = info.lines().find(|line| line.split(':').next() == Some(field))?;
        Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
    };
    Some(Level {
        available: bytes("MemAvailable")?,
        capacity: bytes("MemTotal")?,
    })
}

/// Tasks that the machine can have: the kernel bounds their numbers, and their number by its memory.
pub fn max_processes() -> Option<u64> {
    let number = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/kernel").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    ["pid_max", "threads-max"].into_iter().filter_map(number).min()
}

/// All tasks of the machine are the second half of the fourth word of `loadavg`.
fn processes() -> Option<Level> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let used: u64 = load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    let max = max_processes()?;
    Some(Level {
        available: max.saturating_sub(used),
        capacity: max,
    })
}
