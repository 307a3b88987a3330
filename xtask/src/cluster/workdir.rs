//! A cluster's directory, removed with care: something may still be mounted inside.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

/// Removed when dropped.
pub struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    /// Short, because paths of sockets inside may not exceed 107 bytes.
    pub fn create() -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("karve-")
            .tempdir()
            .context("cannot make a temporary directory")?;
        Ok(Self { path: dir.keep() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // A mount may lead to files of the machine, so that nothing is removed through one.
        for mount in mounts_below(&self.path) {
            eprintln!("{} was left mounted", mount.display());
            let _ = umount2(&mount, MntFlags::MNT_DETACH);
        }
        if !mounts_below(&self.path).is_empty() {
            eprintln!("{} is left, for something is still mounted in it", self.path.display());
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// What is mounted below a directory, the innermost first.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|path| PathBuf::from(unescape(path)))
        .filter(|path| path.starts_with(dir) && path != dir)
        .collect();
    mounts.sort();
    mounts.reverse();
    mounts
}

/// The kernel writes blanks and backslashes of paths in octal.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_mount_points_are_read() {
        assert_eq!(unescape(r"/a\040b/c\134d"), r"/a b/c\d");
    }

    #[test]
    fn a_work_directory_goes_with_its_value() {
        let dir = WorkDir::create().unwrap();
        let path = dir.path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        drop(dir);
        assert!(!path.exists());
    }
}
