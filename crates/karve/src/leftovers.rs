//! Mounts and cgroups that outlive the process that made them, removed by name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, unmount};

/// Unmounts everything at or below `directory`, the deepest first.
pub fn unmount_below(directory: &Path) -> Result<()> {
    for point in mounts_below(directory)? {
        match unmount(&point, UnmountFlags::DETACH) {
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error).with_context(|| format!("failed to unmount {}", point.display())),
        }
    }
    Ok(())
}

/// Where something is mounted at or below `directory`, the deepest first.
pub fn mounts_below(directory: &Path) -> Result<Vec<PathBuf>> {
    // The table has paths without links. What is not found in it is not unmounted, and would be removed with the directory.
    let directory = match directory.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.with_context(|| format!("failed to resolve {}", directory.display()))?,
    };
    let table = fs::read("/proc/self/mountinfo").context("failed to read the mount table")?;
    let table = String::from_utf8_lossy(&table);
    let mut points: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescape(field)))
        .filter(|point| point.starts_with(&directory))
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    Ok(points)
}

/// Removes the empty cgroup `name` and those below it from every hierarchy. Processes in it keep it alive.
pub fn remove_cgroup(name: &str) -> Result<()> {
    let relative = name.trim_start_matches('/');
    anyhow::ensure!(!relative.is_empty(), "refusing to remove the root cgroup");
    for hierarchy in hierarchies()? {
        let path = hierarchy.join(relative);
        if path.is_dir() {
            remove_tree(&path).with_context(|| format!("failed to remove cgroup {}", path.display()))?;
        }
    }
    Ok(())
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mounts").context("failed to read the mount table")?;
    let mounted = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        matches!(*fields.get(2)?, "cgroup" | "cgroup2").then(|| PathBuf::from(unescape(fields[1])))
    });
    Ok(mounted.collect())
}

/// Cgroup directories hold files that cannot and need not be removed.
fn remove_tree(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(path)
}

/// The kernel writes spaces and other special bytes in mount tables as three octal digits.
fn unescape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        match rest
            .get(at + 1..at + 4)
            .and_then(|octal| u8::from_str_radix(octal, 8).ok())
        {
            Some(byte) => {
                text.push(byte as char);
                rest = &rest[at + 4..];
            }
            None => {
                text.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_spaces_are_read() {
        assert_eq!(unescape("/a\\040b/c\\134d"), "/a b/c\\d");
    }
}
