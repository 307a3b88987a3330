//! Notifications of what changes in the kernel, whoever changes it.

use std::io;

use tokio::io::unix::AsyncFd;

use super::{Error, Message, Socket, messages};

/// A socket that is told of changes.
#[derive(Debug)]
pub struct Monitor(AsyncFd<Socket>);

impl Monitor {
    /// Joins groups of a protocol (`NETLINK_…`) in the calling thread's namespace. Needs a runtime.
    pub fn open(protocol: i32, groups: &[u32]) -> Result<Monitor, Error> {
        let socket = Socket::open(protocol)?;
        socket.listen(groups, RECEIVE_BUFFER_BYTES)?;
        // SAFETY: a socket owns its descriptor and keeps it until it is dropped.
        let registered = unsafe { AsyncFd::register(socket) };
        Ok(Monitor(registered.map_err(io::Error::from)?))
    }

    /// Is told of links, their addresses, and routes.
    pub fn links() -> Result<Monitor, Error> {
        Monitor::open(libc::NETLINK_ROUTE, &LINK_GROUPS)
    }

    /// Waits for a message that is of interest. More may have changed than it says: the kernel drops messages when many
    /// come at once, which counts as one of interest.
    pub async fn changed(&self, is_of_interest: impl Fn(&Message<'_>) -> bool) -> Result<(), Error> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            let mut ready = self.0.readable().await?;
            match ready.get_inner().receive(&mut buffer, libc::MSG_DONTWAIT) {
                Ok(length) if messages(&buffer[..length]).any(|message| is_of_interest(&message)) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.errno == libc::EAGAIN => ready.clear_ready(),
                Err(error) if error.errno == libc::ENOBUFS => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Forgets what has been told so far, for somebody who is about to look at everything.
    pub fn drain(&self) -> Result<(), Error> {
        let mut buffer = vec![0; DATAGRAM_BYTES];
        loop {
            match self.0.get_ref().receive(&mut buffer, libc::MSG_DONTWAIT) {
                Ok(_) => {}
                Err(error) if error.errno == libc::EAGAIN => return Ok(()),
                Err(error) if error.errno == libc::ENOBUFS => {}
                Err(error) => return Err(error),
            }
        }
    }
}

const LINK_GROUPS: [u32; 5] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
];
/// Room for what comes while nobody reads.
const RECEIVE_BUFFER_BYTES: i32 = 1 << 20;
const DATAGRAM_BYTES: usize = 64 * 1024;
