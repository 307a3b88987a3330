//! Containers: from CreateContainer to RemoveContainer.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::v1;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::events::EventKind;
use super::names::container_name;
use super::records::{self, ContainerRecord};
use super::sandbox::Sandbox;
use super::{Embedded, doing, new_id, now_ns};
use crate::image::reference::Reference;
use crate::image::{self, Image, SKELETON};
use crate::link::LinkError;
use crate::plan::{self, ContainerInput, HostAppArmor};
use crate::protocol::{Answer, Call};
use crate::spec::Exit;
use crate::tree;
use crate::within;

/// The largest `/etc/passwd` or `/etc/group` of an image that is read.
const MAX_ACCOUNTS_BYTES: u64 = 1 << 20;

/// The largest seccomp profile that is read. Docker's own has 12 KiB.
const MAX_SECCOMP_PROFILE_BYTES: u64 = 1 << 20;

/// The record's name in a container's directory.
pub const RECORD: &str = "record";

/// Exists where the kernel has SELinux and the host uses it.
const SELINUX: &str = "/sys/fs/selinux/enforce";

/// How long a killed container may take to end. One that takes longer is stuck in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// The exit code of a container whose end nobody saw.
const UNKNOWN_EXIT_CODE: i32 = 255;
/// The exit code of a container whose program could not be executed.
const START_FAILURE_EXIT_CODE: i32 = 128;

/// One container. Its record and configuration never change; its phase and resources do.
pub struct Container {
    pub record: ContainerRecord,
    pub config: v1::ContainerConfig,
    pub phase: watch::Sender<Phase>,
    pub resources: Mutex<Option<v1::LinuxContainerResources>>,
    changing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    Created,
    Running { started_at_ns: i64 },
    Exited(Exit),
}

impl Container {
    pub fn new(record: ContainerRecord, config: v1::ContainerConfig, phase: Phase) -> Self {
        let resources = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        Self {
            record,
            config,
            phase: watch::Sender::new(phase),
            resources: Mutex::new(resources),
            changing: tokio::sync::Mutex::default(),
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub fn is_running(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Running { .. })
    }

    /// Moves to a later phase. A report may arrive late; it never moves back. False when nothing changed.
    pub fn advance(&self, next: Phase) -> bool {
        let rank = |phase: &Phase| match phase {
            Phase::Created => 0,
            Phase::Running { .. } => 1,
            Phase::Exited(_) => 2,
        };
        self.phase.send_if_modified(|phase| {
            let later = rank(&next) > rank(phase);
            if later {
                *phase = next;
            }
            later
        })
    }

    async fn wait_until_exited(&self, limit: Duration) -> bool {
        let mut phase = self.phase.subscribe();
        let exited = phase.wait_for(|phase| matches!(phase, Phase::Exited(_)));
        tokio::time::timeout(limit, exited).await.is_ok()
    }
}

impl Embedded {
    pub(super) fn create_container_in(&self, request: v1::CreateContainerRequest) -> cri::Result<String> {
        let mut config = request
            .config
            .ok_or_else(|| cri::Error::invalid("a container needs a configuration"))?;
        if config.metadata.is_none() {
            return Err(cri::Error::invalid("container config must include metadata"));
        }
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        sandbox.link()?;
        let id = new_id()?;
        let reserved = self
            .names
            .reserve("container", container_name(&config, &sandbox.config), &id)?;
        let name = config
            .image
            .as_ref()
            .map(|image| image.image.clone())
            .unwrap_or_default();
        let image = self.images.find(&name);
        let image = image.ok_or_else(|| cri::Error::not_found(format!("image {name:?} is not present")))?;
        let image_ref = image.reference_for(config.image.as_ref());
        // Kubelets name images by id; people want to read the name in the container's status.
        if let (Some(spec), Some(tag)) = (config.image.as_mut(), image.tags.first()) {
            let asked = spec.user_specified_image.clone();
            let asked = Reference::parse(&asked).ok().map(|asked| asked.key());
            spec.image = asked
                .filter(|asked| image.tags.contains(asked))
                .unwrap_or_else(|| tag.clone());
        }
        let record = ContainerRecord {
            image_ref,
            ..self.plan_container(&id, &sandbox, &config, &image)?
        };
        make_sources(&config)?;
        let dir = self.container_dir(&id);
        let made = [dir.clone(), dir.join("upper"), dir.join("work")]
            .iter()
            .try_for_each(std::fs::create_dir);
        let made = made.and_then(|()| records::write(&dir.join(RECORD), &record, &config));
        if let Err(error) = made {
            let _ = tree::remove(&dir);
            return Err(doing("making the container's directory")(error));
        }
        let container = Arc::new(Container::new(record, config, Phase::Created));
        self.containers.write().insert(id.clone(), container.clone());
        reserved.keep();
        self.emit(&container, EventKind::Created);
        Ok(id)
    }

    fn plan_container(
        &self,
        id: &str,
        sandbox: &Sandbox,
        config: &v1::ContainerConfig,
        image: &Image,
    ) -> cri::Result<ContainerRecord> {
        let layers: Vec<_> = image
            .layers
            .iter()
            .rev()
            .cloned()
            .chain([SKELETON.to_owned()])
            .collect();
        let dirs: Vec<_> = layers.iter().map(|layer| self.images.layer_dir(layer)).collect();
        let (passwd, group) = (account_file(&dirs, "etc/passwd")?, account_file(&dirs, "etc/group")?);
        let seccomp_profile = seccomp_profile(config)?;
        let spec = plan::container(&ContainerInput {
            id,
            config,
            sandbox: &sandbox.config,
            dir: &self.container_dir(id),
            layers_dir: self.images.layers_dir(),
            layers,
            image: &image.config,
            passwd: &passwd,
            group: &group,
            volume_images: &self.volume_images(config)?,
            seccomp_profile: &seccomp_profile,
            kernel: self.kernel,
            apparmor: self.apparmor_for(config)?,
            selinux_enabled: Path::new(SELINUX).exists(),
            cgroup_parent: &self.cgroup_parent_of(&sandbox.config),
        })?;
        Ok(ContainerRecord {
            id: id.to_owned(),
            sandbox_id: sandbox.record.id.clone(),
            created_at_ns: now_ns(),
            image_id: image.id.clone(),
            image_ref: image.digests.first().unwrap_or(&image.id).clone(),
            stop_signal: plan::stop_signal(config, &image.config),
            spec,
        })
    }

    /// What the host's AppArmor has for a container.
    fn apparmor_for(&self, config: &v1::ContainerConfig) -> cri::Result<HostAppArmor> {
        if !self.apparmor.is_enabled() {
            return Ok(HostAppArmor::Absent);
        }
        let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
        let named_loaded = match security.and_then(plan::apparmor_profile) {
            Some(name) => self
                .apparmor
                .is_loaded(name)
                .map_err(doing("reading the loaded AppArmor profiles"))?,
            None => false,
        };
        Ok(HostAppArmor::Enabled {
            default_loaded: self.apparmor.load_default().is_ok(),
            named_loaded,
        })
    }

    /// The layers of the images that a container mounts as volumes.
    fn volume_images(&self, config: &v1::ContainerConfig) -> cri::Result<BTreeMap<String, Vec<String>>> {
        let names = config.mounts.iter().filter_map(|mount| mount.image.as_ref());
        names
            .map(|spec| {
                let image = self.images.find(&spec.image);
                let image =
                    image.ok_or_else(|| cri::Error::not_found(format!("image {:?} is not present", spec.image)))?;
                Ok((spec.image.clone(), image.layers.iter().rev().cloned().collect()))
            })
            .collect()
    }

    pub(super) fn cgroup_parent_of(&self, sandbox: &v1::PodSandboxConfig) -> PathBuf {
        match sandbox.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()) {
            Some(parent) if !parent.is_empty() => PathBuf::from(parent),
            _ => self.cgroup_parent.clone(),
        }
    }

    pub(super) async fn start_container_of(&self, container: &Arc<Container>) -> cri::Result<()> {
        let _changing = container.changing.lock().await;
        if container.phase() != Phase::Created {
            let id = &container.record.id;
            return Err(cri::Error::precondition(format!(
                "container {id:?} is not in created state"
            )));
        }
        let sandbox = self.sandbox(&container.record.sandbox_id)?;
        let started = sandbox
            .link()?
            .call(Call::Start(Box::new(container.record.spec.clone())))
            .await;
        match started {
            Ok(Answer::Started { at_ns, .. }) => {
                container.advance(Phase::Running { started_at_ns: at_ns });
                sandbox.mark("runtime/container-started");
                self.emit(container, EventKind::Started);
                Ok(())
            }
            Ok(_) => Err(LinkError::Unexpected.into()),
            Err(error) => {
                let failure = error.to_string();
                let exit = Exit {
                    code: START_FAILURE_EXIT_CODE,
                    finished_at_ns: now_ns(),
                    failure,
                    ..Default::default()
                };
                container.advance(Phase::Exited(exit));
                Err(error.into())
            }
        }
    }

    /// Asks a container to end, and kills it when it has not within `timeout`.
    pub(super) async fn stop_container_of(&self, container: &Arc<Container>, timeout: Duration) -> cri::Result<()> {
        if !container.is_running() {
            return Ok(());
        }
        let sandbox = self.sandbox(&container.record.sandbox_id)?;
        let Ok(link) = sandbox.link() else {
            // The sandbox is on its way out and takes the container with it.
            return self.await_kill(container).await;
        };
        let signal = |signal: i32, all: bool| Call::Signal {
            container: container.record.id.clone(),
            signal,
            all,
        };
        if !timeout.is_zero() {
            signalled(link.call(signal(container.record.stop_signal, false)).await)?;
            if container.wait_until_exited(timeout).await {
                return Ok(());
            }
        }
        signalled(link.call(signal(libc::SIGKILL, true)).await)?;
        self.await_kill(container).await
    }

    async fn await_kill(&self, container: &Container) -> cri::Result<()> {
        if container.wait_until_exited(KILL_TIMEOUT).await {
            return Ok(());
        }
        let id = &container.record.id;
        let message = format!("container {id:?} was killed but has not ended after {KILL_TIMEOUT:?}");
        Err(cri::Error::new(cri::Code::DeadlineExceeded, message))
    }

    /// Removes a container, running or not.
    pub(super) async fn remove_container_of(&self, container: &Arc<Container>) -> cri::Result<()> {
        self.stop_container_of(container, Duration::ZERO).await?;
        let _changing = container.changing.lock().await;
        let id = &container.record.id;
        if let Ok(link) = self
            .sandbox(&container.record.sandbox_id)
            .and_then(|sandbox| sandbox.link())
        {
            // A supervisor that has gone has forgotten everything.
            let _ = link.call(Call::Forget { container: id.clone() }).await;
        }
        self.layout
            .remove(&container.record.spec.cgroup.path)
            .map_err(doing("removing the container's cgroup"))?;
        let dir = self.container_dir(id);
        let removed = tokio::task::spawn_blocking(move || tree::remove(&dir)).await;
        removed
            .map_err(|error| cri::Error::internal(error.to_string()))?
            .map_err(doing("removing the container's files"))?;
        self.containers.write().remove(id);
        if let Ok(sandbox) = self.sandbox(&container.record.sandbox_id) {
            self.names.release(&container_name(&container.config, &sandbox.config));
        }
        self.cpu_samples.forget(id);
        self.emit(container, EventKind::Deleted);
        Ok(())
    }

    /// A supervisor has reported a container's end.
    pub(super) fn container_ended(&self, id: &str, exit: Exit) {
        if let Ok(container) = self.container(id)
            && container.advance(Phase::Exited(exit))
        {
            if let Ok(sandbox) = self.sandbox(&container.record.sandbox_id) {
                sandbox.mark("runtime/container-ended");
            }
            self.emit(&container, EventKind::Stopped);
        }
    }

    /// Nobody looks after the container any more: it has ended as its supervisor recorded, or nobody knows how.
    pub(super) fn presume_ended(&self, container: &Container) {
        let exit = recorded_exit(&self.container_dir(&container.record.id)).unwrap_or_else(|| {
            let started_at_ns = match container.phase() {
                Phase::Running { started_at_ns } => started_at_ns,
                _ => 0,
            };
            Exit {
                code: UNKNOWN_EXIT_CODE,
                started_at_ns,
                finished_at_ns: now_ns(),
                ..Default::default()
            }
        });
        if container.advance(Phase::Exited(exit)) {
            self.emit(container, EventKind::Stopped);
        }
    }

    pub(super) fn update_resources(&self, request: v1::UpdateContainerResourcesRequest) -> cri::Result<()> {
        let container = self.container(&request.container_id)?;
        let Some(resources) = request.linux else { return Ok(()) };
        if !container.is_running() {
            return Err(cri::Error::precondition(format!(
                "container {:?} is not running",
                container.record.id
            )));
        }
        let limits = plan::limits(&resources)?;
        self.layout
            .limit(&container.record.spec.cgroup.path, &limits)
            .map_err(doing("updating resources"))?;
        *container.resources.lock() = Some(resources);
        Ok(())
    }

    pub(super) async fn reopen_log(&self, id: &str) -> cri::Result<()> {
        let container = self.container(id)?;
        if !container.is_running() {
            return Err(cri::Error::precondition("container is not running"));
        }
        let link = self.sandbox(&container.record.sandbox_id)?.link()?;
        link.call(Call::ReopenLog {
            container: container.record.id.clone(),
        })
        .await?;
        Ok(())
    }
}

/// A signal to what has just ended, or whose supervisor has, does nothing and needs nothing.
fn signalled(result: Result<Answer, LinkError>) -> cri::Result<()> {
    match result {
        Ok(_) | Err(LinkError::Ended) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub fn recorded_exit(dir: &Path) -> Option<Exit> {
    serde_json::from_slice(&std::fs::read(dir.join("exit.json")).ok()?).ok()
}

/// The seccomp profile of the node's that a container asks for.
fn seccomp_profile(config: &v1::ContainerConfig) -> cri::Result<Vec<u8>> {
    let Some(path) = plan::seccomp_file(config) else {
        return Ok(Vec::new());
    };
    let failed =
        |error: &dyn std::fmt::Display| cri::Error::invalid(format!("cannot load seccomp profile {path:?}: {error}"));
    if !path.starts_with('/') {
        return Err(failed(&"the path is not absolute"));
    }
    let root = std::fs::File::open("/").map_err(|error| failed(&error))?;
    within::read(root.as_fd(), Path::new(path), MAX_SECCOMP_PROFILE_BYTES).map_err(|error| failed(&error))
}

fn account_file(layers: &[PathBuf], path: &str) -> cri::Result<String> {
    let read = image::read_file(layers, Path::new(path), MAX_ACCOUNTS_BYTES);
    let bytes = read.map_err(doing("reading the image's accounts"))?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A volume's source that does not exist is made as a directory, as every runtime does.
fn make_sources(config: &v1::ContainerConfig) -> cri::Result<()> {
    for mount in config.mounts.iter().filter(|mount| mount.image.is_none()) {
        let source = Path::new(&mount.host_path);
        if !source.exists() {
            std::fs::create_dir_all(source)
                .map_err(|error| doing(&format!("making the directory {}", source.display()))(error))?;
        }
    }
    Ok(())
}
