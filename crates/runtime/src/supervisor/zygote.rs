//! The zygote: the process that supervisors are forked from.
//!
//! Executing the whole binary for each pod would cost milliseconds, and megabytes for what the loader writes into it. A
//! fork of a process that is ready shares all of that. The zygote does nothing else, and ends with its Karve; the
//! supervisors do not.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::socket::{self, Received};
use super::{Supervisor, complain, report};
use crate::cgroup::{DefaultProgram, Layout};
use crate::seccomp::Filters;
use crate::sys::{self, Cloned};

/// A request is the path of a supervisor's directory.
const MAX_REQUEST_BYTES: usize = 4096;

/// A request to fork a supervisor, and what it is given.
pub struct SupervisorRequest {
    pub dir: PathBuf,
    /// The first control connection.
    pub control: OwnedFd,
}

/// What is the same for all supervisors, and made once.
pub struct Prepared {
    pub layout: Layout,
    pub filters: Filters,
    pub device_program: DefaultProgram,
}

impl Prepared {
    fn new() -> io::Result<Self> {
        let layout = Layout::detect()?;
        Ok(Self {
            device_program: DefaultProgram::for_layout(&layout),
            filters: Filters::with_default(),
            layout,
        })
    }
}

/// Forks a supervisor for each request, until Karve closes the connection.
pub fn run(requests: OwnedFd) -> io::Result<()> {
    let prepared = Prepared::new()?;
    // Signals for Karve's session are Karve's; ended supervisors need no one to collect them.
    sys::ignore_signals(&[libc::SIGCHLD, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]);
    sys::set_name(c"karve-zygote")?;
    while let Some(request) = next(&requests)? {
        // SAFETY: this process has a single thread.
        match unsafe { sys::clone_process(0, None) } {
            Ok(Cloned::Child) => {
                drop(requests);
                sys::exit_now(i32::from(report(supervise(request, prepared)).is_err()));
            }
            Ok(Cloned::Parent { .. }) => {}
            // Karve sees the connection of the supervisor that was not forked close.
            Err(error) => complain(format_args!("forking a pod's supervisor: {error}")),
        }
    }
    Ok(())
}

fn supervise(request: SupervisorRequest, prepared: Prepared) -> io::Result<()> {
    sys::reset_signals();
    Supervisor::new(&request.dir, request.control, prepared)?.run()
}

/// Waits for the next request. None when there will be no more.
fn next(requests: &OwnedFd) -> io::Result<Option<SupervisorRequest>> {
    let mut buffer = [0; MAX_REQUEST_BYTES];
    loop {
        match socket::receive(requests, &mut buffer)? {
            Received::Closed => return Ok(None),
            Received::Nothing => {}
            Received::Bytes { length, fds } => {
                // Anything else is not from a Karve that knows us; dropping the descriptors tells it.
                if let Ok([control]) = <[OwnedFd; 1]>::try_from(fds) {
                    let dir = PathBuf::from(OsString::from_vec(buffer[..length].to_vec()));
                    return Ok(Some(SupervisorRequest { dir, control }));
                }
            }
        }
    }
}
