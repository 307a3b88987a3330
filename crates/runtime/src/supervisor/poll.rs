//! Waiting for many descriptors at once, each known by a token.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// How many ready descriptors one wait takes.
const BATCH: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

pub struct Poll {
    epoll: OwnedFd,
    next: u64,
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            next: 0,
        })
    }

    pub fn add(&mut self, fd: impl AsFd, interest: EventFlags) -> io::Result<Token> {
        let token = self.next;
        if !interest.is_empty() {
            epoll::add(&self.epoll, fd, EventData::new_u64(token), interest)?;
        }
        self.next += 1;
        Ok(Token(token))
    }

    /// Changes what a descriptor is waited for. Nothing means nothing: not even its end, which would be reported
    /// again and again until it is taken.
    pub fn change(&self, fd: impl AsFd, token: Token, interest: EventFlags) {
        if interest.is_empty() {
            return self.remove(fd);
        }
        let data = EventData::new_u64(token.0);
        if epoll::modify(&self.epoll, &fd, data, interest) == Err(Errno::NOENT) {
            // Fails only for want of memory; the descriptor's own reads and writes then report what is wrong with it.
            let _ = epoll::add(&self.epoll, &fd, data, interest);
        }
    }

    /// Stops waiting for a descriptor; must be done before it is closed, because another process may share it.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Waits until something is ready, or until a moment.
    pub fn wait(&self, until: Option<Instant>) -> io::Result<Vec<(Token, EventFlags)>> {
        let mut events = Vec::with_capacity(BATCH);
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.epoll, room, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events
            .iter()
            .map(|event| (Token(event.data.u64()), event.flags))
            .collect())
    }
}
