//! Streams: what exec, attach, port forwarding and events hand to the kubelet.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::{Result, v1};

pub type Reader = Box<dyn AsyncRead + Send + Unpin>;
pub type Writer = Box<dyn AsyncWrite + Send + Unpin>;
/// Container events from the moment of subscription on. An error or the end means: subscribe again and list.
pub type EventStream = Pin<Box<dyn Stream<Item = Result<v1::ContainerEventResponse>> + Send>>;

/// A connection in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Where the bytes of an exec or attach are.
#[derive(Debug)]
pub enum StreamTarget {
    /// At the runtime's streaming server: the kubelet proxies the client's connection to this URL.
    Url(String),
    /// In this process.
    Native(Streams),
}

/// Where the bytes of a port forward are.
pub enum PortTarget {
    Url(String),
    Native(Box<dyn Duplex>),
}

/// The ends of a process's standard streams.
pub struct Streams {
    /// Dropping it, or shutting it down, is the end of input. None unless stdin was asked for.
    pub stdin: Option<Writer>,
    /// None unless stdout was asked for.
    pub stdout: Option<Reader>,
    /// None unless stderr was asked for; a terminal has none, its output all arrives at stdout.
    pub stderr: Option<Reader>,
    /// Sizes for the terminal; without one they are ignored.
    pub resize: mpsc::Sender<TerminalSize>,
    /// Resolves when the process has ended. Output may still be unread then. Dropping it before that
    /// kills an exec, and detaches from a container.
    pub exit: Pin<Box<dyn Future<Output = Result<ExecStatus>> + Send>>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecStatus {
    /// The exit code, or 128 plus the signal's number.
    pub exit_code: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PortTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.debug_tuple("Url").field(url).finish(),
            Self::Native(_) => f.write_str("Native"),
        }
    }
}
