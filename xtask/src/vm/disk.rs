//! What the machine starts from: an initial file system that finds the disk, and a disk with everything else.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::cpio::Cpio;
use super::kernel::Kernel;
use crate::tools::output;

/// Mostly holes.
const DISK_BYTES: u64 = 8 << 30;

/// The modules that reach the disk, each with what it stands on.
const DRIVERS: &[&str] = &["virtio_pci.ko", "virtio_blk.ko"];

/// A file for the machine: where it is here, and where it goes there.
pub type Placed = (PathBuf, PathBuf);

pub fn write_initial(path: &Path, kernel: &Kernel, init: &Path) -> Result<()> {
    let mut cpio = Cpio::default();
    let modules = format!("lib/modules/{}", kernel.release);
    let table = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    let mut made = Vec::new();
    let mut place = |file: &str, content: &[u8], program: bool| {
        for parent in Path::new(file)
            .ancestors()
            .skip(1)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let parent = parent.to_string_lossy().into_owned();
            if !parent.is_empty() && !made.contains(&parent) {
                cpio.directory(&parent);
                made.push(parent);
            }
        }
        match program {
            true => cpio.program(file, content),
            false => cpio.file(file, content),
        }
    };
    place("init", &fs::read(init)?, true);
    for file in drivers(&table) {
        place(
            &format!("{modules}/{file}"),
            &fs::read(kernel.modules.join(file))?,
            false,
        );
    }
    place(&format!("{modules}/modules.dep"), table.as_bytes(), false);
    for directory in ["dev", "proc", "sys", "disk"] {
        cpio.directory(directory);
    }
    fs::write(path, cpio.finish()).with_context(|| format!("cannot write {}", path.display()))
}

/// The files of the drivers; one that is part of the kernel has none.
fn drivers(table: &str) -> Vec<&str> {
    let lines = table.lines().filter(|line| {
        let path = line.split(':').next().unwrap_or_default();
        DRIVERS.iter().any(|driver| path.contains(&format!("/{driver}")))
    });
    let mut files: Vec<&str> = lines
        .flat_map(|line| line.split([':', ' ']))
        .filter(|file| !file.is_empty())
        .collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// A disk with a small system on it. Its command and the files beside it are all that differ between machines.
pub fn write_disk(path: &Path, kernel: &Kernel, init: &Path, files: &[Placed], command: &[String]) -> Result<()> {
    let staging = tempfile::tempdir().context("cannot make a temporary directory")?;
    let root = staging.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    for directory in [
        "dev",
        "etc",
        "lib/modules",
        "proc",
        "root",
        "run",
        "sbin",
        "sys",
        "tmp",
        "usr/bin",
        "usr/sbin",
        "var/tmp",
    ] {
        fs::create_dir_all(root.join(directory))?;
    }
    symlink("usr/bin", root.join("bin"))?;
    fs::copy(init, root.join("sbin/init"))?;
    symlink("init", root.join("sbin/modprobe"))?;
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n")?;
    let words: Vec<String> = command.iter().map(|word| format!("{word}\0")).collect();
    fs::write(root.join("etc/vm-command"), words.concat())?;
    copy_tree(&kernel.modules, &root.join("lib/modules").join(&kernel.release))?;
    for (from, to) in files {
        let to = root.join(to.strip_prefix("/").unwrap_or(to));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    busybox(root)?;
    File::create(path)?.set_len(DISK_BYTES)?;
    let mut format = Command::new("mkfs.ext4");
    // Nothing of it is needed after a crash of this machine, and the tables of inodes are made when they are used.
    format
        .args(["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d"])
        .arg(root)
        .arg(path);
    output(&mut format).map(drop)
}

/// A shell and what goes with it, for whoever looks around by hand.
fn busybox(root: &Path) -> Result<()> {
    let program = ["/bin/busybox", "/usr/bin/busybox"]
        .iter()
        .find(|path| Path::new(path).exists());
    let program = program.context("busybox is not installed; see `cargo xtask test --only install`")?;
    fs::copy(program, root.join("usr/bin/busybox"))?;
    for applet in output(Command::new(program).arg("--list"))?.lines() {
        let link = root.join("usr/bin").join(applet);
        if applet != "init" && applet != "modprobe" && fs::symlink_metadata(&link).is_err() {
            symlink("busybox", link)?;
        }
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    output(Command::new("cp").arg("-r").arg(from).arg(to)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_come_with_what_they_stand_on() {
        let table = "kernel/block/virtio_blk.ko: kernel/v/virtio_ring.ko kernel/v/virtio.ko\n\
                     kernel/net/virtio_net.ko: kernel/net/failover.ko\n\
                     kernel/v/virtio_pci.ko: kernel/v/virtio_ring.ko kernel/v/virtio.ko\n";
        let expected = [
            "kernel/block/virtio_blk.ko",
            "kernel/v/virtio.ko",
            "kernel/v/virtio_pci.ko",
            "kernel/v/virtio_ring.ko",
        ];
        assert_eq!(drivers(table), expected);
    }
}
