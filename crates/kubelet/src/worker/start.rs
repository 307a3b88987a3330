//! Creating and starting one container.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use tokio::sync::mpsc;

use super::image::ReadyImage;
use super::volumes::Mounted;
use super::{Message, hook};
use crate::beneath;
use crate::container::config::{self, ConfigError, ContainerContext};
use crate::container::env::{self, EnvError};
use crate::container::env_file::EnvFiles;
use crate::container::expand::{self, expand};
use crate::container::sandbox::{self, SandboxError};
use crate::container::{dns, services};
use crate::inspect;
use crate::objects::{self, follow::NotSynced};
use crate::observed::{Instance, Sandbox};
use crate::owners::RuntimeObject;
use crate::plan::CONFIG_ERROR;
use crate::pod::{Container, Pod};
use crate::probe::Target;
use crate::shared::Shared;
use crate::volumes::{self, MountSource};

/// A hook without an end of its own is not waited for longer than this.
const POST_START_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Exists where the kernel has SELinux and the host uses it.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// Everything a start needs from its pod's worker.
pub struct Start {
    pub container: String,
    pub attempt: u32,
    pub image: ReadyImage,
    pub sandbox: Sandbox,
    pub pod_ips: Vec<String>,
    pub volumes: Mounted,
    /// The instance whose processes an ephemeral container wants to see.
    pub target_id: String,
}

/// Why a container did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] ContextError),
    #[error(transparent)]
    Create(cri::Error),
    #[error(transparent)]
    Run(cri::Error),
    #[error("PostStartHook failed")]
    PostStart,
}

impl StartError {
    /// The reason that the container waits for, as its status says it.
    pub fn reason(&self) -> &'static str {
        match self {
            StartError::Config(_) => CONFIG_ERROR,
            StartError::Create(_) => "CreateContainerError",
            StartError::Run(_) => "RunContainerError",
            StartError::PostStart => "PostStartHookError",
        }
    }
}

/// Why a container cannot be described to the runtime.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    #[error(transparent)]
    Objects(#[from] NotSynced),
    #[error(transparent)]
    Environment(#[from] EnvError),
    #[error(transparent)]
    Container(#[from] ConfigError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error("missing value for {0:?}")]
    SubpathVariables(Vec<String>),
    #[error("failed to expand subPathExpr: {0}")]
    SubpathLength(#[from] expand::TooLarge),
    #[error("volume {0:?} is not mounted")]
    VolumeNotMounted(String),
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    Subpath { volume: String, container: String },
    #[error("failed to write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
    #[error("the preparation of the container's files was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// Starts a container and runs its postStart hook. The instance is reported as soon as it runs.
pub async fn run(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    start: Start,
    report: mpsc::Sender<Message>,
) -> Result<(), StartError> {
    let Some((_, container)) = pod.container(&start.container) else {
        return Ok(());
    };
    let result = begin(shared, pod, container, &start, &report).await;
    let instance =
        result.inspect_err(|error| shared.warning(pod, &container.name, "Failed", format!("Error: {error}")))?;
    post_start(shared, pod, container, &start, &instance).await
}

async fn begin(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    container: &Container,
    start: &Start,
    report: &mpsc::Sender<Message>,
) -> Result<Instance, StartError> {
    let context = context(shared, pod, container, start).await?;
    let config = config::config(pod, container, &context).map_err(ContextError::from)?;
    warn_of_selinux(shared, pod, container, &config);
    let sandbox_config = sandbox::config(pod, start.sandbox.attempt, &shared.sandbox_context(pod));
    // The semaphore is never closed.
    let permit = shared.starts.acquire().await;
    let create = v1::CreateContainerRequest {
        pod_sandbox_id: start.sandbox.id.clone(),
        config: Some(config),
        sandbox_config: Some(sandbox_config.map_err(ContextError::from)?),
    };
    let created = shared.runtime.create_container(create).await;
    let id = created.map_err(StartError::Create)?.container_id;
    // Known before it runs, so that not even the shortest life is missed.
    let object = RuntimeObject::ContainerIn(start.sandbox.id.clone());
    shared.owners.put(&id, &pod.metadata.uid, object);
    let log = shared.paths.container_log(pod, container, start.attempt);
    shared.logs.put(&id, log);
    shared.normal(pod, &container.name, "Created", "Container created");
    let request = v1::StartContainerRequest {
        container_id: id.clone(),
    };
    let started = shared.runtime.start_container(request).await;
    drop(permit);
    let found = inspect::container(&*shared.runtime, &id, &start.sandbox.id).await;
    let instance = found.ok().flatten().unwrap_or_else(|| unseen(container, start, &id));
    let _ = report.send(Message::Container(instance.clone())).await;
    started.map_err(StartError::Run)?;
    shared.normal(pod, &container.name, "Started", "Container started");
    trace::mark("kubelet/container-started", pod.mark_name(), pod.metadata.uid.clone());
    Ok(instance)
}

/// Says that SELinux options have no effect where the kernel does not use them, as every runtime leaves them out then.
fn warn_of_selinux(shared: &Shared, pod: &Pod, container: &Container, config: &v1::ContainerConfig) {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let given = security.is_some_and(|security| security.selinux_options.is_some());
    if given && !Path::new(SELINUX).exists() {
        let message = "seLinuxOptions have no effect: SELinux is not enabled on this node";
        shared.warning(pod, &container.name, "SELinuxNotEnabled", message);
    }
}

/// An instance that was just made but that the runtime cannot describe.
fn unseen(container: &Container, start: &Start, id: &str) -> Instance {
    Instance {
        id: id.to_owned(),
        name: container.name.clone(),
        sandbox_id: start.sandbox.id.clone(),
        attempt: start.attempt,
        created_at: crate::moment::Moment::now(),
        hash: container.hash(),
        ..Instance::default()
    }
}

/// What the container's variables refer to in files of the pod.
async fn env_files(shared: &Arc<Shared>, pod: &Arc<Pod>, container: &Container) -> Result<EnvFiles, ContextError> {
    let sources = container.env.iter().filter_map(|variable| variable.value_from.as_ref());
    if sources.into_iter().all(|source| source.file_key_ref.is_none()) {
        return Ok(EnvFiles::default());
    }
    let (shared, pod, container) = (shared.clone(), pod.clone(), container.clone());
    let read = tokio::task::spawn_blocking(move || EnvFiles::read(&shared.paths, &pod, &container));
    Ok(read.await?)
}

async fn context(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    container: &Container,
    start: &Start,
) -> Result<ContainerContext, ContextError> {
    let names = objects::environment_objects(container);
    let found = shared.objects.find(&pod.metadata.namespace, names).await;
    let found = found?;
    // Without an API server there are no Services, and static pods run all the same.
    if !pod.is_static() {
        shared.services.synced().await;
    }
    let all = shared.services.all();
    let links = pod.spec.enable_service_links.unwrap_or(true);
    let services = services::variables(all.iter().map(|service| &**service), &pod.metadata.namespace, links);
    let facts = shared.facts(start.pod_ips.clone());
    let files = env_files(shared, pod, container).await?;
    let environment = env::compute(pod, container, services, &found, &files, &facts)?;
    let mut context = ContainerContext {
        attempt: start.attempt,
        image_ref: start.image.reference.clone(),
        image_user: start.image.user.clone(),
        environment,
        machine: shared.machine,
        supports_recursive_read_only: shared.around.features.recursive_read_only_mounts(""),
        target_id: start.target_id.clone(),
        host_ids: shared.host_ids(pod),
        seccomp_root: shared.paths.seccomp(),
        log_max_bytes: shared.container_logs.max_bytes,
        ..ContainerContext::default()
    };
    add_volumes(&mut context, &start.volumes);
    let (shared, pod, container) = (shared.clone(), pod.clone(), container.clone());
    let pod_ips = start.pod_ips.clone();
    let prepared = tokio::task::spawn_blocking(move || {
        prepare_files(&shared, &pod, &container, &pod_ips, &mut context)?;
        Ok(context)
    });
    prepared.await?
}

fn add_volumes(context: &mut ContainerContext, volumes: &Mounted) {
    for (name, volume) in volumes {
        let name = name.clone();
        if volume.read_only {
            context.read_only_volumes.insert(name.clone());
        }
        match &volume.source {
            MountSource::Path(path) => _ = context.volumes.insert(name, path.clone()),
            MountSource::Image(image) => _ = context.volume_images.insert(name, image.clone()),
            MountSource::Device(device) => _ = context.volume_devices.insert(name, device.clone()),
        }
    }
}

/// The files a container needs before it starts. Blocks on the file system.
fn prepare_files(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    pod_ips: &[String],
    context: &mut ContainerContext,
) -> Result<(), ContextError> {
    let (uid, root) = (&pod.metadata.uid, shared.paths.root());
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let subpath = match mount.sub_path_expr.as_str() {
            "" => mount.sub_path.clone(),
            expression => expand_subpath(expression, context)?,
        };
        if subpath.is_empty() {
            continue;
        }
        if context.volume_images.contains_key(&mount.name) {
            context.image_subpaths.insert(index, subpath);
            continue;
        }
        let volume = context.volumes.get(&mount.name);
        let volume = volume.ok_or_else(|| ContextError::VolumeNotMounted(mount.name.clone()))?;
        let target = shared.paths.subpath(uid, &mount.name, &container.name, index);
        volumes::subpath::bind(root, volume, &subpath, &target).map_err(|error| {
            // The user is not told more, for it would say what there is on the host.
            tracing::warn!(pod = pod.key(), container = container.name, %error, "Failed to prepare a subPath");
            ContextError::Subpath {
                volume: mount.name.clone(),
                container: container.name.clone(),
            }
        })?;
        context.subpaths.insert(index, target);
    }
    let failed = |path: &Path, source: io::Error| ContextError::Write {
        path: path.to_owned(),
        source,
    };
    let hosts = shared.paths.hosts_file(uid);
    if !hosts.exists() {
        let host_file = match pod.spec.host_network {
            true => std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
            false => String::new(),
        };
        let text = dns::hosts_file(pod, pod_ips, &shared.cluster_dns.domain, &host_file);
        beneath::write_file(root, &hosts, text.as_bytes(), 0o644).map_err(|error| failed(&hosts, error))?;
    }
    context.hosts_file = Some(hosts);
    if !container.termination_message_path.is_empty() {
        let message = shared.paths.message_file(uid, &container.name, context.attempt);
        beneath::write_file(root, &message, b"", 0o666).map_err(|error| failed(&message, error))?;
        context.message_file = Some(message);
    }
    let log = shared.paths.container_log(pod, container, context.attempt);
    let logs = log.parent().map(PathBuf::from).unwrap_or_default();
    let made = beneath::make_dir(shared.paths.logs(), &logs, 0o755);
    made.map(drop).map_err(|error| failed(&logs, error))
}

/// Unlike arguments, a subpath with an unknown variable is refused rather than left as it is.
fn expand_subpath(expression: &str, context: &ContainerContext) -> Result<String, ContextError> {
    let missing = std::cell::RefCell::new(Vec::new());
    let expanded = expand(expression, expand::MAX_BYTES, |name| {
        let value = context.environment.get(name).map(str::to_owned);
        if value.is_none() {
            missing.borrow_mut().push(name.to_owned());
        }
        value
    });
    let missing = missing.into_inner();
    match missing.is_empty() {
        true => Ok(expanded?),
        false => Err(ContextError::SubpathVariables(missing)),
    }
}

/// A container whose hook fails is killed; its restart policy says what then.
async fn post_start(
    shared: &Arc<Shared>,
    pod: &Pod,
    container: &Container,
    start: &Start,
    instance: &Instance,
) -> Result<(), StartError> {
    let Some(handler) = &container.lifecycle.post_start else {
        return Ok(());
    };
    let target = Target {
        runtime: shared.runtime.clone(),
        container: container.clone(),
        container_id: instance.id.clone(),
        address: start.pod_ips.first().cloned().unwrap_or_default(),
    };
    let Err(error) = hook::run(handler, &target, POST_START_LIMIT).await else {
        return Ok(());
    };
    tracing::debug!(pod = pod.key(), container = container.name, %error, "PostStart hook failed");
    shared.warning(pod, &container.name, "FailedPostStartHook", "PostStartHook failed");
    shared.normal(pod, &container.name, "Killing", "FailedPostStartHook");
    let request = v1::StopContainerRequest {
        container_id: instance.id.clone(),
        timeout: pod.grace().as_secs() as i64,
    };
    if let Err(error) = shared.runtime.stop_container(request).await {
        tracing::warn!(pod = pod.key(), %error, "Failed to stop a container whose postStart hook failed");
    }
    Err(StartError::PostStart)
}
