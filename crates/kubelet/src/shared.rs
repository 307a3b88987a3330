//! What all workers of one kubelet share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::{Cache, Client, EventRecorder, EventType, Object, ObjectReference};
use cri::Runtime;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Semaphore;

use crate::admission::SysctlRules;
use crate::cgroup::Cgroups;
use crate::container::dns::{ClusterDns, Resolver};
use crate::container::fields::Facts;
use crate::container::resources::Machine;
use crate::container::sandbox::SandboxContext;
use crate::container::services::Service;
use crate::csi::Csi;
use crate::figures::Figures;
use crate::host_ports::HostPorts;
use crate::limits;
use crate::objects::follow::Follower;
use crate::options::LogOptions;
use crate::owners::Owners;
use crate::paths::Paths;
use crate::pod::resources::Compute;
use crate::pod::{ContainerKind, Pod};
use crate::pressure::Pressure;
use crate::pull_records::PullRecords;
use crate::rotation::Logs;
use crate::status::Surroundings;
use crate::user_namespaces::{HostIds, UserNamespaceError, UserNamespaces};
use crate::volumes::VolumeFigures;

pub struct Shared {
    pub client: Client,
    pub runtime: Arc<dyn Runtime>,
    pub events: EventRecorder,
    pub objects: Follower,
    pub owners: Owners,
    pub services: Arc<Cache<Service>>,
    pub paths: Paths,
    pub cgroups: Cgroups,
    pub cluster_dns: ClusterDns,
    pub host_resolver: Resolver,
    pub node_name: String,
    pub around: Surroundings,
    pub machine: Machine,
    /// What pods may use of this node; containers without limits are told it.
    pub allocatable: RwLock<BTreeMap<String, String>>,
    /// What the pods of this node were granted, by UID.
    pub held: Mutex<BTreeMap<String, Compute>>,
    pub host_ports: HostPorts,
    pub pull_records: PullRecords,
    pub sysctls: SysctlRules,
    pub user_namespaces: UserNamespaces,
    pub logs: Logs,
    pub container_logs: LogOptions,
    pub volumes: VolumeFigures,
    /// What is counted of the kubelet's own work.
    pub figures: Arc<Figures>,
    pub csi: Csi,
    /// What the node is running out of, as it last saw.
    pub pressure: Arc<RwLock<BTreeSet<Pressure>>>,
    pub starts: Semaphore,
    pub pulls: Semaphore,
    pub status_writes: Semaphore,
}

impl Shared {
    pub fn semaphores() -> (Semaphore, Semaphore, Semaphore) {
        (
            Semaphore::new(limits::STARTS_AT_ONCE),
            Semaphore::new(limits::PULLS_AT_ONCE),
            Semaphore::new(limits::STATUS_WRITES_AT_ONCE),
        )
    }

    pub fn facts(&self, pod_ips: Vec<String>) -> Facts {
        Facts {
            pod_ips,
            host_ips: self.around.host_ips.clone(),
            allocatable: self.allocatable.read().clone(),
        }
    }

    pub fn sandbox_context(&self, pod: &Pod) -> SandboxContext<'_> {
        SandboxContext {
            paths: &self.paths,
            host_resolver: &self.host_resolver,
            cluster_dns: &self.cluster_dns,
            node_name: &self.node_name,
            cgroup_parent: self.cgroups.parent(pod),
            host_ids: self.host_ids(pod),
        }
    }

    /// The ids of a pod with users of its own.
    pub fn host_ids(&self, pod: &Pod) -> Option<HostIds> {
        let own = pod.spec.host_users == Some(false);
        own.then(|| self.user_namespaces.ids_of(&pod.metadata.uid)).flatten()
    }

    /// Gives a pod with `hostUsers: false` its ids, if the runtime can do anything with them. Blocks on the file system.
    pub fn assign_users(&self, pod: &Pod) -> Result<(), UserNamespaceError> {
        if pod.spec.host_users != Some(false) {
            return Ok(());
        }
        if !self.around.features.user_namespaces("") {
            return Err(UserNamespaceError::Unsupported);
        }
        self.user_namespaces.assign(&self.paths, &pod.metadata.uid).map(drop)
    }

    pub fn normal(&self, pod: &Pod, container: &str, reason: &str, message: impl Into<String>) {
        let about = reference(pod, container);
        self.events.event(&about, EventType::Normal, reason, message);
    }

    pub fn warning(&self, pod: &Pod, container: &str, reason: &str, message: impl Into<String>) {
        let about = reference(pod, container);
        self.events.event(&about, EventType::Warning, reason, message);
    }
}

/// The pod, or one of its containers, as events name it.
fn reference(pod: &Pod, container: &str) -> ObjectReference {
    let metadata = &pod.metadata;
    let field = pod.container(container).map(|(kind, container)| {
        let list = match kind {
            ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
            ContainerKind::App => "containers",
            ContainerKind::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", container.name)
    });
    ObjectReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        field_path: field.unwrap_or_default(),
    }
}

impl Object for Service {
    fn decode(object: &bytes::Bytes) -> Result<Service, serde_json::Error> {
        serde_json::from_slice(object)
    }

    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}
