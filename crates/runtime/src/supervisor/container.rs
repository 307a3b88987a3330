//! A running container at its supervisor: its output, its input, and those attached to them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::child::Child;
use super::log::{Cutter, Log, Stream, Timestamp};
use super::poll::{Poll, Token};
use super::stdio::ChildStdio;
use crate::protocol::{ContainerState, Stdio};
use crate::spec::ContainerSpec;

/// How much output may wait for someone attached who does not read; then they are detached from that stream.
const MAX_SINK_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 32 << 10;
/// How often one stream is read before the others get their turn.
const MAX_READS: usize = 8;
/// How often one stream is read after its container has ended; a pipe never holds more.
const MAX_DRAIN_READS: usize = 64;
/// How long a container's output waits for its full log to be rotated. A kubelet that takes longer is not there, and the
/// container must go on without it.
const ROTATION_PATIENCE: Duration = Duration::from_secs(5);

pub struct Container {
    pub spec: ContainerSpec,
    pub child: Child,
    pub state: ContainerState,
    /// Why the program could not be executed.
    pub failure: String,
    log: Option<Log>,
    rotation: Rotation,
    outputs: Vec<Output>,
    input: Option<Input>,
    /// The master side, where the container has a terminal.
    pub terminal: Option<OwnedFd>,
    attached: BTreeMap<Token, Attachment>,
}

/// Whether somebody rotates the log when it is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rotation {
    Expected,
    /// It is full, and nothing more is read of the container's output until this moment.
    AwaitedUntil(Instant),
    /// Nobody came.
    Missing,
}

/// What a read of an output found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pumped {
    Piece,
    Nothing,
    End,
}

/// One stream out of the container.
struct Output {
    fd: OwnedFd,
    token: Token,
    stream: Stream,
    cutter: Cutter,
}

/// The container's standard input.
struct Input {
    fd: OwnedFd,
    token: Token,
    /// What the container has not taken yet. While there is any, nothing more is read from those attached.
    pending: Vec<u8>,
}

/// The streams of one who attached, by the token of their connection.
struct Attachment {
    stdin: Option<(OwnedFd, Token)>,
    sinks: Vec<Sink>,
}

struct Sink {
    fd: OwnedFd,
    token: Token,
    stream: Stream,
    pending: Vec<u8>,
}

/// The supervisor's ends of a container's standard streams.
#[derive(Default)]
pub struct Ends {
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

/// The pipes for a container's standard streams. A terminal is made by the container itself.
pub fn pipes(spec: &ContainerSpec) -> io::Result<(ChildStdio, Ends)> {
    let (mut theirs, mut ours) = (ChildStdio::default(), Ends::default());
    if spec.process.tty {
        return Ok((theirs, ours));
    }
    if spec.stdin {
        let (read, write) = pipe()?;
        (theirs.stdin, ours.stdin) = (Some(read), Some(write));
    }
    let (read, write) = pipe()?;
    (ours.stdout, theirs.stdout) = (Some(read), Some(write));
    let (read, write) = pipe()?;
    (ours.stderr, theirs.stderr) = (Some(read), Some(write));
    Ok((theirs, ours))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

impl Container {
    pub fn new(spec: ContainerSpec, child: Child, log: Option<Log>, ends: Ends, poll: &mut Poll) -> io::Result<Self> {
        let mut container = Self {
            spec,
            child,
            state: ContainerState::Starting,
            failure: String::new(),
            log,
            rotation: Rotation::Expected,
            outputs: Vec::new(),
            input: None,
            terminal: None,
            attached: BTreeMap::new(),
        };
        let outputs = [(ends.stdout, Stream::Stdout), (ends.stderr, Stream::Stderr)];
        for (fd, stream) in outputs.into_iter().filter_map(|(fd, stream)| Some((fd?, stream))) {
            container.add_output(fd, stream, poll)?;
        }
        if let Some(fd) = ends.stdin {
            container.set_input(fd, poll)?;
        }
        Ok(container)
    }

    /// Takes the terminal the container has made: its output is the container's output, its input the input.
    pub fn set_terminal(&mut self, master: OwnedFd, poll: &mut Poll) -> io::Result<()> {
        self.add_output(master.try_clone()?, Stream::Stdout, poll)?;
        if self.spec.stdin {
            self.set_input(master.try_clone()?, poll)?;
        }
        self.terminal = Some(master);
        Ok(())
    }

    fn add_output(&mut self, fd: OwnedFd, stream: Stream, poll: &mut Poll) -> io::Result<()> {
        set_nonblocking(&fd)?;
        let token = poll.add(&fd, EventFlags::IN)?;
        self.outputs.push(Output {
            fd,
            token,
            stream,
            cutter: Cutter::new(stream),
        });
        Ok(())
    }

    fn set_input(&mut self, fd: OwnedFd, poll: &mut Poll) -> io::Result<()> {
        set_nonblocking(&fd)?;
        let token = poll.add(&fd, EventFlags::empty())?;
        self.input = Some(Input {
            fd,
            token,
            pending: Vec::new(),
        });
        Ok(())
    }

    /// Whether a token is one of this container's descriptors.
    pub fn owns(&self, token: Token) -> bool {
        self.outputs.iter().any(|output| output.token == token)
            || self.input.as_ref().is_some_and(|input| input.token == token)
            || self.attached.values().any(|attachment| attachment.owns(token))
    }

    /// Does what a ready descriptor allows.
    pub fn ready(&mut self, token: Token, now: Timestamp, poll: &Poll) {
        if let Some(index) = self.outputs.iter().position(|output| output.token == token) {
            for _ in 0..MAX_READS {
                if self.waits_until().is_some() || self.pump_output(index, now, poll) != Pumped::Piece {
                    break;
                }
            }
        } else if self.input.as_ref().is_some_and(|input| input.token == token) {
            self.flush_input(poll);
        } else {
            self.serve_attached(token, poll);
        }
    }

    /// Copies one piece of output to the log and to those attached.
    fn pump_output(&mut self, index: usize, now: Timestamp, poll: &Poll) -> Pumped {
        let mut buffer = [0; READ_BYTES];
        let output = &mut self.outputs[index];
        let piece = match rustix::io::read(&output.fd, &mut buffer) {
            Ok(length) => &buffer[..length],
            Err(Errno::AGAIN | Errno::INTR) => return Pumped::Nothing,
            // A terminal whose last user has gone says so with an error.
            Err(_) => &[],
        };
        if piece.is_empty() {
            self.end_output(index, now, poll);
            return Pumped::End;
        }
        let mut lines = Vec::new();
        output.cutter.cut(piece, now, &mut lines);
        write_log(&mut self.log, &lines);
        for attachment in self.attached.values_mut() {
            attachment.deliver(output.stream, piece, poll);
        }
        self.wait_if_full(poll);
        Pumped::Piece
    }

    /// Stops reading output for which the log has no room. The container then waits for its own writes.
    fn wait_if_full(&mut self, poll: &Poll) {
        let is_full = self.log.as_ref().is_some_and(Log::is_full);
        if is_full && self.rotation == Rotation::Expected {
            self.rotation = Rotation::AwaitedUntil(Instant::now() + ROTATION_PATIENCE);
            self.await_outputs(EventFlags::empty(), poll);
        }
    }

    fn await_outputs(&self, interest: EventFlags, poll: &Poll) {
        for output in &self.outputs {
            poll.change(&output.fd, output.token, interest);
        }
    }

    /// Until when its output waits for the log to be rotated, if it does.
    pub fn waits_until(&self) -> Option<Instant> {
        match self.rotation {
            Rotation::AwaitedUntil(moment) => Some(moment),
            Rotation::Expected | Rotation::Missing => None,
        }
    }

    /// Goes on without a rotation that did not come in time.
    pub fn stop_waiting(&mut self, now: Instant, poll: &Poll) {
        if self.waits_until().is_some_and(|until| until <= now) {
            self.rotation = Rotation::Missing;
            self.await_outputs(EventFlags::IN, poll);
        }
    }

    fn end_output(&mut self, index: usize, now: Timestamp, poll: &Poll) {
        let mut output = self.outputs.remove(index);
        let mut lines = Vec::new();
        output.cutter.finish(now, &mut lines);
        write_log(&mut self.log, &lines);
        poll.remove(&output.fd);
    }

    /// Reads the output that remains after the container has ended, and closes everything.
    pub fn drain(&mut self, now: Timestamp, poll: &Poll) {
        while !self.outputs.is_empty() {
            let last = (0..MAX_DRAIN_READS)
                .map(|_| self.pump_output(0, now, poll))
                .find(|p| *p != Pumped::Piece);
            if last != Some(Pumped::End) {
                // Someone outside the container holds the stream open; what it writes from now on is nobody's.
                self.end_output(0, now, poll);
            }
        }
        self.close_input(poll);
        self.terminal = None;
        self.log = None;
        self.rotation = Rotation::Missing;
        for (_, attachment) in std::mem::take(&mut self.attached) {
            attachment.close(poll);
        }
    }

    pub fn reopen_log(&mut self, poll: &Poll) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), Log::reopen)?;
        self.rotation = Rotation::Expected;
        self.await_outputs(EventFlags::IN, poll);
        Ok(())
    }

    /// Connects someone to the streams they asked for, in the order of `fds`.
    pub fn attach(
        &mut self,
        connection: Token,
        stdio: Stdio,
        fds: impl IntoIterator<Item = OwnedFd>,
        poll: &mut Poll,
    ) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let mut attachment = Attachment {
            stdin: None,
            sinks: Vec::new(),
        };
        if stdio.stdin
            && let Some(fd) = fds.next()
        {
            set_nonblocking(&fd)?;
            // While earlier input is still waiting, flushing it is what makes this readable.
            let idle = self.input.as_ref().is_none_or(|input| input.pending.is_empty());
            let token = poll.add(&fd, if idle { EventFlags::IN } else { EventFlags::empty() })?;
            attachment.stdin = Some((fd, token));
        }
        for (wanted, stream) in [(stdio.stdout, Stream::Stdout), (stdio.stderr, Stream::Stderr)] {
            if wanted && let Some(fd) = fds.next() {
                set_nonblocking(&fd)?;
                let token = poll.add(&fd, EventFlags::empty())?;
                attachment.sinks.push(Sink {
                    fd,
                    token,
                    stream,
                    pending: Vec::new(),
                });
            }
        }
        self.attached.insert(connection, attachment);
        Ok(())
    }

    pub fn detach(&mut self, connection: Token, poll: &Poll) {
        if let Some(attachment) = self.attached.remove(&connection) {
            attachment.close(poll);
        }
    }

    fn serve_attached(&mut self, token: Token, poll: &Poll) {
        let Some(attachment) = self.attached.values_mut().find(|attachment| attachment.owns(token)) else {
            return;
        };
        if attachment.stdin.as_ref().is_some_and(|(_, stdin)| *stdin == token) {
            self.read_input(token, poll);
        } else {
            attachment.flush(token, poll);
        }
    }

    /// Reads from one who is attached and gives it to the container.
    fn read_input(&mut self, token: Token, poll: &Poll) {
        let mut buffer = [0; READ_BYTES];
        let Some(attachment) = self.attached.values_mut().find(|attachment| attachment.owns(token)) else {
            return;
        };
        let Some((fd, _)) = &attachment.stdin else { return };
        match rustix::io::read(fd, &mut buffer) {
            Ok(length) if length > 0 => {
                if let Some(input) = &mut self.input {
                    input.pending.extend_from_slice(&buffer[..length]);
                    self.flush_input(poll);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The end, or an error that will not go away.
            _ => {
                poll.remove(fd);
                attachment.stdin = None;
                if self.spec.stdin_once {
                    self.close_input(poll);
                }
            }
        }
    }

    fn flush_input(&mut self, poll: &Poll) {
        let Some(input) = &mut self.input else { return };
        while !input.pending.is_empty() {
            match rustix::io::write(&input.fd, &input.pending) {
                Ok(written) => drop(input.pending.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.close_input(poll);
                    return;
                }
            }
        }
        let full = !input.pending.is_empty();
        poll.change(
            &input.fd,
            input.token,
            if full { EventFlags::OUT } else { EventFlags::empty() },
        );
        for (fd, token) in self
            .attached
            .values()
            .filter_map(|attachment| attachment.stdin.as_ref())
        {
            poll.change(fd, *token, if full { EventFlags::empty() } else { EventFlags::IN });
        }
    }

    fn close_input(&mut self, poll: &Poll) {
        if let Some(input) = self.input.take() {
            poll.remove(&input.fd);
        }
    }
}

impl Attachment {
    fn owns(&self, token: Token) -> bool {
        self.stdin.as_ref().is_some_and(|(_, stdin)| *stdin == token) || self.sinks.iter().any(|s| s.token == token)
    }

    fn deliver(&mut self, stream: Stream, bytes: &[u8], poll: &Poll) {
        self.sinks
            .retain_mut(|sink| sink.stream != stream || sink.deliver(bytes, poll));
    }

    fn flush(&mut self, token: Token, poll: &Poll) {
        self.sinks.retain_mut(|sink| sink.token != token || sink.flush(poll));
    }

    fn close(self, poll: &Poll) {
        if let Some((fd, _)) = self.stdin {
            poll.remove(fd);
        }
        self.sinks.into_iter().for_each(|sink| poll.remove(sink.fd));
    }
}

impl Sink {
    /// False when the reader has gone or is too slow.
    fn deliver(&mut self, bytes: &[u8], poll: &Poll) -> bool {
        self.pending.extend_from_slice(bytes);
        self.flush(poll) && self.pending.len() <= MAX_SINK_BYTES || self.give_up(poll)
    }

    fn flush(&mut self, poll: &Poll) -> bool {
        while !self.pending.is_empty() {
            match rustix::io::write(&self.fd, &self.pending) {
                Ok(written) => drop(self.pending.drain(..written)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return self.give_up(poll),
            }
        }
        let waiting = !self.pending.is_empty();
        poll.change(
            &self.fd,
            self.token,
            if waiting { EventFlags::OUT } else { EventFlags::empty() },
        );
        true
    }

    fn give_up(&self, poll: &Poll) -> bool {
        poll.remove(&self.fd);
        false
    }
}

/// A full disk costs a container its log, not its life.
fn write_log(log: &mut Option<Log>, lines: &[u8]) {
    if let Some(log) = log
        && !lines.is_empty()
    {
        let _ = log.write(lines);
    }
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}
