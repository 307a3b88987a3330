//! What the container runtime says about one pod, in the terms the planner thinks in.

use std::cmp::Reverse;

use cri::v1;

use crate::container::labels;
use crate::moment::Moment;
use crate::pod::LinuxUser;

/// The sandboxes and containers of one pod, newest first.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Instance>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: Moment,
    /// Empty for pods on the host's network.
    pub ips: Vec<String>,
}

/// One instance of a container; a restart makes another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    pub id: String,
    pub name: String,
    pub sandbox_id: String,
    /// How many instances came before it: the restart count.
    pub attempt: u32,
    pub state: State,
    pub created_at: Moment,
    pub started_at: Option<Moment>,
    /// What the pod asked for.
    pub image: String,
    /// What the runtime found under that name.
    pub image_ref: String,
    /// Of the spec it was made from.
    pub hash: String,
    /// Who its first process was started as; none where the runtime does not say.
    pub user: Option<LinuxUser>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Created,
    Running,
    Exited(Exit),
    /// The runtime has lost track of it.
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    /// The termination message, or what the runtime says.
    pub message: String,
    pub finished_at: Option<Moment>,
}

impl Observed {
    /// The sandbox that containers are started in.
    pub fn current_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|sandbox| sandbox.ready)
    }

    /// The newest instance of a container, in whichever sandbox.
    pub fn latest(&self, name: &str) -> Option<&Instance> {
        self.containers.iter().find(|instance| instance.name == name)
    }

    /// The newest instance in the current sandbox; those of a lost sandbox must be started again.
    pub fn current(&self, name: &str) -> Option<&Instance> {
        let sandbox = self.current_sandbox()?;
        self.latest(name).filter(|instance| instance.sandbox_id == sandbox.id)
    }

    /// The instance before the newest.
    pub fn previous(&self, name: &str) -> Option<&Instance> {
        self.containers.iter().filter(|instance| instance.name == name).nth(1)
    }

    pub fn instance(&self, id: &str) -> Option<&Instance> {
        self.containers.iter().find(|instance| instance.id == id)
    }

    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Takes the newest state of a sandbox.
    pub fn put_sandbox(&mut self, sandbox: Sandbox) {
        self.sandboxes.retain(|known| known.id != sandbox.id);
        self.sandboxes.push(sandbox);
        self.sandboxes
            .sort_by_key(|known| Reverse((known.attempt, known.created_at)));
    }

    /// A sandbox that is known has ended.
    pub fn end_sandbox(&mut self, id: &str) {
        for sandbox in self.sandboxes.iter_mut().filter(|sandbox| sandbox.id == id) {
            sandbox.ready = false;
        }
    }

    /// Takes the newest state of a container.
    pub fn put_container(&mut self, instance: Instance) {
        self.containers.retain(|known| known.id != instance.id);
        self.containers.push(instance);
        self.containers
            .sort_by_key(|known| Reverse((known.attempt, known.created_at)));
    }
}

impl Instance {
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// It may still have a process.
    pub fn is_alive(&self) -> bool {
        matches!(self.state, State::Running | State::Unknown)
    }

    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }
}

impl Sandbox {
    pub fn from_status(status: &v1::PodSandboxStatus) -> Sandbox {
        let network = status.network.as_ref();
        let first = network.map(|network| network.ip.clone()).filter(|ip| !ip.is_empty());
        let more = network
            .map(|network| network.additional_ips.as_slice())
            .unwrap_or_default();
        Sandbox {
            id: status.id.clone(),
            attempt: status.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
            ready: status.state() == v1::PodSandboxState::SandboxReady,
            created_at: Moment::from_nanos(status.created_at).unwrap_or_default(),
            ips: first.into_iter().chain(more.iter().map(|ip| ip.ip.clone())).collect(),
        }
    }
}

impl Instance {
    /// `sandbox_id` comes from the list or from the creation, for the CRI leaves it out of a container's status.
    pub fn from_status(status: &v1::ContainerStatus, sandbox_id: &str) -> Instance {
        let metadata = status.metadata.clone().unwrap_or_default();
        let image = status.image.as_ref();
        Instance {
            id: status.id.clone(),
            name: metadata.name,
            sandbox_id: sandbox_id.to_owned(),
            attempt: metadata.attempt,
            state: state_of(status),
            created_at: Moment::from_nanos(status.created_at).unwrap_or_default(),
            started_at: Moment::from_nanos(status.started_at),
            image: image.map(|image| image.image.clone()).unwrap_or_default(),
            image_ref: status.image_ref.clone(),
            hash: status
                .annotations
                .get(labels::CONTAINER_HASH)
                .cloned()
                .unwrap_or_default(),
            user: status.user.as_ref().and_then(|user| user.linux.as_ref()).map(user),
        }
    }
}

fn user(user: &v1::LinuxContainerUser) -> LinuxUser {
    LinuxUser {
        uid: user.uid,
        gid: user.gid,
        supplemental_groups: user.supplemental_groups.clone(),
    }
}

fn state_of(status: &v1::ContainerStatus) -> State {
    match status.state() {
        v1::ContainerState::ContainerCreated => State::Created,
        v1::ContainerState::ContainerRunning => State::Running,
        v1::ContainerState::ContainerUnknown => State::Unknown,
        v1::ContainerState::ContainerExited => State::Exited(Exit {
            code: status.exit_code,
            signal: None,
            reason: exit_reason(status),
            message: status.message.clone(),
            finished_at: Moment::from_nanos(status.finished_at),
        }),
    }
}

fn exit_reason(status: &v1::ContainerStatus) -> String {
    match (status.reason.as_str(), status.exit_code) {
        ("", 0) => "Completed".to_owned(),
        ("", _) => "Error".to_owned(),
        (reason, _) => reason.to_owned(),
    }
}
