//! Exec, attach and port forwarding, all without leaving this process: descriptors go to the supervisor, and bytes
//! flow between them and the container with nobody in between.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream as StdTcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use cri::{ExecStatus, PortTarget, StreamTarget, Streams, v1};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::container::Container;
use super::sandbox::Sandbox;
use super::terminal::Terminal;
use super::{Embedded, doing};
use crate::link::{Link, Session};
use crate::plan;
use crate::protocol::{Call, Stdio};
use crate::sys;

/// The most that is kept of each stream of an exec that nobody watches; probes and hooks write little.
const MAX_SYNC_BYTES: u64 = 16 << 20;
/// How many changes of a terminal's size may wait.
const MAX_RESIZES: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Both ends of the pipes for a process's standard streams.
#[derive(Default)]
struct Pipes {
    stdin: Option<(OwnedFd, OwnedFd)>,
    stdout: Option<(OwnedFd, OwnedFd)>,
    stderr: Option<(OwnedFd, OwnedFd)>,
}

impl Pipes {
    fn new(wanted: Stdio) -> io::Result<Self> {
        let pipe = |wanted: bool| -> io::Result<Option<(OwnedFd, OwnedFd)>> {
            let flags = rustix::pipe::PipeFlags::CLOEXEC;
            Ok(if wanted {
                Some(rustix::pipe::pipe_with(flags)?)
            } else {
                None
            })
        };
        Ok(Self {
            stdin: pipe(wanted.stdin)?,
            stdout: pipe(wanted.stdout)?,
            stderr: pipe(wanted.stderr)?,
        })
    }

    /// The process's ends, in the order the protocol has them.
    fn theirs(&self) -> Vec<BorrowedFd<'_>> {
        let reading = self.stdin.iter().map(|(read, _)| read.as_fd());
        reading
            .chain(
                [&self.stdout, &self.stderr]
                    .into_iter()
                    .flatten()
                    .map(|(_, write)| write.as_fd()),
            )
            .collect()
    }

    /// Our ends; the process's are closed, so that the end of a stream can be seen.
    fn ours(self) -> io::Result<(Option<pipe::Sender>, Option<pipe::Receiver>, Option<pipe::Receiver>)> {
        let receiver =
            |pipe: Option<(OwnedFd, OwnedFd)>| pipe.map(|(read, _)| pipe::Receiver::from_owned_fd(read)).transpose();
        let stdin = self
            .stdin
            .map(|(_, write)| pipe::Sender::from_owned_fd(write))
            .transpose()?;
        Ok((stdin, receiver(self.stdout)?, receiver(self.stderr)?))
    }
}

impl Embedded {
    fn running_link(&self, container: &Container) -> cri::Result<Arc<Link>> {
        if !container.is_running() {
            let id = &container.record.id;
            return Err(cri::Error::precondition(format!("container {id:?} is not running")));
        }
        self.sandbox(&container.record.sandbox_id)?.link()
    }

    pub(super) async fn exec_sync_in(&self, request: v1::ExecSyncRequest) -> cri::Result<v1::ExecSyncResponse> {
        let run = self.run_to_end(&request);
        match u64::try_from(request.timeout) {
            Ok(seconds) if seconds > 0 => {
                // Dropping the exec closes its connection, and that kills it.
                let limited = tokio::time::timeout(Duration::from_secs(seconds), run).await;
                limited.unwrap_or_else(|_| {
                    let command = request.cmd.join(" ");
                    let message = format!("command {command:?} timed out after {seconds}s");
                    Err(cri::Error::new(cri::Code::DeadlineExceeded, message))
                })
            }
            _ => run.await,
        }
    }

    async fn run_to_end(&self, request: &v1::ExecSyncRequest) -> cri::Result<v1::ExecSyncResponse> {
        let container = self.container(&request.container_id)?;
        let link = self.running_link(&container)?;
        let stdio = Stdio {
            stdin: false,
            stdout: true,
            stderr: true,
        };
        let pipes = Pipes::new(stdio).map_err(doing("making pipes"))?;
        let process = Box::new(plan::exec(&container.record.spec, &request.cmd, false)?);
        let call = Call::Exec {
            container: container.record.id.clone(),
            process,
            stdio,
        };
        let (_, mut session) = link.open(call, &pipes.theirs()).await?;
        let (_, stdout, stderr) = pipes.ours().map_err(doing("opening pipes"))?;
        let (mut no_resizes, output, errors) = (mpsc::channel(1).1, read_bounded(stdout), read_bounded(stderr));
        let output = tokio::spawn(output);
        let errors = tokio::spawn(errors);
        let exit_code = session.ended(&mut no_resizes).await?;
        // What the command left running in the background does not keep the answer waiting.
        let collect = |task: tokio::task::JoinHandle<Vec<u8>>| async move {
            let abort = task.abort_handle();
            let collected = tokio::time::timeout(Duration::from_millis(100), task).await;
            abort.abort();
            collected.ok().and_then(Result::ok).unwrap_or_default()
        };
        let (stdout, stderr) = tokio::join!(collect(output), collect(errors));
        Ok(v1::ExecSyncResponse {
            stdout,
            stderr,
            exit_code,
        })
    }

    pub(super) async fn open_exec_in(&self, request: v1::ExecRequest) -> cri::Result<StreamTarget> {
        let container = self.container(&request.container_id)?;
        let link = self.running_link(&container)?;
        let stdio = Stdio {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr && !request.tty,
        };
        let pipes = if request.tty {
            Ok(Pipes::default())
        } else {
            Pipes::new(stdio)
        };
        let pipes = pipes.map_err(doing("making pipes"))?;
        let process = Box::new(plan::exec(&container.record.spec, &request.cmd, request.tty)?);
        let call = Call::Exec {
            container: container.record.id.clone(),
            process,
            stdio,
        };
        let (_, session) = link.open(call, &pipes.theirs()).await?;
        let streams = match &session.terminal {
            Some(master) => {
                let master = master.try_clone().map_err(doing("opening the terminal"))?;
                terminal_streams(master, stdio, session)
            }
            None => pipe_streams(pipes, session),
        };
        Ok(StreamTarget::Native(streams.map_err(doing("opening the streams"))?))
    }

    pub(super) async fn open_attach_to(&self, request: v1::AttachRequest) -> cri::Result<StreamTarget> {
        let container = self.container(&request.container_id)?;
        let link = self.running_link(&container)?;
        let tty = container.record.spec.process.tty;
        let stdio = Stdio {
            stdin: request.stdin && container.record.spec.stdin,
            stdout: request.stdout,
            stderr: request.stderr && !tty,
        };
        let pipes = Pipes::new(stdio).map_err(doing("making pipes"))?;
        let call = Call::Attach {
            container: container.record.id.clone(),
            stdio,
        };
        let (_, session) = link.open(call, &pipes.theirs()).await?;
        Ok(StreamTarget::Native(
            pipe_streams(pipes, session).map_err(doing("opening the streams"))?,
        ))
    }

    pub(super) async fn open_port(&self, sandbox: &Sandbox, port: u16) -> cri::Result<PortTarget> {
        let pid = sandbox.running().map(|running| running.pause_pid);
        let pid = pid.ok_or_else(|| cri::Error::precondition("the sandbox is not ready"))?;
        let (sender, connected) = tokio::sync::oneshot::channel();
        // A thread of its own, because it changes its network namespace for good.
        let thread = std::thread::Builder::new().name("port-forward".into());
        let spawned = thread.spawn(move || drop(sender.send(connect_inside(pid, port))));
        spawned.map_err(doing("starting a thread"))?;
        let failed = |error: io::Error| {
            let id = &sandbox.record.id;
            cri::Error::internal(format!(
                "failed to connect to localhost:{port} inside sandbox {id:?}: {error}"
            ))
        };
        let stream = connected
            .await
            .map_err(|_| failed(io::ErrorKind::BrokenPipe.into()))?
            .map_err(failed)?;
        Ok(PortTarget::Native(Box::new(
            tokio::net::TcpStream::from_std(stream).map_err(failed)?,
        )))
    }
}

fn connect_inside(pid: i32, port: u16) -> io::Result<StdTcpStream> {
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net"))?;
    sys::setns(namespace.as_fd(), libc::CLONE_NEWNET)?;
    let connect = |address: SocketAddr| StdTcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
    let stream = connect((Ipv4Addr::LOCALHOST, port).into())
        .or_else(|error| connect((Ipv6Addr::LOCALHOST, port).into()).map_err(|_| error))?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Reads a stream to its end, of which it keeps a bounded beginning.
async fn read_bounded(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What was read before an error counts.
        let _ = (&mut stream).take(MAX_SYNC_BYTES).read_to_end(&mut bytes).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    bytes
}

fn pipe_streams(pipes: Pipes, session: Session) -> io::Result<Streams> {
    let (stdin, stdout, stderr) = pipes.ours()?;
    let (resize, exit) = exit_of(session);
    Ok(Streams {
        stdin: stdin.map(|stdin| Box::new(stdin) as cri::Writer),
        stdout: stdout.map(|stdout| Box::new(stdout) as cri::Reader),
        stderr: stderr.map(|stderr| Box::new(stderr) as cri::Reader),
        resize,
        exit,
    })
}

fn terminal_streams(master: OwnedFd, stdio: Stdio, session: Session) -> io::Result<Streams> {
    let terminal = Terminal::new(master)?;
    let (resize, exit) = exit_of(session);
    Ok(Streams {
        stdin: stdio.stdin.then(|| Box::new(terminal.clone()) as cri::Writer),
        stdout: stdio.stdout.then(|| Box::new(terminal) as cri::Reader),
        stderr: None,
        resize,
        exit,
    })
}

type ExitFuture = std::pin::Pin<Box<dyn Future<Output = cri::Result<ExecStatus>> + Send>>;

/// The end of a session as a future, which also carries out resizes. Dropping it closes the session.
fn exit_of(mut session: Session) -> (mpsc::Sender<cri::TerminalSize>, ExitFuture) {
    let (resize, mut sizes) = mpsc::channel(MAX_RESIZES);
    let exit = async move {
        let exit_code = session.ended(&mut sizes).await?;
        Ok(ExecStatus { exit_code })
    };
    (resize, Box::pin(exit))
}
