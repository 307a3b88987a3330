//! The one link that every machine has.

use std::io;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use rustix::net::{AddressFamily, SocketType, socket};

pub fn loopback_up() -> Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: all fields of the request are numbers, for which zeros are good values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the kernel reads the request, which lives until it returns.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCSIFFLAGS, &request) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("cannot bring up lo"),
    }
}
