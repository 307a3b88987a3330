//! The supervisor of one pod: a single-threaded process that outlives the Karve that started it.
//!
//! It is forked from the `zygote`, stays in the host's namespaces and outside the pod's cgroup. `pause` makes the
//! pod's namespaces, `child` starts processes in them, `root`, `mask` and `dev` build what they see, `credentials`
//! limits what they may do, `program` is the last step; `container` carries their output to those attached
//! and, through `log`, to disk. This file is the loop that waits for all of it, `calls` what Karve may ask for.
//!
//! Nothing here may start a thread: every child is a fork that goes on in this program's memory.

mod calls;
mod child;
mod connection;
mod container;
mod credentials;
mod dev;
mod log;
mod mask;
pub(crate) mod mounts;
mod pause;
mod poll;
mod program;
mod root;
mod socket;
mod stdio;
mod user_namespace;
mod zygote;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use rustix::event::epoll::EventFlags;

use crate::cgroup::{DefaultProgram, Layout};
use crate::protocol::{Answer, ContainerState, Ended, Failure, FailureKind, SOCKET_NAME};
use crate::seccomp::Filters;
use crate::spec::{Exit, PidNamespace, SandboxSpec};
use crate::sys;
use child::{Child, Report};
use connection::{Connection, ReplyTo, Role};
use container::Container;
use log::Timestamp;
use poll::{Poll, Token};
pub use socket::{MAX_FDS, Received, receive, send_with_fds};
use user_namespace::UserNamespace;
use zygote::Prepared;

/// The first argument that makes the binary a supervisor.
pub const SUBCOMMAND: &str = "pod-supervisor";

/// The argument after it that has the process look whether pods can have user namespaces, for the directory named next.
/// A process of many threads cannot look itself, because it must not fork.
pub const PROBE_USER_NAMESPACES: &str = "probe-user-namespaces";

/// The supervisor must be the last of its pod that the kernel kills for memory.
const OOM_SCORE: i32 = -998;

/// Runs the process that supervisors are forked from. Standard input is where Karve asks for them; `args`, those after
/// [`SUBCOMMAND`], only show in a list of processes whose they are.
///
/// Must be called before the process has started any thread.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.into_iter().collect();
    match args.as_slice() {
        [] => {
            eprintln!("{SUBCOMMAND} is started by the runtime, not by hand");
            return ExitCode::from(2);
        }
        [probe, dir] if probe == PROBE_USER_NAMESPACES => {
            let probed = user_namespace::probe(Path::new(dir));
            return match probed.inspect_err(|error| complain(format_args!("{error}"))) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        _ => {}
    }
    // SAFETY: standard input is ours, and nothing else in this process uses it.
    let requests = unsafe { OwnedFd::from_raw_fd(0) };
    let run = rustix::io::fcntl_setfd(&requests, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from);
    match report(run.and_then(|()| zygote::run(requests))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Tells the log why a process is about to end.
fn report(result: io::Result<()>) -> io::Result<()> {
    result.inspect_err(|error| complain(format_args!("the pod's supervisor failed: {error}")))
}

/// Writes to the log. A full disk must not end a pod, as it would by way of `eprintln`, which panics.
fn complain(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{what}");
}

struct Supervisor {
    dir: PathBuf,
    poll: Poll,
    listener: UnixListener,
    listener_token: Token,
    signals: fs::File,
    signals_token: Token,
    layout: Layout,
    filters: Filters,
    device_program: DefaultProgram,
    connections: HashMap<Token, Connection>,
    sandbox: Option<Sandbox>,
    containers: BTreeMap<String, Container>,
    /// Children that have not executed their program yet, by the token of their channel.
    launching: HashMap<Token, Launching>,
    /// Who waits for the end of everything.
    stopping: Option<ReplyTo>,
}

struct Sandbox {
    spec: SandboxSpec,
    pause: Option<Child>,
    /// Where the pod has its own.
    user_namespace: Option<OwnedFd>,
}

impl Sandbox {
    fn user_namespace(&self) -> Option<UserNamespace<'_>> {
        Some(UserNamespace {
            fd: self.user_namespace.as_ref()?.as_fd(),
            mappings: self.spec.user_namespace?,
        })
    }
}

struct Launching {
    pid: i32,
    channel: OwnedFd,
    reply_to: ReplyTo,
    kind: LaunchKind,
}

enum LaunchKind {
    Container(String),
    /// An exec, with its terminal once it has one.
    Exec {
        terminal: Option<OwnedFd>,
    },
}

impl Supervisor {
    fn new(dir: &Path, control: OwnedFd, prepared: Prepared) -> io::Result<Self> {
        // Fails for a process group's leader, which is as good.
        let _ = rustix::process::setsid();
        let _ = credentials::set_oom_score(Some(OOM_SCORE));
        // A pod ends when Karve says so, not with whatever signals reach all processes of a name or a service.
        sys::ignore_signals(&[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]);
        sys::set_subreaper()?;
        sys::set_not_dumpable()?;
        sys::set_name(c"karve-pod")?;
        // A relative name has no limit on the length of what is before it.
        std::env::set_current_dir(dir)?;
        let listener = UnixListener::bind(SOCKET_NAME)?;
        fs::set_permissions(SOCKET_NAME, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let signals = fs::File::from(sys::signalfd(&[libc::SIGCHLD])?);
        let mut poll = Poll::new()?;
        let mut supervisor = Self {
            dir: dir.to_owned(),
            listener_token: poll.add(&listener, EventFlags::IN)?,
            signals_token: poll.add(&signals, EventFlags::IN)?,
            layout: prepared.layout,
            filters: prepared.filters,
            device_program: prepared.device_program,
            listener,
            signals,
            poll,
            connections: HashMap::new(),
            sandbox: None,
            containers: BTreeMap::new(),
            launching: HashMap::new(),
            stopping: None,
        };
        supervisor.add_connection(control, Role::Control)?;
        Ok(supervisor)
    }

    fn run(mut self) -> io::Result<()> {
        while !self.is_done() {
            let until = self.containers.values().filter_map(Container::waits_until).min();
            for (token, flags) in self.poll.wait(until)? {
                if token == self.signals_token {
                    self.reap();
                } else if token == self.listener_token {
                    self.accept();
                } else if self.connections.contains_key(&token) {
                    self.serve(token, flags);
                } else if self.launching.contains_key(&token) {
                    self.follow_launch(token);
                } else if let Some(container) = self.containers.values_mut().find(|c| c.owns(token)) {
                    container.ready(token, now(), &self.poll);
                }
            }
            let moment = Instant::now();
            for container in self.containers.values_mut() {
                container.stop_waiting(moment, &self.poll);
            }
        }
        fs::remove_file(self.dir.join(SOCKET_NAME))?;
        if let Some(reply_to) = self.stopping.take() {
            self.answer(reply_to, Ok(Answer::Done), None);
        }
        Ok(())
    }

    /// A supervisor ends when it was told to and nothing is left, or when it was never given a pod to look after.
    fn is_done(&self) -> bool {
        let ended = |container: &Container| matches!(container.state, ContainerState::Ended(_));
        match &self.sandbox {
            None => self.connections.is_empty(),
            Some(sandbox) => self.stopping.is_some() && sandbox.pause.is_none() && self.containers.values().all(ended),
        }
    }

    fn accept(&mut self) {
        while let Ok((socket, _)) = self.listener.accept() {
            // The connection is refused by closing it when even this fails.
            let _ = self.add_connection(socket.into(), Role::New);
        }
    }

    fn add_connection(&mut self, socket: OwnedFd, role: Role) -> io::Result<()> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let token = self.poll.add(&socket, EventFlags::IN)?;
        self.connections.insert(token, Connection::new(socket, role));
        Ok(())
    }

    /// Reads and answers what a connection has sent, and sends what waits for it.
    fn serve(&mut self, token: Token, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        let mut alive = !flags.contains(EventFlags::OUT) || connection.flush().is_ok();
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            alive &= connection.fill();
        }
        while let Some(connection) = self.connections.get_mut(&token) {
            match connection.next_request() {
                Ok(Some(request)) => match connection.take_fds(&request.call) {
                    Some(fds) => self.call(
                        ReplyTo {
                            connection: token,
                            id: request.id,
                        },
                        request.call,
                        fds,
                    ),
                    None => {
                        let malformed = Failure::new(FailureKind::Precondition, "the request lacks its descriptors");
                        self.answer(
                            ReplyTo {
                                connection: token,
                                id: request.id,
                            },
                            Err(malformed),
                            None,
                        );
                    }
                },
                Ok(None) => break,
                Err(_) => {
                    alive = false;
                    break;
                }
            }
        }
        if alive {
            self.await_connection(token)
        } else {
            self.close(token)
        }
    }

    fn await_connection(&self, token: Token) {
        if let Some(connection) = self.connections.get(&token) {
            let interest = if connection.has_pending() {
                EventFlags::IN | EventFlags::OUT
            } else {
                EventFlags::IN
            };
            self.poll.change(&connection.socket, token, interest);
        }
    }

    /// Forgets a connection and ends what it stood for.
    fn close(&mut self, token: Token) {
        let Some(connection) = self.connections.remove(&token) else {
            return;
        };
        self.poll.remove(&connection.socket);
        match connection.role {
            Role::Exec { pid } => kill_group(pid),
            Role::Attach { container } => {
                if let Some(container) = self.containers.get_mut(&container) {
                    container.detach(token, &self.poll);
                }
            }
            Role::New | Role::Control => {}
        }
    }

    fn answer(&mut self, to: ReplyTo, result: Result<Answer, Failure>, fd: Option<&OwnedFd>) {
        let Some(connection) = self.connections.get_mut(&to.connection) else {
            return;
        };
        match connection.answer(to.id, result, fd) {
            Ok(()) => self.await_connection(to.connection),
            Err(_) => self.close(to.connection),
        }
    }

    fn notify(&mut self, event: &Ended, wanted: impl Fn(&Role) -> bool) {
        let tokens: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, c)| wanted(&c.role))
            .map(|(t, _)| *t)
            .collect();
        for token in tokens {
            let sent = self
                .connections
                .get_mut(&token)
                .is_some_and(|c| c.notify(event.clone()).is_ok());
            if sent {
                self.await_connection(token)
            } else {
                self.close(token)
            }
        }
    }

    /// Collects every child that has ended.
    fn reap(&mut self) {
        // Signals of the same kind merge, so their number means nothing.
        let mut buffer = [0; 1024];
        while self.signals.read(&mut buffer).is_ok_and(|length| length > 0) {}
        while let Some((pid, code)) = sys::reap_any() {
            self.ended(pid, code);
        }
    }

    fn ended(&mut self, pid: i32, code: i32) {
        // A child that failed early has left its reason in its channel.
        while let Some(token) = self
            .launching
            .iter()
            .find(|(_, launch)| launch.pid == pid)
            .map(|(token, _)| *token)
        {
            self.follow_launch(token);
        }
        if let Some(sandbox) = &mut self.sandbox
            && sandbox.pause.as_ref().is_some_and(|pause| pause.pid == pid)
        {
            sandbox.pause = None;
            // A pod without its namespaces is over, whoever ended it.
            self.kill_all();
            if self.stopping.is_none() {
                self.notify(&Ended::Sandbox, |role| matches!(role, Role::Control));
            }
        }
        let ended = self.containers.iter().find(|(_, container)| container.child.pid == pid);
        if let Some(id) = ended.map(|(id, _)| id.clone()) {
            self.container_ended(&id, code);
        }
        let stood_for = |role: &Role| matches!(role, Role::Exec { pid: exec } if *exec == pid);
        self.notify(&Ended::Process { code }, stood_for);
        // What it left running goes on, and its number may be another's by the time the connection closes.
        for connection in self
            .connections
            .values_mut()
            .filter(|connection| stood_for(&connection.role))
        {
            connection.role = Role::New;
        }
    }

    fn container_ended(&mut self, id: &str, code: i32) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        let cgroup = container.spec.cgroup.path.clone();
        if container.spec.pid != PidNamespace::Private {
            self.layout.kill(&cgroup);
        }
        container.drain(now(), &self.poll);
        let started_at_ns = match container.state {
            ContainerState::Running { started_at_ns, .. } => started_at_ns,
            _ => 0,
        };
        let exit = Exit {
            code,
            oom_killed: self.layout.oom_kills(&cgroup) > 0,
            started_at_ns,
            finished_at_ns: now_ns(),
            failure: std::mem::take(&mut container.failure),
        };
        // A cgroup that cannot be removed yet is removed with the container.
        let _ = self.layout.remove(&cgroup);
        if let Err(error) = record(&container.spec.exit_path, &exit) {
            complain(format_args!("recording the end of container {id}: {error}"));
        }
        container.state = ContainerState::Ended(exit.clone());
        let event = Ended::Container {
            container: id.to_owned(),
            exit,
        };
        self.notify(&event, |role| matches!(role, Role::Control));
        let attached = |role: &Role| matches!(role, Role::Attach { container } if container == id);
        self.notify(&Ended::Process { code }, attached);
    }

    /// Reads what a child has said on its way to its program.
    fn follow_launch(&mut self, token: Token) {
        let Some(launch) = self.launching.get_mut(&token) else {
            return;
        };
        match child::read_report(&launch.channel) {
            Ok(Report::None) => {}
            Ok(Report::Terminal(master)) => match &mut launch.kind {
                LaunchKind::Exec { terminal } => *terminal = Some(master),
                LaunchKind::Container(id) => {
                    if let Some(container) = self.containers.get_mut(id)
                        && let Err(error) = container.set_terminal(master, &mut self.poll)
                    {
                        complain(format_args!("connecting the terminal of container {id}: {error}"));
                    }
                }
            },
            Ok(Report::Failed(why)) => self.launch_ended(token, Err(Failure::new(FailureKind::Start, why))),
            Ok(Report::Running) => self.launch_ended(token, Ok(())),
            Err(error) => self.launch_ended(token, Err(Failure::new(FailureKind::Internal, error.to_string()))),
        }
    }

    fn launch_ended(&mut self, token: Token, result: Result<(), Failure>) {
        let Some(launch) = self.launching.remove(&token) else {
            return;
        };
        self.poll.remove(&launch.channel);
        let at_ns = now_ns();
        let terminal = match launch.kind {
            LaunchKind::Exec { terminal } => terminal,
            LaunchKind::Container(id) => {
                match (self.containers.get_mut(&id), &result) {
                    (Some(container), Ok(())) => {
                        container.state = ContainerState::Running {
                            pid: launch.pid,
                            started_at_ns: at_ns,
                        };
                    }
                    (Some(container), Err(failure)) => container.failure.clone_from(&failure.message),
                    (None, _) => {}
                }
                None
            }
        };
        let answer = result.map(|()| Answer::Started { pid: launch.pid, at_ns });
        self.answer(launch.reply_to, answer, terminal.as_ref());
    }

    fn kill_all(&mut self) {
        if let Some(pause) = self.sandbox.as_ref().and_then(|sandbox| sandbox.pause.as_ref()) {
            kill(pause);
        }
        for container in self.containers.values() {
            if !matches!(container.state, ContainerState::Ended(_)) {
                kill(&container.child);
            }
        }
    }
}

fn kill(child: &Child) {
    // Fails only for a process that has ended.
    let _ = rustix::process::pidfd_send_signal(child.pidfd.as_fd(), rustix::process::Signal::KILL);
}

/// Kills an exec and what it started in its session. Its pid is not reused before it is reaped, which only we do.
fn kill_group(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

/// Writes how a container ended, whole or not at all.
fn record(path: &Path, exit: &Exit) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, serde_json::to_vec(exit)?)?;
    fs::rename(temporary, path)
}

fn now_ns() -> i64 {
    i64::try_from(clock::since_epoch().as_nanos()).unwrap_or(i64::MAX)
}

fn now() -> Timestamp {
    Timestamp::from_unix_ns(now_ns())
}
