//! The processes a supervisor starts: from the fork to the exec of the container's own program.
//!
//! A child shares a channel with its supervisor. It reports a failure there, or hands over the master side of its
//! terminal; a channel that ends without a failure means that the program is running, because exec closed it.

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::program::become_program;
use super::socket::{self, Received};
use super::stdio::ChildStdio;
use super::user_namespace::{self, UserNamespace};
use super::{credentials, root};
use crate::cgroup::Layout;
use crate::seccomp::Filter;
use crate::spec::{ContainerSpec, IdMappings, PidNamespace, Process};
use crate::sys::{self, Cloned, pid_t};

/// The longest failure a child reports.
const MAX_REPORT_BYTES: usize = 4096;

/// The namespaces of a pod that its containers enter; the others are the containers' own.
const POD_NAMESPACES: libc::c_int = libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

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

/// What all children of a supervisor need to know of their pod.
pub struct Pod<'a> {
    pub pause: BorrowedFd<'a>,
    pub own_ipc: bool,
    pub user_namespace: Option<UserNamespace<'a>>,
    pub layout: &'a Layout,
}

/// What an exec needs to know of the container it goes to.
pub struct RunningContainer<'a> {
    pub spec: &'a ContainerSpec,
    /// The container's first process.
    pub init: BorrowedFd<'a>,
    pub layout: &'a Layout,
    /// The ids of the pod's own user namespace.
    pub user_namespace: Option<IdMappings>,
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
    filter: Option<&Filter>,
    stdio: ChildStdio,
) -> io::Result<Launched> {
    let namespaces = match spec.pid {
        PidNamespace::Private => libc::CLONE_NEWNS | libc::CLONE_NEWPID,
        _ => libc::CLONE_NEWNS,
    };
    let options = LaunchOptions {
        namespaces,
        layout: pod.layout,
        cgroup: &spec.cgroup.path,
        pid_target: target,
        namespaces_of: pod.pause,
        user_namespace: pod.user_namespace.map(|namespace| namespace.fd),
        stdio,
        stdio_owner: host_user(&spec.process, pod.user_namespace.map(|namespace| namespace.mappings)),
    };
    launch(options, |channel| become_container(spec, pod, filter, channel))
}

/// Starts a further process in a running container.
pub fn exec(
    container: &RunningContainer<'_>,
    process: &Process,
    filter: Option<&Filter>,
    stdio: ChildStdio,
) -> io::Result<Launched> {
    let options = LaunchOptions {
        namespaces: 0,
        layout: container.layout,
        cgroup: &container.spec.cgroup.path,
        pid_target: (container.spec.pid != PidNamespace::Host).then_some(container.init),
        namespaces_of: container.init,
        user_namespace: None,
        stdio,
        stdio_owner: host_user(process, container.user_namespace),
    };
    launch(options, |channel| {
        join_container(container, process)?;
        become_program(process, filter, channel)
    })
}

/// The host's id of the user that a process runs as; none for one that the pod does not have.
fn host_user(process: &Process, user_namespace: Option<IdMappings>) -> Option<u32> {
    match user_namespace {
        Some(mappings) => mappings.uids.host_id_of(process.user.uid),
        None => Some(process.user.uid),
    }
}

/// What a child process is made with.
struct LaunchOptions<'a> {
    /// Those that are made for it.
    namespaces: libc::c_int,
    layout: &'a Layout,
    cgroup: &'a Path,
    /// The process whose process namespace it is born into.
    pid_target: Option<BorrowedFd<'a>>,
    /// The process whose other namespaces it enters.
    namespaces_of: BorrowedFd<'a>,
    /// The user namespace it is going to enter, unless that is the one of the process above.
    user_namespace: Option<BorrowedFd<'a>>,
    stdio: ChildStdio,
    /// The host's id of the user it will run as, who may open the streams by their names in `/dev` and `/proc`.
    stdio_owner: Option<u32>,
}

fn launch(
    options: LaunchOptions<'_>,
    run: impl FnOnce(&OwnedFd) -> Result<Infallible, StartError>,
) -> io::Result<Launched> {
    let (ours, theirs) = channel()?;
    let cgroup = options.layout.open_for_clone(options.cgroup)?;
    let home = std::fs::File::open("/proc/self/ns/pid")?;
    if let Some(target) = options.pid_target {
        // Only children are born into the namespace; the supervisor itself stays where it is.
        sys::setns(target, libc::CLONE_NEWPID)?;
    }
    // SAFETY: the supervisor has a single thread.
    let cloned = unsafe { sys::clone_process(options.namespaces as u64, cgroup.as_ref().map(AsFd::as_fd)) };
    if let Ok(Cloned::Child) = cloned {
        let keep: Vec<_> = [theirs.as_fd(), options.namespaces_of]
            .into_iter()
            .chain(options.user_namespace)
            .collect();
        let Err(error) = leave_supervisor(options.stdio, options.stdio_owner, &keep).and_then(|()| run(&theirs));
        report_to(&theirs, &error);
    }
    if options.pid_target.is_some() {
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

/// Lets go of everything that is the supervisor's: its sockets, its logs, the streams of other containers, and on
/// cgroup v2 a directory of the host. A process that shares the container's process namespace must find nothing of it.
fn leave_supervisor(stdio: ChildStdio, owner: Option<u32>, keep: &[BorrowedFd<'_>]) -> Result<(), StartError> {
    sys::set_not_dumpable().stage("hiding from the pod")?;
    stdio.install(owner).stage("connecting the standard streams")?;
    sys::close_all_but(keep).stage("closing what is the supervisor's")?;
    rustix::process::setsid().map(drop).stage("starting a session")
}

fn become_container(
    spec: &ContainerSpec,
    pod: &Pod<'_>,
    filter: Option<&Filter>,
    channel: &OwnedFd,
) -> Result<Infallible, StartError> {
    pod.layout.enter(&spec.cgroup.path).stage("entering the cgroup")?;
    credentials::set_oom_score(spec.process.oom_score_adj).stage("setting the OOM score")?;
    credentials::confine_next_program(spec.process.apparmor.as_deref())?;
    if let Some(namespace) = pod.user_namespace {
        user_namespace::touch_files_as_root_of(&namespace.mappings)?;
    }
    let taken = root::take(spec, pod)?;
    sys::setns(pod.pause, POD_NAMESPACES).stage("entering the pod's namespaces")?;
    if !spec.privileged || pod.user_namespace.is_some() {
        sys::unshare(libc::CLONE_NEWCGROUP).stage("making a cgroup namespace")?;
    }
    root::build(spec, pod, taken)?;
    if let Some(namespace) = pod.user_namespace {
        user_namespace::enter(namespace.fd)?;
        // From here on the pod's root is in charge of its mounts and cgroups, as far as the kernel lets it be.
        let kinds = libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP;
        sys::unshare(kinds).stage("making the namespaces the pod's own")?;
    }
    become_program(&spec.process, filter, channel)
}

fn join_container(container: &RunningContainer<'_>, process: &Process) -> Result<(), StartError> {
    let cgroup = &container.spec.cgroup.path;
    container.layout.enter(cgroup).stage("entering the cgroup")?;
    credentials::set_oom_score(process.oom_score_adj).stage("setting the OOM score")?;
    credentials::confine_next_program(process.apparmor.as_deref())?;
    let kinds = POD_NAMESPACES | libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP;
    sys::setns(container.init, kinds).stage("entering the container's namespaces")?;
    match container.user_namespace {
        Some(_) => user_namespace::enter(container.init),
        None => Ok(()),
    }
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
