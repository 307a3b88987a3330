//! The standard streams of a container's processes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, makedev};

use super::child::{Stage, StartError};
use super::{dev, socket};
use crate::sys;

/// The standard streams a child is given; those that are absent are `/dev/null`.
#[derive(Default)]
pub struct ChildStdio {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

impl ChildStdio {
    /// Makes the streams descriptors 0 to 2 of this process, while it still has the host's `/dev`: what a container has
    /// put at `/dev/null` is its own affair.
    ///
    /// Pipes become `owner`'s, because a program that opens `/dev/stdout` is asked for permission like for any file.
    pub fn install(self, owner: Option<u32>) -> io::Result<()> {
        let pipes = [&self.stdin, &self.stdout, &self.stderr].into_iter().flatten();
        for pipe in pipes.filter(|pipe| is_pipe(pipe)) {
            rustix::fs::fchown(pipe, owner.map(rustix::fs::Uid::from_raw), None)?;
        }
        let null = open_null()?;
        // One of them may be behind a number that another is to have, so all get out of the way first.
        let aside = |stream: Option<OwnedFd>| match stream {
            Some(stream) => rustix::io::fcntl_dupfd_cloexec(&stream, 3),
            None => rustix::io::fcntl_dupfd_cloexec(&null, 3),
        };
        let streams = [aside(self.stdin)?, aside(self.stdout)?, aside(self.stderr)?];
        (0..)
            .zip(streams)
            .try_for_each(|(number, stream)| sys::dup_to(&stream, number))
    }
}

fn is_pipe(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

fn open_null() -> io::Result<OwnedFd> {
    let null = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")?
        .into();
    match is_null(&null)? {
        true => Ok(null),
        false => Err(io::Error::other("/dev/null is not the null device")),
    }
}

/// Whether a descriptor refers to the null device, by whatever name.
pub fn is_null(fd: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::fstat(fd)?;
    let character = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(character && stat.st_rdev == makedev(1, 3))
}

/// Makes a new terminal of the container this process is in its standard streams, and hands its master side over.
pub fn connect_terminal(channel: &OwnedFd) -> Result<(), StartError> {
    let (master, slave) = dev::open_terminal().stage("opening a terminal")?;
    socket::send_with_fds(channel, b"terminal", &[master.as_fd()]).stage("handing the terminal over")?;
    (0..3)
        .try_for_each(|number| sys::dup_to(&slave, number))
        .stage("connecting the terminal")?;
    sys::take_controlling_terminal().stage("taking the terminal")
}
