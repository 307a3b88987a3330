//! How Karve and a pod's supervisor talk: JSON messages after a four-byte length, over a Unix socket.
//!
//! The connection a supervisor is born with, and any later one that begins with [`Call::Hello`], is a control
//! connection: calls are answered by id, in any order, and events arrive between the answers. [`Call::Exec`] and
//! [`Call::Attach`] each take a connection of their own, carry descriptors, and last as long as what they opened.
//!
//! A supervisor outlives the Karve that started it. A newer Karve must keep speaking [`VERSION`]s it has shipped;
//! messages only gain fields, with a default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::spec::{ContainerSpec, Exit, Process, SandboxSpec};

pub const VERSION: u32 = 1;

/// The largest message either side accepts. A container's environment may come from ConfigMaps of a megabyte.
pub const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// The length that precedes every message, big-endian.
pub const LENGTH_BYTES: usize = 4;

/// The socket's name in a supervisor's directory.
pub const SOCKET_NAME: &str = "sock";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub call: Call,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Call {
    /// Opens a control connection; answered with [`Answer::State`].
    Hello { version: u32 },
    /// Creates the pod's namespaces; once per supervisor.
    CreateSandbox(SandboxSpec),
    /// Starts a container; answered when its program has been executed.
    Start(Box<ContainerSpec>),
    /// Sends a signal to a container's first process, or to all of its processes. Succeeds when it has ended.
    Signal { container: String, signal: i32, all: bool },
    /// Closes a container's log and opens it anew at the same path.
    ReopenLog { container: String },
    /// Drops what is remembered of an ended container.
    Forget { container: String },
    /// Kills everything and ends the supervisor; answered before it goes.
    Stop,
    /// Runs a process in a container. Carries the process's ends of stdin, stdout and stderr as asked for, in that
    /// order; with a terminal it carries none and the answer carries the terminal's master side.
    ///
    /// Answered with [`Answer::Started`], later followed by [`Ended::Process`]. Closing the connection kills.
    Exec {
        container: String,
        process: Box<Process>,
        stdio: Stdio,
    },
    /// Attaches to a container's streams. Carries the reading end of stdin and the writing ends of stdout and stderr
    /// as asked for. Closing the connection detaches; the supervisor closes it when the container has ended.
    Attach { container: String, stdio: Stdio },
    /// Sets the size of an attached container's terminal.
    Resize { columns: u16, rows: u16 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stdio {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

impl Stdio {
    pub fn count(self) -> usize {
        [self.stdin, self.stdout, self.stderr]
            .into_iter()
            .filter(|wanted| *wanted)
            .count()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    Answer { id: u64, result: Result<Answer, Failure> },
    Ended(Ended),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    Done,
    State(State),
    Sandbox { pause_pid: i32 },
    Started { pid: i32, at_ns: i64 },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ended {
    Container {
        container: String,
        exit: Exit,
    },
    /// To the connection of an exec or attach: the process it stands for has ended.
    Process {
        code: i32,
    },
    /// The pod's namespaces are gone without having been asked to; its containers are being killed.
    Sandbox,
}

/// What a supervisor looks after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub version: u32,
    /// None before [`Call::CreateSandbox`].
    pub pause_pid: Option<i32>,
    pub containers: BTreeMap<String, ContainerState>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ContainerState {
    Starting,
    Running { pid: i32, started_at_ns: i64 },
    Ended(Exit),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    NotFound,
    /// The sandbox or container is not in a state that allows the call.
    Precondition,
    /// The container's program could not be executed: the container has failed, the runtime has not.
    Start,
    Internal,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// A message too large for the other side, or one that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a message of {0} bytes is larger than the {MAX_MESSAGE_BYTES} allowed")]
    TooLarge(usize),
    #[error("invalid message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Encodes a message with its length.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - LENGTH_BYTES;
    if length > MAX_MESSAGE_BYTES {
        return Err(FrameError::TooLarge(length));
    }
    bytes[..LENGTH_BYTES].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(bytes)
}

/// Takes the first whole message from the front of the bytes received so far.
pub fn decode<T: for<'de> Deserialize<'de>>(received: &mut Vec<u8>) -> Result<Option<T>, FrameError> {
    let Some(length) = received.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(FrameError::TooLarge(length));
    }
    let Some(body) = received.get(LENGTH_BYTES..LENGTH_BYTES + length) else {
        return Ok(None);
    };
    let message = serde_json::from_slice(body)?;
    received.drain(..LENGTH_BYTES + length);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_any_splitting() {
        let sent = [
            Request {
                id: 1,
                call: Call::Hello { version: VERSION },
            },
            Request {
                id: 2,
                call: Call::Signal {
                    container: "c".into(),
                    signal: 15,
                    all: false,
                },
            },
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(|request| encode(request).unwrap()).collect();
        let (mut received, mut decoded) = (Vec::new(), Vec::new());
        for byte in bytes {
            received.push(byte);
            while let Some(request) = decode::<Request>(&mut received).unwrap() {
                decoded.push(request);
            }
        }
        assert_eq!(decoded, sent);
        assert!(received.is_empty());
    }

    #[test]
    fn an_absurd_length_is_refused_before_it_is_awaited() {
        let mut received = u32::MAX.to_be_bytes().to_vec();
        assert!(matches!(decode::<Request>(&mut received), Err(FrameError::TooLarge(_))));
    }
}
