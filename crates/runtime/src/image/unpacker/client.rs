//! Karve's side of an unpacker.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::super::digest::Digest;
use super::super::layer::{self, Bounds};
use super::super::limits::{UNPACK_CPU_SECONDS, UNPACK_TIMEOUT, UNPACKER_MEMORY_BYTES};
use super::{Answer, Call, MAX_MESSAGE_BYTES, SUBCOMMAND};
use crate::program::Program;
use crate::supervisor::{Received, mounts, receive, send_with_fds};
use crate::sys;

/// How much is told of what an unpacker said before it ended.
const MAX_LAST_WORDS: u64 = 500;

#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    #[error("{0}")]
    Refused(String),
    #[error("failed to start the unpacker process: {0}")]
    Start(io::Error),
    #[error("failed to send files to the unpacker process: {0}")]
    Io(#[from] io::Error),
    #[error("the unpacker process ended unexpectedly: {0}")]
    Ended(String),
    #[error("unpacking takes longer than {} seconds", .0.as_secs())]
    Timeout(Duration),
    #[error("the unpacker process answered another request than it was sent")]
    Unexpected,
}

/// How unpackers are started.
pub enum Launcher {
    Process(Arc<Program>),
    /// In this process, without being confined.
    #[cfg(test)]
    Thread,
}

/// What a layer turned out to be.
#[derive(Debug)]
pub struct Unpacked {
    /// The bytes of its files.
    pub bytes: u64,
    /// The digest of its tar.
    pub content: Digest,
    /// That of the blob, where it was asked for.
    pub blob: Option<Digest>,
}

/// A process that unpacks. It ends when this is dropped, and must not be given to another thread: it also ends with
/// the thread that started it.
pub struct Unpacker {
    requests: OwnedFd,
    child: Option<Child>,
    timeout: Duration,
}

impl Launcher {
    pub fn start(&self) -> Result<Unpacker, UnpackError> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map_err(|error| UnpackError::Start(error.into()))?;
        let child = match self {
            Self::Process(program) => Some(spawn(program, theirs).map_err(UnpackError::Start)?),
            #[cfg(test)]
            Self::Thread => {
                std::thread::spawn(move || super::serve::serve(theirs));
                None
            }
        };
        Ok(Unpacker {
            requests: ours,
            child,
            timeout: UNPACK_TIMEOUT,
        })
    }
}

fn spawn(program: &Program, requests: OwnedFd) -> io::Result<Child> {
    Command::new(program.path())
        .arg0("karve")
        .arg(SUBCOMMAND)
        .env_clear()
        .stdin(requests)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

impl Unpacker {
    /// Tells of a layer that those to come stand on, above all that were told before.
    pub fn add_below(&mut self, dir: BorrowedFd<'_>) -> Result<(), UnpackError> {
        let dir = detached(dir, sys::MOUNT_ATTR_RDONLY)?;
        match self.call(&Call::Below, &[dir.as_fd()])? {
            Answer::Done => Ok(()),
            _ => Err(UnpackError::Unexpected),
        }
    }

    /// Unpacks a layer's blob into an empty directory.
    pub fn unpack(
        &mut self,
        blob: &File,
        dir: BorrowedFd<'_>,
        bounds: Bounds,
        digest_blob: bool,
    ) -> Result<Unpacked, UnpackError> {
        let dir = detached(dir, 0)?;
        let call = Call::Layer { bounds, digest_blob };
        match self.call(&call, &[blob.as_fd(), dir.as_fd()])? {
            Answer::Unpacked { bytes, content, blob } => Ok(Unpacked { bytes, content, blob }),
            _ => Err(UnpackError::Unexpected),
        }
    }

    /// Spools an archive to an empty directory.
    pub fn spool(&mut self, archive: &File, dir: BorrowedFd<'_>, max_bytes: u64) -> Result<(), UnpackError> {
        let dir = detached(dir, 0)?;
        match self.call(&Call::Spool { max_bytes }, &[archive.as_fd(), dir.as_fd()])? {
            Answer::Done => Ok(()),
            _ => Err(UnpackError::Unexpected),
        }
    }

    fn call(&mut self, call: &Call, fds: &[BorrowedFd<'_>]) -> Result<Answer, UnpackError> {
        let message = serde_json::to_vec(call).map_err(io::Error::from)?;
        // Who has ended cannot be written to, but may have said why.
        let sent = send_with_fds(&self.requests, &message, fds);
        let deadline = Instant::now() + self.timeout;
        let mut buffer = [0; MAX_MESSAGE_BYTES];
        loop {
            self.wait(deadline)?;
            let (length, fds) = match receive(&self.requests, &mut buffer)? {
                Received::Bytes { length, fds } => (length, fds),
                Received::Nothing => continue,
                Received::Closed => return Err(self.ended(sent.err())),
            };
            match serde_json::from_slice(&buffer[..length]).map_err(|_| UnpackError::Unexpected)? {
                Answer::Failed(why) => return Err(UnpackError::Refused(why)),
                Answer::Opaque => fds.iter().try_for_each(layer::set_opaque)?,
                answer => return Ok(answer),
            }
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<(), UnpackError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.end();
                return Err(UnpackError::Timeout(self.timeout));
            }
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            match rustix::event::poll(&mut [PollFd::new(&self.requests, PollFlags::IN)], Some(&left)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }

    /// Why the process is gone.
    fn ended(&mut self, sending: Option<io::Error>) -> UnpackError {
        let Some(mut child) = self.child.take() else {
            return UnpackError::Ended(sending.map_or_else(String::new, |error| error.to_string()));
        };
        let status = child.wait();
        let mut words = Vec::new();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.take(MAX_LAST_WORDS).read_to_end(&mut words);
        }
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        UnpackError::Ended(match status {
            Ok(status) => told(status, &words),
            Err(error) => error.to_string(),
        })
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Unpacker {
    fn drop(&mut self) {
        self.end();
    }
}

fn told(status: ExitStatus, words: &str) -> String {
    match status.signal() {
        Some(libc::SIGABRT) if words.contains("memory allocation") => {
            format!("it needs more than {} MiB of memory", UNPACKER_MEMORY_BYTES >> 20)
        }
        Some(libc::SIGXCPU) => format!("it used {UNPACK_CPU_SECONDS} seconds of a processor"),
        Some(libc::SIGKILL) => "it was killed; the machine may be out of memory".to_owned(),
        _ => format!("{status}: {words}"),
    }
}

/// A directory as a mount of its own: no path leads from it to anything else, and nothing in it can be executed or
/// opened as a device.
fn detached(dir: BorrowedFd<'_>, attributes: u64) -> io::Result<OwnedFd> {
    let mount = mounts::clone_of(dir, Path::new(""), false)?;
    let inert = sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV | sys::MOUNT_ATTR_NOEXEC;
    mounts::set(&mount, inert | attributes, false)?;
    Ok(mount)
}
