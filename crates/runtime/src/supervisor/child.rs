//! The processes a supervisor starts: from the fork to the exec of the container's own program.
//!
//! A child shares a channel with its supervisor. It reports a failure there, or hands over the master side of its
//! terminal; a channel that ends without a failure means that the program is running, because exec closed it.

use std::convert::Infallible;
use std::ffi::CString;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::socket::{self, Received};
use super::{credentials, dev, root};
use crate::cgroup::Layout;
use crate::spec::{ContainerSpec, PidNamespace, Process};
use crate::sys::{self, Cloned, pid_t};

/// The longest failure a child reports.
const MAX_REPORT_BYTES: usize = 4096;

/// The namespaces of a pod that its containers enter; the others are the containers' own.
const POD_NAMESPACES: libc::c_int = libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// Where a program is looked for when the environment does not say.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub struct Child {
    pub pid: pid_t,
    pub pidfd: OwnedFd,
}

/// Why a child could not become what it should: what it was doing, and what the kernel said.
#[derive(Debug)]
pub struct StartError(pub String);

/// Adds what was being done to an error.
pub trait Stage<T> {
    fn stage(self, doing: &str) -> Result<T, StartError>;
    fn stage_with(self, doing: impl FnOnce() -> String) -> Result<T, StartError>;
}

impl<T, E: Into<io::Error>> Stage<T> for Result<T, E> {
    fn stage(self, doing: &str) -> Result<T, StartError> {
        self.map_err(|error| failed(doing, error.into()))
    }

    fn stage_with(self, doing: impl FnOnce() -> String) -> Result<T, StartError> {
        self.map_err(|error| failed(&doing(), error.into()))
    }
}

fn failed(doing: &str, error: impl Display) -> StartError {
    StartError(format!("{doing}: {error}"))
}

/// The standard streams a child is given; those that are absent are `/dev/null`.
#[derive(Default)]
pub struct ChildStdio {
    pub stdin: Option<OwnedFd>,
    pub stdout: Option<OwnedFd>,
    pub stderr: Option<OwnedFd>,
}

/// What all children of a supervisor need to know of their pod.
pub struct Pod<'a> {
    pub pause: BorrowedFd<'a>,
    pub own_ipc: bool,
    pub layout: &'a Layout,
}

/// A child on its way, and the supervisor's end of its channel.
pub struct Launched {
    pub child: Child,
    pub channel: OwnedFd,
}

/// Starts a container's first process. `target` is the process whose process namespace it shares, if it does.
pub fn start(
    spec: &ContainerSpec,
    pod: &Pod<'_>,
    target: Option<BorrowedFd<'_>>,
    stdio: ChildStdio,
) -> io::Result<Launched> {
    let namespaces = match spec.pid {
        PidNamespace::Private => libc::CLONE_NEWNS | libc::CLONE_NEWPID,
        _ => libc::CLONE_NEWNS,
    };
    launch(namespaces, pod.layout, &spec.cgroup.path, target, |channel| {
        become_container(spec, pod, &stdio, channel)
    })
}

/// Starts a further process in a running container, whose first process is behind `init`.
pub fn exec(
    spec: &ContainerSpec,
    process: &Process,
    layout: &Layout,
    init: BorrowedFd<'_>,
    stdio: ChildStdio,
) -> io::Result<Launched> {
    let target = (spec.pid != PidNamespace::Host).then_some(init);
    launch(0, layout, &spec.cgroup.path, target, |channel| {
        join_container(spec, process, layout, init, &stdio, channel)
    })
}

fn launch(
    namespaces: libc::c_int,
    layout: &Layout,
    cgroup: &Path,
    pid_target: Option<BorrowedFd<'_>>,
    run: impl FnOnce(&OwnedFd) -> Result<Infallible, StartError>,
) -> io::Result<Launched> {
    let (ours, theirs) = channel()?;
    let cgroup = layout.open_for_clone(cgroup)?;
    let home = std::fs::File::open("/proc/self/ns/pid")?;
    if let Some(target) = pid_target {
        // Only children are born into the namespace; the supervisor itself stays where it is.
        sys::setns(target, libc::CLONE_NEWPID)?;
    }
    // SAFETY: the supervisor has a single thread.
    let cloned = unsafe { sys::clone_process(namespaces as u64, cgroup.as_ref().map(AsFd::as_fd)) };
    if let Ok(Cloned::Child) = cloned {
        drop(ours);
        let Err(error) = run(&theirs);
        report_to(&theirs, &error);
    }
    if pid_target.is_some() {
        sys::setns(home.as_fd(), libc::CLONE_NEWPID)?;
    }
    match cloned? {
        Cloned::Parent { pid, pidfd } => Ok(Launched {
            child: Child { pid, pidfd },
            channel: ours,
        }),
        Cloned::Child => sys::exit_now(1),
    }
}

fn become_container(
    spec: &ContainerSpec,
    pod: &Pod<'_>,
    stdio: &ChildStdio,
    channel: &OwnedFd,
) -> Result<Infallible, StartError> {
    sys::set_not_dumpable().stage("hiding from the pod")?;
    rustix::process::setsid().stage("starting a session")?;
    pod.layout.enter(&spec.cgroup.path).stage("entering the cgroup")?;
    credentials::set_oom_score(spec.process.oom_score_adj).stage("setting the OOM score")?;
    let taken = root::take(spec, pod.pause, pod.own_ipc)?;
    sys::setns(pod.pause, POD_NAMESPACES).stage("entering the pod's namespaces")?;
    if !spec.privileged {
        sys::unshare(libc::CLONE_NEWCGROUP).stage("making a cgroup namespace")?;
    }
    root::build(spec, pod.layout, taken)?;
    become_program(&spec.process, stdio, channel)
}

fn join_container(
    spec: &ContainerSpec,
    process: &Process,
    layout: &Layout,
    init: BorrowedFd<'_>,
    stdio: &ChildStdio,
    channel: &OwnedFd,
) -> Result<Infallible, StartError> {
    sys::set_not_dumpable().stage("hiding from the container")?;
    rustix::process::setsid().stage("starting a session")?;
    layout.enter(&spec.cgroup.path).stage("entering the cgroup")?;
    credentials::set_oom_score(process.oom_score_adj).stage("setting the OOM score")?;
    let kinds = POD_NAMESPACES | libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP;
    sys::setns(init, kinds).stage("entering the container's namespaces")?;
    become_program(process, stdio, channel)
}

/// From inside the container: streams, credentials, exec.
fn become_program(process: &Process, stdio: &ChildStdio, channel: &OwnedFd) -> Result<Infallible, StartError> {
    if process.tty {
        let (master, slave) = dev::open_terminal().stage("opening a terminal")?;
        socket::send_with_fds(channel, b"terminal", &[master.as_fd()]).stage("handing the terminal over")?;
        (0..3)
            .try_for_each(|number| sys::dup_to(&slave, number))
            .stage("connecting the terminal")?;
        sys::take_controlling_terminal().stage("taking the terminal")?;
    } else {
        connect(stdio).stage("connecting the standard streams")?;
    }
    sys::close_on_exec_from(3).stage("closing what is not the container's")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    sys::allow_huge_pages().stage("allowing huge pages")?;
    credentials::assume(process)?;
    std::env::set_current_dir(&process.cwd).stage_with(|| format!("changing to directory {}", process.cwd))?;
    sys::reset_signals();
    Err(execute(process))
}

fn connect(stdio: &ChildStdio) -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for (number, stream) in [&stdio.stdin, &stdio.stdout, &stdio.stderr].into_iter().enumerate() {
        match stream {
            Some(stream) => sys::dup_to(stream, number as i32)?,
            None => sys::dup_to(&null, number as i32)?,
        }
    }
    Ok(())
}

fn execute(process: &Process) -> StartError {
    let strings = |of: &[String]| {
        of.iter()
            .map(|s| CString::new(s.as_str()))
            .collect::<Result<Vec<_>, _>>()
    };
    let mut env = process.env.clone();
    if !env.iter().any(|entry| entry.starts_with("HOME=")) {
        env.push(format!(
            "HOME={}",
            if process.user.home.is_empty() {
                "/"
            } else {
                &process.user.home
            }
        ));
    }
    let (Ok(args), Ok(env)) = (strings(&process.args), strings(&env)) else {
        return StartError("a command or environment with a zero byte cannot be executed".to_owned());
    };
    let Some(program) = process.args.first() else {
        return StartError("no command specified".to_owned());
    };
    let mut denied = false;
    for candidate in candidates(program, &process.env) {
        let Ok(path) = CString::new(candidate.as_str()) else {
            continue;
        };
        let error = sys::exec(&path, &args, &env);
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory if !program.contains('/') => {}
            io::ErrorKind::PermissionDenied if !program.contains('/') => denied = true,
            io::ErrorKind::NotFound => return explain(program, format!("stat {program}: no such file or directory")),
            io::ErrorKind::PermissionDenied => return explain(program, "permission denied"),
            _ => return explain(program, error),
        }
    }
    explain(
        program,
        if denied {
            "permission denied"
        } else {
            "executable file not found in $PATH"
        },
    )
}

fn explain(program: &str, why: impl Display) -> StartError {
    StartError(format!("unable to start container process: exec: {program:?}: {why}"))
}

/// The paths a program's name may stand for.
fn candidates(program: &str, env: &[String]) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = env
        .iter()
        .find_map(|entry| entry.strip_prefix("PATH="))
        .unwrap_or(DEFAULT_PATH);
    path.split(':')
        .map(|dir| format!("{}/{program}", if dir.is_empty() { "." } else { dir }))
        .collect()
}

/// The two ends of a child's channel.
pub fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let ends = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fcntl_setfl(&ends.0, rustix::fs::OFlags::NONBLOCK)?;
    Ok(ends)
}

/// The end of a child that failed.
pub fn report_to(channel: &OwnedFd, error: &StartError) -> ! {
    let text = error.0.as_bytes();
    // Nobody is left to tell when even this fails; the supervisor sees the process end.
    let _ = socket::send_with_fds(
        channel,
        &[b"failed ", &text[..text.len().min(MAX_REPORT_BYTES - 7)]].concat(),
        &[],
    );
    sys::exit_now(128)
}

/// What a child has said.
pub enum Report {
    /// Nothing yet.
    None,
    Terminal(OwnedFd),
    Failed(String),
    /// The channel was closed by exec, or by the end of the process.
    Running,
}

pub fn read_report(channel: &OwnedFd) -> io::Result<Report> {
    let mut bytes = vec![0; MAX_REPORT_BYTES];
    match socket::receive(channel, &mut bytes)? {
        Received::Nothing => Ok(Report::None),
        Received::Closed => Ok(Report::Running),
        Received::Bytes { length, mut fds } => Ok(match (bytes[..length].strip_prefix(b"failed "), fds.pop()) {
            (None, Some(terminal)) => Report::Terminal(terminal),
            (text, _) => Report::Failed(String::from_utf8_lossy(text.unwrap_or_default()).into_owned()),
        }),
    }
}

/// Waits for a child that is ready when it closes its channel.
pub fn wait_until_ready(channel: &OwnedFd) -> io::Result<()> {
    loop {
        match read_report(channel)? {
            Report::Running => return Ok(()),
            Report::Failed(why) => return Err(io::Error::other(why)),
            Report::Terminal(_) => {}
            Report::None => {
                let mut waiting = [rustix::event::PollFd::new(channel, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut waiting, None)?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_looked_for_in_the_containers_path() {
        let env = ["HOME=/".to_owned(), "PATH=/a::/b".to_owned()];
        assert_eq!(candidates("sh", &env), ["/a/sh", "./sh", "/b/sh"]);
        assert_eq!(candidates("bin/sh", &env), ["bin/sh"]);
        assert_eq!(candidates("sh", &[]).len(), 6);
    }
}
