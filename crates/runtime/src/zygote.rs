//! Karve's side of the zygote, the process that supervisors are forked from: see `supervisor::zygote`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::program::Program;
use crate::supervisor;

/// A log larger than this is begun anew at the next start.
const MAX_LOG_BYTES: u64 = 1 << 20;

pub struct Zygote {
    program: Arc<Program>,
    state_dir: PathBuf,
    /// None when it has ended, or was never started.
    requests: Mutex<Option<OwnedFd>>,
}

/// Why pods cannot have user namespaces here.
#[derive(Debug, thiserror::Error)]
pub enum NoUserNamespaces {
    #[error("failed to run the probe for user namespaces: {0}")]
    Probe(#[source] io::Error),
    #[error("{0}")]
    Refused(String),
}

impl Zygote {
    /// Starts the zygote. `state_dir` tells those who list processes whose it is.
    pub fn start(program: Arc<Program>, state_dir: &Path) -> io::Result<Self> {
        let zygote = Self {
            program,
            state_dir: state_dir.to_owned(),
            requests: Mutex::new(None),
        };
        *zygote.requests.lock() = Some(zygote.spawn()?);
        Ok(zygote)
    }

    /// Where supervisors complain.
    pub fn log_path(&self) -> PathBuf {
        self.state_dir.join("supervisors.log")
    }

    /// Whether pods can have user namespaces, or why not. `dir` is where containers' files are. Blocks for a moment.
    pub fn probe_user_namespaces(&self, dir: &Path) -> Result<(), NoUserNamespaces> {
        let probe = std::process::Command::new(self.program.path())
            .arg0("karve")
            .arg(supervisor::SUBCOMMAND)
            .arg(supervisor::PROBE_USER_NAMESPACES)
            .arg(dir)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .map_err(NoUserNamespaces::Probe)?;
        match probe.status.success() {
            true => Ok(()),
            false => Err(NoUserNamespaces::Refused(
                String::from_utf8_lossy(&probe.stderr).trim().to_owned(),
            )),
        }
    }

    /// Has the zygote fork a supervisor for a directory and a control connection. Whether it lives is known by the latter.
    pub fn fork_supervisor(&self, dir: &Path, control: &OwnedFd) -> io::Result<()> {
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
        let mut child = tokio::process::Command::new(self.program.path())
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
