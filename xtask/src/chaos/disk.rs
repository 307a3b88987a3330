//! A small disk below the store, which can be full or slow: a file system of its own in a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

use crate::signals::wait_for;
use crate::tools::run;

const MEGABYTES: u64 = 64;
/// What it is made and slowed with.
pub const NEEDS: &[&str] = &["mkfs.ext4", "mount", "fsfreeze"];

/// Released when dropped.
pub struct Disk {
    path: PathBuf,
}

/// A disk that answers nobody. It does again when this is dropped.
pub struct Frozen<'a>(&'a Disk);

impl Disk {
    /// Mounts a file system that is in `file` at `path`.
    pub fn mount(file: &Path, path: &Path) -> Result<Self> {
        fs::create_dir_all(path)?;
        fs::File::create(file)?.set_len(MEGABYTES << 20)?;
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(file))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(file).arg(path))
            .with_context(|| format!("cannot mount at {}", path.display()))?;
        let disk = Self { path: path.to_owned() };
        fs::remove_dir(path.join("lost+found"))?;
        Ok(disk)
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }

    pub fn fill(&self) -> Result<()> {
        let mut file = fs::File::create(self.ballast())?;
        let block = vec![1; 1 << 16];
        loop {
            if let Err(error) = std::io::Write::write_all(&mut file, &block) {
                return match error.kind() {
                    std::io::ErrorKind::StorageFull => Ok(()),
                    _ => Err(error.into()),
                };
            }
        }
    }

    pub fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.ballast())?)
    }

    /// Whoever writes or syncs waits, in the kernel, until the disk is thawed.
    pub fn freeze(&self) -> Result<Frozen<'_>> {
        run(Command::new("fsfreeze").arg("--freeze").arg(&self.path))?;
        Ok(Frozen(self))
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0.path)) {
            eprintln!("{error:#}");
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let freed = wait_for("the store's disk to be free", Duration::from_secs(10), || {
            umount2(&self.path, MntFlags::empty()).ok()
        });
        if freed.is_err() {
            let _ = umount2(&self.path, MntFlags::MNT_DETACH);
        }
    }
}
