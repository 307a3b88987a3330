//! The unpacker's side: a loop that does what it is asked until Karve closes the connection.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};

use super::super::archive::{self, ArchiveError};
use super::super::layer::{self, Bounds, LayerError};
use super::super::stream;
use super::{Answer, Call, MAX_FAILURE_CHARS, MAX_MESSAGE_BYTES, confine};
use crate::supervisor::{Received, receive, send_with_fds};
use crate::sys;

/// Why a call could not be carried out.
#[derive(Debug, thiserror::Error)]
enum UnpackError {
    #[error("failed to open a directory: {0}")]
    Open(#[source] io::Error),
    #[error(transparent)]
    Layer(LayerError),
    #[error(transparent)]
    Spool(ArchiveError),
    #[error("{0:?} came with the wrong descriptors")]
    Descriptors(Call),
}

/// Unpacks what is asked for on standard input. Must be called before the process has started any thread.
pub fn main() -> ExitCode {
    // Nothing of Karve's is inherited, but what is not there cannot be misused.
    let closed = sys::close_all_but(&[]);
    let requests = closed.and_then(|()| io::stdin().as_fd().try_clone_to_owned());
    let confined = requests.and_then(|requests| {
        let confined = confine::confine();
        // Whoever waits for the first answer gets to know.
        confined.inspect_err(|error| {
            let failure = format!("giving up the unpacker's privileges: {error}");
            let _ = answer(&requests, &Answer::Failed(failure));
        })?;
        Ok(requests)
    });
    match confined.and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Answers calls until the connection is closed.
pub fn serve(requests: OwnedFd) -> io::Result<()> {
    let mut below = Vec::new();
    let mut buffer = [0; MAX_MESSAGE_BYTES];
    loop {
        let (length, fds) = match receive(&requests, &mut buffer)? {
            Received::Closed => return Ok(()),
            Received::Nothing => continue,
            Received::Bytes { length, fds } => (length, fds),
        };
        let call = serde_json::from_slice(&buffer[..length])?;
        let done = perform(&requests, call, fds, &mut below).unwrap_or_else(|failure| {
            let failure = failure.to_string().chars().take(MAX_FAILURE_CHARS).collect();
            Answer::Failed(failure)
        });
        answer(&requests, &done)?;
    }
}

/// `below` is topmost first.
fn perform(requests: &OwnedFd, call: Call, fds: Vec<OwnedFd>, below: &mut Vec<OwnedFd>) -> Result<Answer, UnpackError> {
    match (call, <[OwnedFd; 2]>::try_from(fds)) {
        (Call::Below, Err(fds)) => {
            for dir in &fds {
                below.insert(0, reopen(dir).map_err(UnpackError::Open)?);
            }
            Ok(Answer::Done)
        }
        (Call::Layer { bounds, digest_blob }, Ok([blob, dir])) => {
            let dir = reopen(&dir).map_err(UnpackError::Open)?;
            let done = unpack(requests, File::from(blob), &dir, below, &bounds, digest_blob)?;
            below.insert(0, dir);
            Ok(done)
        }
        (Call::Spool { max_bytes }, Ok([blob, dir])) => {
            let spooled = stream::read(File::from(blob), max_bytes, false, |content| {
                archive::spool(content, dir.as_fd(), max_bytes)
            });
            spooled.map(|_| Answer::Done).map_err(UnpackError::Spool)
        }
        (call, _) => Err(UnpackError::Descriptors(call)),
    }
}

fn unpack(
    requests: &OwnedFd,
    blob: File,
    dir: &OwnedFd,
    below: &[OwnedFd],
    bounds: &Bounds,
    digest_blob: bool,
) -> Result<Answer, UnpackError> {
    let mut opaque = |directory: OwnedFd| tell(requests, &Answer::Opaque, Some(&directory));
    // Headers and padding come on top of what the files have.
    let stream_bytes = bounds.bytes.saturating_mul(2).max(bounds.bytes.saturating_add(1 << 30));
    let (bytes, digests) = stream::read(blob, stream_bytes, digest_blob, |content| {
        layer::unpack(content, dir.as_fd(), below, bounds, &mut opaque)
    })
    .map_err(UnpackError::Layer)?;
    Ok(Answer::Unpacked {
        bytes,
        content: digests.content,
        blob: digests.blob,
    })
}

/// What comes as a mere place becomes a directory that can be changed.
fn reopen(dir: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, ".", flags, Mode::empty())?)
}

fn answer(requests: &OwnedFd, answer: &Answer) -> io::Result<()> {
    tell(requests, answer, None)
}

fn tell(requests: &OwnedFd, answer: &Answer, fd: Option<&OwnedFd>) -> io::Result<()> {
    let bytes = serde_json::to_vec(answer)?;
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    send_with_fds(requests, &bytes, &fds).map(drop)
}
