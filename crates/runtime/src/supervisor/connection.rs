//! One connection from Karve, at the supervisor's side.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::poll::Token;
use super::socket::{self, Received};
use crate::protocol::{self, Answer, Call, Ended, Failure, Message, Request};

/// How much may wait for a Karve that does not read; then the connection is closed and it must connect anew.
const MAX_PENDING_BYTES: usize = 4 << 20;
/// How many descriptors may wait for the message they belong to.
const MAX_PENDING_FDS: usize = 2 * socket::MAX_FDS;
const READ_BYTES: usize = 16 << 10;

/// What a connection is for.
pub enum Role {
    /// Not known before its first message.
    New,
    Control,
    /// Waits for the end of a process of its own.
    Exec {
        pid: i32,
    },
    Attach {
        container: String,
    },
}

pub struct Connection {
    pub socket: OwnedFd,
    pub role: Role,
    received: Vec<u8>,
    fds: VecDeque<OwnedFd>,
    pending: VecDeque<u8>,
}

/// Whom to answer.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTo {
    pub connection: Token,
    pub id: u64,
}

impl Connection {
    pub fn new(socket: OwnedFd, role: Role) -> Self {
        Self {
            socket,
            role,
            received: Vec::new(),
            fds: VecDeque::new(),
            pending: VecDeque::new(),
        }
    }

    /// Reads what has arrived. False when the other side has gone, or does not speak our protocol.
    pub fn fill(&mut self) -> bool {
        let mut buffer = [0; READ_BYTES];
        loop {
            match socket::receive(&self.socket, &mut buffer) {
                Ok(Received::Nothing) => return true,
                Ok(Received::Bytes { length, fds }) => {
                    self.received.extend_from_slice(&buffer[..length]);
                    self.fds.extend(fds);
                    if self.fds.len() > MAX_PENDING_FDS {
                        return false;
                    }
                }
                Ok(Received::Closed) | Err(_) => return false,
            }
        }
    }

    /// The next whole request among what was read.
    pub fn next_request(&mut self) -> Result<Option<Request>, protocol::FrameError> {
        protocol::decode(&mut self.received)
    }

    /// Takes the descriptors that came with a request: as many as were wanted, or the request was malformed.
    pub fn take_fds(&mut self, call: &Call) -> Option<VecDeque<OwnedFd>> {
        let wanted = match call {
            Call::Exec { process, .. } if process.tty => 0,
            Call::Exec { stdio, .. } | Call::Attach { stdio, .. } => stdio.count(),
            _ => 0,
        };
        (self.fds.len() >= wanted).then(|| self.fds.drain(..wanted).collect())
    }

    pub fn answer(&mut self, id: u64, result: Result<Answer, Failure>, fd: Option<&OwnedFd>) -> io::Result<()> {
        self.send(&Message::Answer { id, result }, fd)
    }

    pub fn notify(&mut self, event: Ended) -> io::Result<()> {
        self.send(&Message::Ended(event), None)
    }

    fn send(&mut self, message: &Message, fd: Option<&OwnedFd>) -> io::Result<()> {
        let bytes = protocol::encode(message).map_err(io::Error::other)?;
        let mut bytes = bytes.as_slice();
        if let Some(fd) = fd {
            // A descriptor travels with the first byte, which cannot wait in the queue. It always fits: the
            // connection of an exec has carried nothing yet.
            let sent = socket::send_with_fds(&self.socket, bytes, &[fd.as_fd()])?;
            bytes = &bytes[sent..];
        }
        if self.pending.len() + bytes.len() > MAX_PENDING_BYTES {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.pending.extend(bytes);
        self.flush()
    }

    /// Sends what is pending, as far as the other side takes it.
    pub fn flush(&mut self) -> io::Result<()> {
        while !self.pending.is_empty() {
            match socket::send_with_fds(&self.socket, self.pending.as_slices().0, &[]) {
                Ok(sent) => drop(self.pending.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}
