//! Loading the kernel's modules in the order of their dependencies.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Lets the kernel unpack a module itself.
const MODULE_INIT_COMPRESSED_FILE: libc::c_int = 4;

/// Loads a module and what it stands on. The name may be one of its aliases, as the kernel asks for them.
///
/// What is part of the kernel itself is in no file, and asking for it is no mistake.
pub fn load(name: &str) -> Result<()> {
    let dir = directory()?;
    let table = read(&dir.join("modules.dep"))?;
    let aliases = fs::read_to_string(dir.join("modules.alias")).unwrap_or_default();
    for module in named(&aliases, name) {
        let Some(line) = table.lines().find(|line| module_of(line) == module) else {
            continue;
        };
        // Dependencies stand in reverse order of loading.
        for file in files(line).into_iter().rev() {
            insert(&dir.join(file))?;
        }
    }
    Ok(())
}

fn directory() -> Result<PathBuf> {
    let release = read(Path::new("/proc/sys/kernel/osrelease"))?;
    Ok(Path::new("/lib/modules").join(release.trim()))
}

/// The modules that a name means: those with such an alias, or the one of this name.
fn named(aliases: &str, name: &str) -> Vec<String> {
    let mut found: Vec<String> = aliases
        .lines()
        .filter_map(|line| line.strip_prefix("alias ")?.split_once(' '))
        .filter(|(pattern, _)| matches(pattern.as_bytes(), name.as_bytes()))
        .map(|(_, module)| normal(module))
        .collect();
    if found.is_empty() {
        found.push(normal(name));
    }
    found
}

/// The module that a line of `modules.dep` is about.
fn module_of(line: &str) -> String {
    let path = line.split(':').next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    normal(file.split(".ko").next().unwrap_or_default())
}

fn files(line: &str) -> Vec<&str> {
    line.split([':', ' ']).filter(|part| !part.is_empty()).collect()
}

/// The kernel holds dashes and underscores for the same.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

/// Shell patterns, as far as aliases use them.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.first(), text.first()) {
        (None, None) => true,
        (Some(b'*'), _) => matches(&pattern[1..], text) || (!text.is_empty() && matches(pattern, &text[1..])),
        (Some(b'?'), Some(_)) => matches(&pattern[1..], &text[1..]),
        (Some(one), Some(other)) if one == other => matches(&pattern[1..], &text[1..]),
        _ => false,
    }
}

fn insert(file: &Path) -> Result<()> {
    let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    let compressed = file.extension().is_some_and(|extension| extension != "ko");
    let flags = if compressed { MODULE_INIT_COMPRESSED_FILE } else { 0 };
    // SAFETY: the kernel reads the file and the empty text of parameters.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, opened.as_raw_fd(), c"".as_ptr(), flags) };
    let error = std::io::Error::last_os_error();
    ensure!(
        result == 0 || error.raw_os_error() == Some(libc::EEXIST),
        "cannot load {}: {error}",
        file.display()
    );
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_by_name_and_by_alias() {
        let aliases = "alias fs-overlay overlay\nalias nft-expr-*-ct nft_ct\n";
        assert_eq!(named(aliases, "fs-overlay"), ["overlay"]);
        assert_eq!(named(aliases, "nft-expr-1-ct"), ["nft_ct"]);
        assert_eq!(named(aliases, "br-netfilter"), ["br_netfilter"]);
    }

    #[test]
    fn a_line_names_its_module_and_its_files() {
        let line = "kernel/a/virtio-blk.ko.xz: kernel/b/virtio_ring.ko.xz kernel/b/virtio.ko.xz";
        assert_eq!(module_of(line), "virtio_blk");
        assert_eq!(files(line).len(), 3);
    }
}
