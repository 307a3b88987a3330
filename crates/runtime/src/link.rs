//! Karve's side of the connection to a pod's supervisor.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::protocol::{self, Answer, Call, Ended, Failure, FrameError, Message, Request, SOCKET_NAME, VERSION};
use crate::supervisor::{self, Received};
use crate::zygote::Zygote;

/// How long a supervisor may take for what it does at once. Those are milliseconds; this is for a machine that swaps.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 16 << 10;
/// How many calls may wait to be sent.
const MAX_OUTGOING: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("failed to start the pod's supervisor: {0}")]
    Spawn(io::Error),
    #[error("failed to connect to the pod's supervisor: {0}")]
    Io(#[from] io::Error),
    #[error("the pod's supervisor has ended")]
    Ended,
    #[error("the pod's supervisor did not answer in {CALL_TIMEOUT:?}")]
    Timeout,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the pod's supervisor answered another request than it was sent")]
    Unexpected,
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// What a supervisor reports: an event, or that it has gone.
pub enum Report {
    Ended(Ended),
    Gone,
}

type Pending = Mutex<HashMap<u64, oneshot::Sender<Result<Answer, Failure>>>>;

/// A control connection.
pub struct Link {
    dir: PathBuf,
    /// Whole messages for the task that writes: who asks may give up at any moment, a message must not.
    outgoing: mpsc::Sender<Vec<u8>>,
    pending: Arc<Pending>,
    next: AtomicU64,
    reader: JoinHandle<()>,
    writer: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}

impl Link {
    /// Starts a supervisor. Its directory must exist and be empty.
    pub fn spawn(zygote: &Zygote, dir: &Path, report: impl Fn(Report) + Send + 'static) -> Result<Self, LinkError> {
        let (ours, theirs) = StdUnixStream::pair()?;
        zygote.fork_supervisor(dir, &theirs.into()).map_err(LinkError::Spawn)?;
        ours.set_nonblocking(true)?;
        Ok(Self::over(UnixStream::from_std(ours)?, dir, report))
    }

    /// Connects to a supervisor that was started earlier.
    pub async fn connect(dir: &Path, report: impl Fn(Report) + Send + 'static) -> Result<Self, LinkError> {
        Ok(Self::over(dial(dir).await?, dir, report))
    }

    fn over(socket: UnixStream, dir: &Path, report: impl Fn(Report) + Send + 'static) -> Self {
        let socket = Arc::new(socket);
        let pending = Arc::new(Pending::default());
        let (outgoing, messages) = mpsc::channel(MAX_OUTGOING);
        let writer = tokio::spawn(write(socket.clone(), messages));
        let reader = tokio::spawn(read(socket, pending.clone(), report));
        Self {
            dir: dir.to_owned(),
            outgoing,
            pending,
            next: AtomicU64::new(1),
            reader,
            writer,
        }
    }

    pub async fn hello(&self) -> Result<protocol::State, LinkError> {
        match self.call(Call::Hello { version: VERSION }).await? {
            Answer::State(state) => Ok(state),
            _ => Err(LinkError::Unexpected),
        }
    }

    /// Asks the supervisor for something and waits for its answer.
    pub async fn call(&self, call: Call) -> Result<Answer, LinkError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes = protocol::encode(&Request { id, call })?;
        let (sender, answer) = oneshot::channel();
        self.pending.lock().insert(id, sender);
        if self.outgoing.send(bytes).await.is_err() {
            self.pending.lock().remove(&id);
            return Err(LinkError::Ended);
        }
        match tokio::time::timeout(CALL_TIMEOUT, answer).await {
            Ok(Ok(result)) => Ok(result?),
            Ok(Err(_)) => Err(LinkError::Ended),
            Err(_) => {
                self.pending.lock().remove(&id);
                Err(LinkError::Timeout)
            }
        }
    }

    /// Whether the supervisor has gone.
    pub fn is_closed(&self) -> bool {
        self.reader.is_finished()
    }

    /// Opens an exec or attach on a connection of its own.
    pub async fn open(&self, call: Call, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Session), LinkError> {
        let mut session = Session {
            socket: dial(&self.dir).await?,
            received: Vec::new(),
            terminal: None,
        };
        let bytes = protocol::encode(&Request { id: 1, call })?;
        send(&session.socket, &bytes, fds).await?;
        match tokio::time::timeout(CALL_TIMEOUT, session.next())
            .await
            .map_err(|_| LinkError::Timeout)??
        {
            Some(Message::Answer { result, .. }) => Ok((result?, session)),
            Some(Message::Ended(_)) => Err(LinkError::Unexpected),
            None => Err(LinkError::Ended),
        }
    }
}

/// The connection of one exec or attach.
pub struct Session {
    socket: UnixStream,
    received: Vec<u8>,
    /// The master side of the exec's terminal, where it has one.
    pub terminal: Option<OwnedFd>,
}

impl Session {
    /// Waits for the end of the process, setting the terminal's size as it is told to meanwhile.
    pub async fn ended(&mut self, resize: &mut mpsc::Receiver<cri::TerminalSize>) -> Result<i32, LinkError> {
        let mut resizable = true;
        loop {
            tokio::select! {
                size = resize.recv(), if resizable => match size {
                    Some(size) => self.resize(size).await?,
                    None => resizable = false,
                },
                message = self.next() => match message? {
                    Some(Message::Ended(Ended::Process { code })) => return Ok(code),
                    Some(_) => {}
                    None => return Err(LinkError::Ended),
                },
            }
        }
    }

    async fn resize(&self, size: cri::TerminalSize) -> Result<(), LinkError> {
        if let Some(terminal) = &self.terminal {
            return Ok(crate::sys::set_terminal_size(
                terminal.as_fd(),
                size.columns,
                size.rows,
            )?);
        }
        let call = Call::Resize {
            columns: size.columns,
            rows: size.rows,
        };
        send(&self.socket, &protocol::encode(&Request { id: 2, call })?, &[]).await
    }

    async fn next(&mut self) -> Result<Option<Message>, LinkError> {
        next_message(&self.socket, &mut self.received, &mut self.terminal).await
    }
}

async fn write(socket: Arc<UnixStream>, mut messages: mpsc::Receiver<Vec<u8>>) {
    while let Some(message) = messages.recv().await {
        if send(&socket, &message, &[]).await.is_err() {
            return;
        }
    }
}

async fn read(socket: Arc<UnixStream>, pending: Arc<Pending>, report: impl Fn(Report)) {
    let mut received = Vec::new();
    loop {
        match next_message(&socket, &mut received, &mut None).await {
            Ok(Some(Message::Answer { id, result })) => {
                if let Some(waiting) = pending.lock().remove(&id) {
                    // Who asked may have given up.
                    let _ = waiting.send(result);
                }
            }
            Ok(Some(Message::Ended(event))) => report(Report::Ended(event)),
            Ok(None) | Err(_) => break,
        }
    }
    pending.lock().clear();
    report(Report::Gone);
}

/// Reads until there is a whole message. None at the end. Safe to drop and call again.
async fn next_message(
    socket: &UnixStream,
    received: &mut Vec<u8>,
    descriptor: &mut Option<OwnedFd>,
) -> Result<Option<Message>, LinkError> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        if let Some(message) = protocol::decode(received)? {
            return Ok(Some(message));
        }
        socket.readable().await?;
        let result = socket.try_io(Interest::READABLE, || match supervisor::receive(socket, &mut buffer)? {
            Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            other => Ok(other),
        });
        match result {
            Ok(Received::Bytes { length, mut fds }) => {
                received.extend_from_slice(&buffer[..length]);
                *descriptor = fds.pop().or(descriptor.take());
            }
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends all bytes, with descriptors beside the first.
async fn send(socket: &UnixStream, mut bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
    let mut fds = fds;
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_io(Interest::WRITABLE, || supervisor::send_with_fds(socket, bytes, fds)) {
            Ok(sent) => {
                bytes = &bytes[sent..];
                fds = &[];
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Connects by way of the directory's descriptor, because a socket's path may not be longer than 107 bytes.
async fn dial(dir: &Path) -> io::Result<UnixStream> {
    let dir = std::fs::File::open(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET_NAME}", dir.as_raw_fd())).await
}
