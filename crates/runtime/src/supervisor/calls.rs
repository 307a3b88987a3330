//! What Karve may ask of a supervisor.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::event::epoll::EventFlags;
use rustix::process::Signal;

use super::child::{self, Launched, Pod};
use super::connection::{ReplyTo, Role};
use super::container::{self, Container};
use super::log::Log;
use super::stdio::ChildStdio;
use super::{LaunchKind, Launching, Sandbox, Supervisor, dev, pause, user_namespace};
use crate::capability;
use crate::protocol::{Answer, Call, ContainerState, Failure, FailureKind, State, Stdio, VERSION};
use crate::seccomp::{Filter, Filters};
use crate::spec::{ContainerSpec, PidNamespace, Process, SandboxSpec};
use crate::sys;

type Outcome = Result<Option<Answer>, Failure>;

impl Supervisor {
    /// Carries out a call. Those that take longer are answered later.
    pub(super) fn call(&mut self, from: ReplyTo, call: Call, fds: VecDeque<OwnedFd>) {
        let outcome = match call {
            Call::Hello { version: _ } => self.hello(from),
            Call::CreateSandbox(spec) => self.create_sandbox(spec),
            Call::Start(spec) => self.start(from, *spec),
            Call::Signal { container, signal, all } => self.signal(&container, signal, all),
            Call::ReopenLog { container } => self.reopen_log(&container),
            Call::Forget { container } => self.forget(&container),
            Call::Stop => self.stop(from),
            Call::Exec {
                container,
                process,
                stdio,
            } => self.exec(from, &container, &process, stdio, fds),
            Call::Attach { container, stdio } => self.attach(from, container, stdio, fds),
            Call::Resize { columns, rows } => self.resize(from, columns, rows),
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(answer)) => self.answer(from, Ok(answer), None),
            Err(failure) => self.answer(from, Err(failure), None),
        }
    }

    fn hello(&mut self, from: ReplyTo) -> Outcome {
        if let Some(connection) = self.connections.get_mut(&from.connection) {
            connection.role = Role::Control;
        }
        let containers = self
            .containers
            .iter()
            .map(|(id, container)| (id.clone(), container.state.clone()));
        Ok(Some(Answer::State(State {
            version: VERSION,
            pause_pid: self
                .sandbox
                .as_ref()
                .and_then(|sandbox| Some(sandbox.pause.as_ref()?.pid)),
            containers: containers.collect(),
        })))
    }

    fn create_sandbox(&mut self, spec: SandboxSpec) -> Outcome {
        if self.sandbox.is_some() {
            return Err(Failure::new(
                FailureKind::Precondition,
                "this supervisor has a pod already",
            ));
        }
        let user_namespace = spec.user_namespace.as_ref().map(user_namespace::create).transpose();
        let user_namespace = user_namespace.map_err(|error| internal("creating the pod's user namespace", &error))?;
        let pause = pause::create(&spec, user_namespace.as_ref().map(AsFd::as_fd))
            .map_err(|error| internal("creating the pod's namespaces", &error))?;
        let pause_pid = pause.pid;
        // For a Karve that finds this supervisor dead and the pause process alive.
        let recorded = std::fs::write("pause", pause_pid.to_string());
        self.sandbox = Some(Sandbox {
            spec,
            pause: Some(pause),
            user_namespace,
        });
        recorded.map_err(|error| internal("recording the pause process", &error))?;
        Ok(Some(Answer::Sandbox { pause_pid }))
    }

    fn start(&mut self, from: ReplyTo, spec: ContainerSpec) -> Outcome {
        if self.containers.contains_key(&spec.id) {
            return Err(Failure::new(
                FailureKind::Precondition,
                format!("container {} was started already", spec.id),
            ));
        }
        let log = spec.log_path.as_deref();
        let log = log.map(|path| Log::open(path, spec.log_max_bytes)).transpose();
        let log = log.map_err(|error| internal("opening the container's log", &error))?;
        self.layout
            .create(&spec.cgroup.path, &spec.cgroup.limits)
            .map_err(|error| internal("limiting", &error))?;
        let launched = self.restrict_devices(&spec).and_then(|()| self.launch_container(&spec));
        let (Launched { child, channel }, ends) = launched.inspect_err(|_| {
            let _ = self.layout.remove(&spec.cgroup.path);
        })?;
        let (id, pid) = (spec.id.clone(), child.pid);
        let container = Container::new(spec, child, log, ends, &mut self.poll)
            .map_err(|error| internal("watching the container's streams", &error))?;
        self.containers.insert(id.clone(), container);
        self.await_launch(pid, channel, from, LaunchKind::Container(id))
    }

    /// Without a controller for devices, containers are kept from them by their mounts alone, which is not enough for one
    /// that may mount, or that is given a device with fewer rights than it has.
    fn restrict_devices(&mut self, spec: &ContainerSpec) -> Result<(), Failure> {
        let may_mount = capability::mask("SYS_ADMIN").is_ok_and(|mask| spec.process.capabilities.held & mask != 0);
        let given_in_part = spec.devices.iter().any(|device| !device.access.contains("rw"));
        if !spec.privileged && (may_mount || given_in_part) && !self.layout.has_devices() {
            let why = "this host cannot restrict devices: it has neither cgroup v2 nor the devices controller of v1";
            return Err(Failure::new(FailureKind::Start, why));
        }
        let failed = |error: std::io::Error| internal("restricting devices", &error);
        let own_users = self
            .sandbox
            .as_ref()
            .is_some_and(|sandbox| sandbox.user_namespace.is_some());
        let rules = dev::rules(spec, own_users).map_err(failed)?;
        self.layout
            .restrict_devices(&spec.cgroup.path, rules.as_deref(), &mut self.device_program)
            .map_err(failed)
    }

    fn launch_container(&mut self, spec: &ContainerSpec) -> Result<(Launched, container::Ends), Failure> {
        let filter = filter_for(&mut self.filters, &spec.process)?;
        let (sandbox, pause) = self
            .sandbox
            .as_ref()
            .and_then(|sandbox| Some((sandbox, sandbox.pause.as_ref()?)))
            .ok_or_else(|| Failure::new(FailureKind::Precondition, "the pod's sandbox is not running"))?;
        let target = match &spec.pid {
            PidNamespace::Private | PidNamespace::Host => None,
            PidNamespace::Pod => Some(pause.pidfd.as_fd()),
            PidNamespace::Target(id) => Some(self.running(id)?.child.pidfd.as_fd()),
        };
        let (stdio, ends) = container::pipes(spec).map_err(|error| internal("making pipes", &error))?;
        let pod = Pod {
            pause: pause.pidfd.as_fd(),
            own_ipc: sandbox.spec.own_ipc,
            user_namespace: sandbox.user_namespace(),
            layout: &self.layout,
        };
        let launched =
            child::start(spec, &pod, target, filter.as_deref(), stdio).map_err(|error| internal("starting", &error))?;
        Ok((launched, ends))
    }

    fn await_launch(
        &mut self,
        pid: i32,
        channel: OwnedFd,
        reply_to: ReplyTo,
        kind: LaunchKind,
    ) -> Result<Option<Answer>, Failure> {
        let token = self
            .poll
            .add(&channel, EventFlags::IN)
            .map_err(|error| internal("watching a child", &error))?;
        self.launching.insert(
            token,
            Launching {
                pid,
                channel,
                reply_to,
                kind,
            },
        );
        Ok(None)
    }

    fn running(&self, id: &str) -> Result<&Container, Failure> {
        match self.containers.get(id) {
            Some(container) if matches!(container.state, ContainerState::Running { .. }) => Ok(container),
            Some(_) => Err(Failure::new(
                FailureKind::Precondition,
                format!("container {id} is not running"),
            )),
            None => Err(Failure::new(
                FailureKind::NotFound,
                format!("container {id} does not exist"),
            )),
        }
    }

    fn signal(&mut self, id: &str, signal: i32, all: bool) -> Outcome {
        let Some(container) = self.containers.get(id) else {
            return Err(Failure::new(
                FailureKind::NotFound,
                format!("container {id} does not exist"),
            ));
        };
        if matches!(container.state, ContainerState::Ended(_)) {
            return Ok(Some(Answer::Done));
        }
        let signal = Signal::from_named_raw(signal)
            .ok_or_else(|| Failure::new(FailureKind::Precondition, format!("{signal} is not a signal")))?;
        // Ending the first process of a namespace of its own ends all others.
        if all && signal == Signal::KILL && container.spec.pid != PidNamespace::Private {
            self.layout.kill(&container.spec.cgroup.path);
        }
        match rustix::process::pidfd_send_signal(container.child.pidfd.as_fd(), signal) {
            // It has ended and is about to be reaped.
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(Some(Answer::Done)),
            Err(error) => Err(internal("sending a signal", &error.into())),
        }
    }

    fn reopen_log(&mut self, id: &str) -> Outcome {
        self.running(id)?;
        if let Some(container) = self.containers.get_mut(id) {
            container
                .reopen_log(&self.poll)
                .map_err(|error| internal("reopening the log", &error))?;
        }
        Ok(Some(Answer::Done))
    }

    fn forget(&mut self, id: &str) -> Outcome {
        match self.containers.get(id).map(|container| &container.state) {
            None => {}
            Some(ContainerState::Ended(_)) => drop(self.containers.remove(id)),
            Some(_) => {
                return Err(Failure::new(
                    FailureKind::Precondition,
                    format!("container {id} is running"),
                ));
            }
        }
        Ok(Some(Answer::Done))
    }

    fn stop(&mut self, from: ReplyTo) -> Outcome {
        self.stopping = Some(from);
        if self.sandbox.is_none() {
            // Nothing was ever made: there is nothing to wait for but the connections' end.
            self.connections.clear();
        }
        self.kill_all();
        Ok(None)
    }

    fn exec(
        &mut self,
        from: ReplyTo,
        id: &str,
        process: &Process,
        stdio: Stdio,
        mut fds: VecDeque<OwnedFd>,
    ) -> Outcome {
        let filter = filter_for(&mut self.filters, process)?;
        let container = self.running(id)?;
        let mut take = |wanted: bool| wanted.then(|| fds.pop_front()).flatten();
        let stdio = if process.tty {
            ChildStdio::default()
        } else {
            ChildStdio {
                stdin: take(stdio.stdin),
                stdout: take(stdio.stdout),
                stderr: take(stdio.stderr),
            }
        };
        let place = child::RunningContainer {
            spec: &container.spec,
            init: container.child.pidfd.as_fd(),
            layout: &self.layout,
            user_namespace: self.sandbox.as_ref().and_then(|sandbox| sandbox.spec.user_namespace),
        };
        let launched = child::exec(&place, process, filter.as_deref(), stdio);
        let Launched { child, channel } = launched.map_err(|error| internal("starting a process", &error))?;
        if let Some(connection) = self.connections.get_mut(&from.connection) {
            connection.role = Role::Exec { pid: child.pid };
        }
        self.await_launch(child.pid, channel, from, LaunchKind::Exec { terminal: None })
    }

    fn attach(&mut self, from: ReplyTo, id: String, stdio: Stdio, fds: VecDeque<OwnedFd>) -> Outcome {
        self.running(&id)?;
        if let Some(container) = self.containers.get_mut(&id) {
            let attached = container.attach(from.connection, stdio, fds, &mut self.poll);
            attached.map_err(|error| internal("attaching", &error))?;
        }
        if let Some(connection) = self.connections.get_mut(&from.connection) {
            connection.role = Role::Attach { container: id };
        }
        Ok(Some(Answer::Done))
    }

    fn resize(&mut self, from: ReplyTo, columns: u16, rows: u16) -> Outcome {
        let role = self
            .connections
            .get(&from.connection)
            .map(|connection| &connection.role);
        if let Some(Role::Attach { container }) = role
            && let Some(terminal) = self
                .containers
                .get(container)
                .and_then(|container| container.terminal.as_ref())
        {
            sys::set_terminal_size(terminal.as_fd(), columns, rows).map_err(|error| internal("resizing", &error))?;
        }
        Ok(Some(Answer::Done))
    }
}

fn filter_for(filters: &mut Filters, process: &Process) -> Result<Option<Rc<Filter>>, Failure> {
    filters
        .filter_for(process)
        .map_err(|error| Failure::new(FailureKind::Start, error.to_string()))
}

fn internal(doing: &str, error: &std::io::Error) -> Failure {
    Failure::new(FailureKind::Internal, format!("{doing}: {error}"))
}
