//! A request that the kernel refused, or that could not be carried to it.

use std::fmt;
use std::io;

/// An error number with the kernel's own explanation where it gave one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// An `E…` number, always positive.
    pub errno: i32,
    /// The kernel's words (its extended acknowledgement); often empty.
    pub detail: String,
}

impl Error {
    pub fn new(errno: i32) -> Error {
        Error {
            errno,
            detail: String::new(),
        }
    }

    /// The last error of a system call on this thread.
    pub(crate) fn last() -> Error {
        io::Error::last_os_error().into()
    }

    /// The thing asked for is not there (any more).
    pub fn is_absent(&self) -> bool {
        matches!(
            self.errno,
            libc::ENOENT | libc::ENODEV | libc::ESRCH | libc::EADDRNOTAVAIL
        )
    }

    pub fn is_existing(&self) -> bool {
        self.errno == libc::EEXIST
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(errno) => Error::new(errno),
            None => Error {
                errno: libc::EIO,
                detail: error.to_string(),
            },
        }
    }
}
