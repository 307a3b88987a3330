//! Putting a kubelet together.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Cache, EventRecorder, Reflector, Selection};
use cri::v1;
use parking_lot::{Mutex, RwLock};
use tokio::task::JoinSet;

use crate::cgroup::Cgroups;
use crate::container::dns::{ClusterDns, Resolver};
use crate::container::resources;
use crate::container::services::Service;
use crate::csi::{self, Csi};
use crate::features::{ReportedFeatures, RuntimeFeatures};
use crate::figures::Figures;
use crate::host_ports::HostPorts;
use crate::node::{Machine, Node, Reserved};
use crate::objects::follow::Follower;
use crate::options::{KubeletOptions, ServingCertificate};
use crate::owners::Owners;
use crate::paths::Paths;
use crate::pods::Pods;
use crate::pressure::{Measurements, Places};
use crate::pull_records::PullRecords;
use crate::rotation::Logs;
use crate::server::{self, Server};
use crate::serving_certificate::ServingRequest;
use crate::shared::Shared;
use crate::static_pods::{NodePods, StaticPods};
use crate::status::Surroundings;
use crate::user_namespaces::UserNamespaces;
use crate::volumes::VolumeFigures;
use crate::worker::PodObject;
use crate::{cgroup, eviction, images, inventory, local_volumes, pleg, pressure, rotation, sweep, volumes};

#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    #[error("failed to connect to the container runtime: {0}")]
    Runtime(#[source] cri::Error),
    #[error("failed to create the kubelet's directory {path}: {source}")]
    Directory { path: String, source: std::io::Error },
    #[error("failed to start the kubelet's server: {0}")]
    Serve(#[from] server::ServeError),
}

/// A running kubelet. Dropping it stops it; its pods run on.
pub struct Kubelet {
    server: Arc<Server>,
    tasks: JoinSet<()>,
}

/// Runs a kubelet until the future is dropped.
pub async fn run(options: KubeletOptions) -> Result<(), KubeletError> {
    let mut kubelet = Kubelet::start(options).await?;
    while kubelet.tasks.join_next().await.is_some() {}
    Ok(())
}

impl Kubelet {
    /// Adopts what runs already and starts everything. Returns when the kubelet knows what its runtime has.
    pub async fn start(options: KubeletOptions) -> Result<Kubelet, KubeletError> {
        let options = KubeletOptions {
            client: options.client.named("kubelet"),
            ..options
        };
        let figures = Arc::new(Figures::default());
        let options = KubeletOptions {
            root_dir: make_directories(&options)?,
            runtime: cri::observe(options.runtime.clone(), figures.clone()),
            ..options
        };
        let version = options.runtime.version(v1::VersionRequest::default());
        let status = options.runtime.status(v1::StatusRequest::default());
        let (version, status, found) = tokio::join!(version, status, inventory::take(&*options.runtime));
        let version = version.map_err(KubeletError::Runtime)?;
        let found = found.map_err(KubeletError::Runtime)?;
        let features = Arc::new(RuntimeFeatures::default());
        features.put(status.as_ref().map(ReportedFeatures::from_status).unwrap_or_default());
        let pull_records = open_pull_records(&options).await?;
        let machine = Machine::detect(&Measurements::take(&Places::on(&options.root_dir)));
        let events = EventRecorder::start(options.client.clone(), "kubelet", &options.node_name);
        let mut tasks = JoinSet::new();
        let services = reflect_services(&options, &mut tasks);
        let pods = Arc::new_cyclic(|pods: &std::sync::Weak<Pods>| {
            let pods = pods.clone();
            let notify = move |uid: &str| {
                if let Some(pods) = pods.upgrade() {
                    pods.nudge(uid);
                }
            };
            let surroundings = Surroundings {
                host_ips: options.node_ips.iter().map(ToString::to_string).collect(),
                runtime_name: version.runtime_name.clone(),
                features: features.clone(),
            };
            let notify = Arc::new(notify);
            let shared = share(
                &options,
                &machine,
                surroundings,
                &events,
                Opened {
                    services,
                    pull_records,
                    figures,
                },
                notify,
            );
            Pods::new(Arc::new(shared), found)
        });
        let shared = pods.shared().clone();
        let node_pods = follow_pods(&options, &pods, &mut tasks);
        tasks.spawn(pleg::run(shared.clone(), pods.clone()));
        tasks.spawn(eviction::watch(options.clone(), pods.clone(), node_pods.clone()));
        tasks.spawn(eviction::watch_local_storage(pods.clone(), node_pods.clone()));
        tasks.spawn(images::collect(
            shared.clone(),
            options.image_gc,
            options.root_dir.clone(),
        ));
        tasks.spawn(rotation::keep(shared.clone(), options.container_logs));
        if options.local_volumes_dir.is_some() {
            tasks.spawn(local_volumes::remove_released(shared.clone()));
        }
        tasks.spawn(csi::watch(shared.clone()));
        tasks.spawn(csi::keep_stats(shared.clone()));
        limit_pods(&shared.cgroups, &machine, &options.reserved);
        let pressure = shared.pressure.clone();
        let node = Node::new(options.clone(), machine, &version, events, features, pressure);
        tasks.spawn(node.run());
        let server = Arc::new(Server::new(shared, node_pods, options.configuration()));
        if let Some(serving) = &options.server {
            let listening = server::listen(serving).await?;
            if let ServingCertificate::Requested { directory, authority } = &serving.certificate {
                let request = ServingRequest {
                    client: options.client.clone(),
                    node_name: options.node_name.clone(),
                    node_ips: options.node_ips.clone(),
                    directory: directory.clone(),
                    authority: authority.clone(),
                };
                tasks.spawn(request.keep(listening.certificates.clone()));
            }
            tasks.spawn(server::serve(listening, serving.clone(), server.clone()));
        }
        Ok(Kubelet { server, tasks })
    }

    /// Answers requests as the server on port 10250 does, for callers in this process who have decided who may ask.
    pub fn handler(&self) -> Arc<Server> {
        self.server.clone()
    }

    /// Waits until the kubelet stops, which it does only when something in it fails.
    pub async fn stopped(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Makes what is missing for root and its group alone, as upstream does. The result is the kubelet's directory by the path
/// that the kernel knows it by, for mounts in it are found by that.
fn make_directories(options: &KubeletOptions) -> Result<PathBuf, KubeletError> {
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |source| KubeletError::Directory { path, source }
    };
    let make = |path: &Path| {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o750).create(path).map_err(failed(path))
    };
    make(&options.root_dir)?;
    make(&options.pod_logs_dir)?;
    let root = options.root_dir.canonicalize().map_err(failed(&options.root_dir))?;
    if let Err(error) = volumes::mounts::share(&root) {
        tracing::warn!(%error, path = %root.display(), "the kubelet's directory cannot be made a shared mount");
    }
    let pods = root.join("pods");
    make(&pods)?;
    // Other users have no business among the files of pods, whoever made the directory.
    let mode = pods.metadata().map_err(failed(&pods))?.permissions().mode();
    let closed = std::fs::Permissions::from_mode(mode & 0o7750);
    std::fs::set_permissions(&pods, closed).map_err(failed(&pods))?;
    Ok(root)
}

async fn open_pull_records(options: &KubeletOptions) -> Result<PullRecords, KubeletError> {
    let records = PullRecords::open(&options.root_dir).map_err(|source| KubeletError::Directory {
        path: options.root_dir.display().to_string(),
        source,
    })?;
    if records.has_interrupted_pulls() {
        let listed = options.runtime.list_images(v1::ListImagesRequest::default()).await;
        records.adopt(&listed.map_err(KubeletError::Runtime)?.images);
    }
    Ok(records)
}

/// Keeps processes, and what is reserved, for the machine itself: pods cannot take all that there is.
fn limit_pods(cgroups: &Cgroups, machine: &Machine, reserved: &Reserved) {
    if reserved.cpu_milli > 0 || reserved.memory_bytes > 0 {
        let (cpu, memory) = (machine.cpu_milli_for_pods(reserved), machine.memory_for_pods(reserved));
        if let Err(error) = cgroups.limit_all(cpu, memory) {
            tracing::warn!(%error, "Failed to limit the cgroup of all pods to the node's allocatable resources; pods can use what is reserved");
        }
    }
    let Some(limit) = pressure::max_processes().map(cgroup::processes_for_pods) else {
        return tracing::warn!("Failed to read the kernel's limit on processes; the processes of pods are not limited");
    };
    let limit = limit.saturating_sub(reserved.pids).max(1);
    if let Err(error) = cgroups.limit_processes(limit) {
        tracing::warn!(%error, limit, "Failed to limit the number of processes in the cgroup of all pods");
    }
}

/// What is there before any pod is.
struct Opened {
    services: Arc<Cache<Service>>,
    pull_records: PullRecords,
    figures: Arc<Figures>,
}

fn share(
    options: &KubeletOptions,
    machine: &Machine,
    around: Surroundings,
    events: &EventRecorder,
    opened: Opened,
    notify: crate::objects::follow::Notify,
) -> Shared {
    let Opened {
        services,
        pull_records,
        figures,
    } = opened;
    let (starts, pulls, status_writes) = Shared::semaphores();
    let resolver = std::fs::read_to_string(&options.resolv_conf).unwrap_or_default();
    Shared {
        client: options.client.clone(),
        runtime: options.runtime.clone(),
        events: events.clone(),
        objects: Follower::new(options.client.clone(), notify),
        owners: Owners::default(),
        services,
        paths: paths(options),
        cgroups: Cgroups::detect(&options.cgroup_root, options.pod_max_pids),
        cluster_dns: ClusterDns {
            servers: options.cluster_dns.iter().map(ToString::to_string).collect(),
            domain: options.cluster_domain.clone(),
        },
        host_resolver: Resolver::parse(&resolver),
        node_name: options.node_name.clone(),
        around,
        machine: resources::Machine::detect(i64::try_from(machine.memory_bytes).unwrap_or(i64::MAX)),
        allocatable: RwLock::new(machine.allocatable(options.max_pods, &options.eviction_hard, &options.reserved)),
        held: Mutex::default(),
        host_ports: HostPorts::new(options.reserved_ports()),
        pull_records,
        sysctls: options.sysctls.clone(),
        user_namespaces: UserNamespaces::load(
            &Paths::new(&options.root_dir, &options.pod_logs_dir),
            options.max_pods as usize,
        ),
        logs: Logs::default(),
        container_logs: options.container_logs,
        volumes: VolumeFigures::default(),
        figures,
        csi: Csi::default(),
        pressure: Arc::default(),
        starts,
        pulls,
        status_writes,
    }
}

fn paths(options: &KubeletOptions) -> Paths {
    let paths = Paths::new(&options.root_dir, &options.pod_logs_dir);
    match &options.local_volumes_dir {
        Some(directory) => paths.with_local_volumes(directory),
        None => paths,
    }
}

fn reflect_services(options: &KubeletOptions, tasks: &mut JoinSet<()>) -> Arc<Cache<Service>> {
    let services = Arc::new(Cache::default());
    let api = options.client.resource(&api::kinds::service::SERVICE);
    tasks.spawn(Reflector::new(api, Selection::default(), services.clone()).run());
    services
}

/// Follows static pods and the pods bound to this node; each change reaches the pod's worker at once.
fn follow_pods(options: &KubeletOptions, pods: &Arc<Pods>, tasks: &mut JoinSet<()>) -> NodePods {
    let cache: Arc<Cache<PodObject>> = Arc::new(Cache::default());
    let statics = StaticPods::new(options);
    statics.load(options, pods, &cache);
    let (subscriber, mirrors) = (pods.clone(), statics.clone());
    cache.on_change(move |old, new| {
        let is_mirror = |object: &&Arc<PodObject>| object.pod.is_mirror();
        if old.or(new).is_some_and(|object| is_mirror(&object)) {
            return mirrors.nudge();
        }
        subscriber.changed(old, new);
    });
    let selection = Selection {
        field_selector: format!("spec.nodeName={}", options.node_name),
        ..Selection::default()
    };
    let api = options.client.resource(&api::kinds::pod::POD);
    tasks.spawn(Reflector::new(api, selection, cache.clone()).run());
    tasks.spawn(statics.clone().run(options.clone(), pods.clone(), cache.clone()));
    let node_pods = NodePods::new(cache.clone(), statics.clone());
    let (known, pods) = (node_pods.clone(), pods.clone());
    tasks.spawn(async move {
        cache.synced().await;
        statics.nudge();
        pods.remove_orphans();
        tokio::join!(
            csi::keep_unstaged(pods.shared().clone()),
            sweep::run(known, pods.clone())
        );
    });
    node_pods
}
