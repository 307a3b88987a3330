//! Sending and receiving bytes with descriptors beside them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// The most descriptors one message carries: the three standard streams.
pub const MAX_FDS: usize = 3;

const SPACE: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// What a receive found.
pub enum Received {
    /// The other side has sent nothing yet.
    Nothing,
    Closed,
    Bytes {
        length: usize,
        fds: Vec<OwnedFd>,
    },
}

/// Sends bytes, and descriptors with the first of them. Answers how many bytes were taken.
pub fn send_with_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Receives what has arrived; never waits on a descriptor that is set not to.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let result = loop {
        let into = &mut [IoSliceMut::new(buffer)];
        match rustix::net::recvmsg(&socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => break result,
        }
    };
    let length = match result {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN) => return Ok(Received::Nothing),
        Err(Errno::CONNRESET) => return Ok(Received::Closed),
        Err(error) => return Err(error.into()),
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    Ok(if length == 0 && fds.is_empty() {
        Received::Closed
    } else {
        Received::Bytes { length, fds }
    })
}
