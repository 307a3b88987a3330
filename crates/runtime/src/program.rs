//! The binary that helper processes of the runtime are started from.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// The program that supervisors and unpackers run, in a form that nobody can write to. Helpers are of the version that
/// starts them, even after the binary was replaced.
///
/// A container can make its supervisor's child execute `/proc/self/exe`, and then has this file at hand. A read-only
/// mount of the binary would not do: whoever may mount can make a mount writable again (CVE-2019-5736).
pub struct Program(OwnedFd);

impl Program {
    /// `state_dir` is any directory beside the program's own.
    pub fn open(path: &Path, state_dir: &Path) -> io::Result<Self> {
        // Not every file system can be below an overlay, and an overlay not twice below another.
        overlaid(path, state_dir).or_else(|_| sealed_copy(path)).map(Self)
    }

    /// Where this process can execute it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// The file as an overlay without an upper layer shows it: there is nowhere to write to, and no way to add one. The
/// memory of the binary stays shared with the file below.
fn overlaid(path: &Path, state_dir: &Path) -> io::Result<OwnedFd> {
    let path = path.canonicalize()?;
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let escaped = |dir: &Path| Some(dir.to_str()?.replace('\\', "\\\\").replace(':', "\\:"));
    // Without an upper layer there must be two lower ones.
    let (Some(dir), Some(other)) = (escaped(dir), escaped(state_dir)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "lowerdir", format!("{dir}:{other}"))?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    let mount = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(&mount, name, flags, Mode::empty())?)
}

/// A copy in memory that the kernel keeps from ever changing.
fn sealed_copy(path: &Path) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag and need none.
    let copy = rustix::fs::memfd_create("karve", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("karve", flags))?;
    let mut copy = File::from(copy);
    io::copy(&mut File::open(path)?, &mut copy)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    rustix::fs::fcntl_add_seals(&copy, seals)?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cve_2019_5736_the_copy_of_the_program_cannot_be_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, "code").unwrap();
        let copy = sealed_copy(&path).unwrap();
        let place = format!("/proc/self/fd/{}", copy.as_raw_fd());
        assert_eq!(std::fs::read(&place).unwrap(), b"code");
        let error = std::fs::write(&place, "evil").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        assert_eq!(std::fs::read(&place).unwrap(), b"code");
    }
}
