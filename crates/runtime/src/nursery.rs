//! Karve's side of the nursery, the process that supervisors are forked from: see `supervisor::nursery`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::supervisor;

/// A log larger than this is begun anew at the next start.
const MAX_LOG_BYTES: u64 = 1 << 20;

pub struct Nursery {
    program: Program,
    state_dir: PathBuf,
    /// None when it has ended, or was never started.
    requests: Mutex<Option<OwnedFd>>,
}

impl Nursery {
    /// Starts the nursery. `state_dir` tells those who list processes whose it is.
    pub fn start(program: &Path, state_dir: &Path) -> io::Result<Self> {
        let nursery = Self {
            program: Program::open(program, state_dir)?,
            state_dir: state_dir.to_owned(),
            requests: Mutex::new(None),
        };
        *nursery.requests.lock() = Some(nursery.spawn()?);
        Ok(nursery)
    }

    /// Where supervisors complain.
    pub fn log_path(&self) -> PathBuf {
        self.state_dir.join("supervisors.log")
    }

    /// Has a supervisor born, with its directory and its control connection. Whether it lives is told by the latter.
    pub fn bear(&self, dir: &Path, control: &OwnedFd) -> io::Result<()> {
        let mut requests = self.requests.lock();
        let ask =
            |requests: &OwnedFd| supervisor::send_with_fds(requests, dir.as_os_str().as_bytes(), &[control.as_fd()]);
        if let Some(open) = requests.as_ref()
            && ask(open).is_ok()
        {
            return Ok(());
        }
        // Someone has killed it: the supervisors it had do not mind, and the next gets a new one.
        let new = self.spawn()?;
        ask(&new)?;
        *requests = Some(new);
        Ok(())
    }

    /// The log is begun anew when it has grown: what matters in it is recent.
    fn open_log(&self) -> io::Result<File> {
        let log = File::options().append(true).create(true).open(self.log_path())?;
        if log.metadata()?.len() > MAX_LOG_BYTES {
            log.set_len(0)?;
        }
        Ok(log)
    }

    fn spawn(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut child = tokio::process::Command::new(format!("/proc/self/fd/{}", self.program.0.as_raw_fd()))
            .arg0("karve")
            .arg(supervisor::SUBCOMMAND)
            .arg(&self.state_dir)
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(self.open_log()?)
            .spawn()?;
        // Collected by this task when it ends; when we end first it is init's.
        tokio::spawn(async move {
            let _ = child.wait().await;
        });
        Ok(ours)
    }
}

/// The program supervisors run, in a form that nobody can write to.
///
/// A container can make its supervisor's child execute `/proc/self/exe`, and then has this file at hand. A read-only
/// mount of the binary would not do: whoever may mount can make a mount writable again (CVE-2019-5736).
struct Program(OwnedFd);

impl Program {
    /// `state_dir` is any directory beside the program's own.
    fn open(path: &Path, state_dir: &Path) -> io::Result<Self> {
        // Not every file system can be below an overlay, and an overlay not twice below another.
        overlaid(path, state_dir).or_else(|_| sealed_copy(path)).map(Self)
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
