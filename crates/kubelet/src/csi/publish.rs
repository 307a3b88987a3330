//! Having a driver mount a volume for a pod: taken, attached, staged for the node, published for the pod, and given to the
//! pod's group. Every step can be done again, because a kubelet that starts does not know how far the one before it came.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csi::v1::{NodePublishVolumeRequest, NodeStageVolumeRequest};
use csi::{NodeCapabilities, NodeClient};
use rustix::fs::{FileType, fstat};

use super::attach;
use super::driver_object::DriverSpec;
use super::expand;
use super::layout::{self, VolumeData};
use super::secrets::{self, Attributes};
use super::volume::CsiVolume;
use crate::beneath::{self, Dir};
use crate::claims::BoundVolume;
use crate::paths::Paths;
use crate::pod::Pod;
use crate::shared::Shared;
use crate::volumes::{DriverError, DriverStep, MountSource, MountedVolume, PARENT_MODE, VolumeError, ownership};

/// A pod's volume that a driver has mounted.
#[derive(Clone, Debug)]
pub struct Published {
    pub volume: CsiVolume,
    pub source: MountSource,
    /// Where the driver put it.
    pub target: PathBuf,
    /// Where it is staged for the node; empty if the driver does not stage.
    pub staging: String,
    publish_context: Attributes,
}

/// Everything that one call of the driver is made from.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    pod: &'a Arc<Pod>,
    volume: &'a CsiVolume,
    spec: DriverSpec,
    client: NodeClient,
    capabilities: NodeCapabilities,
}

/// Has drivers mount the volumes of a pod that are theirs; those that are mounted are brought up to date. `before` is what
/// the worker knows to be mounted.
pub async fn set_up(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    claims: &BTreeMap<String, BoundVolume>,
    before: &BTreeMap<String, MountedVolume>,
) -> Result<BTreeMap<String, MountSource>, VolumeError> {
    let mut sources = BTreeMap::new();
    for volume in &pod.spec.volumes {
        let key = (pod.metadata.uid.clone(), volume.name.clone());
        let known = shared.csi.published.lock().get(&key).cloned();
        if let Some(known) = known.filter(|_| before.contains_key(&volume.name)) {
            republish(shared, pod, &known).await?;
            expand::expand_if_due(shared, pod, &known).await?;
            sources.insert(volume.name.clone(), known.source);
            continue;
        }
        let Some(described) = CsiVolume::describe(pod, volume, claims.get(&volume.name)) else {
            continue;
        };
        let published = publish(shared, pod, &described).await?;
        expand::expand_if_due(shared, pod, &published).await?;
        shared.volumes.ask_driver_about(&published.target);
        sources.insert(volume.name.clone(), published.source.clone());
        shared.csi.published.lock().insert(key, published);
        shared.csi.mounted.notify_one();
    }
    Ok(sources)
}

/// Drivers that ask for it are told again and again to publish what is published, with fresh tokens.
async fn republish(shared: &Arc<Shared>, pod: &Arc<Pod>, published: &Published) -> Result<(), VolumeError> {
    let volume = &published.volume;
    let failed = volume_failed(DriverStep::publish(volume.is_block), volume);
    let spec = DriverSpec::fetch(&shared.client, &volume.driver)
        .await
        .map_err(&failed)?;
    if !spec.requires_republish {
        return Ok(());
    }
    let _alone = shared.csi.locks.lock(&volume.unique_name()).await;
    let call = Call::new(shared, pod, volume, spec).await.map_err(&failed)?;
    call.publish(&published.target, &published.staging, &published.publish_context)
        .await
        .map_err(failed)
}

async fn publish(shared: &Arc<Shared>, pod: &Arc<Pod>, volume: &CsiVolume) -> Result<Published, VolumeError> {
    let staging_failed = volume_failed(DriverStep::stage(volume.is_block), volume);
    let publishing_failed = volume_failed(DriverStep::publish(volume.is_block), volume);
    let spec = DriverSpec::fetch(&shared.client, &volume.driver)
        .await
        .map_err(&publishing_failed)?;
    spec.check_mode(volume).map_err(&publishing_failed)?;
    {
        // What is taken is not unstaged any more, so that nobody has to hold the lock while an attacher works.
        let _alone = shared.csi.locks.lock(&volume.unique_name()).await;
        let (shared, uid, volume) = (shared.clone(), pod.metadata.uid.clone(), volume.clone());
        blocking(move || take(&shared.paths, &shared.node_name, &uid, &volume))
            .await
            .map_err(&publishing_failed)?;
    }
    let publish_context = match spec.attach_required && !volume.is_ephemeral {
        true => shared
            .csi
            .endings
            .unless_ended(&pod.metadata.uid, attach::wait_until_attached(shared, volume))
            .await
            .map_err(volume_failed(DriverStep::WaitForAttach, volume))?,
        false => Attributes::new(),
    };
    let _alone = shared.csi.locks.lock(&volume.unique_name()).await;
    let call = Call::new(shared, pod, volume, spec).await.map_err(&staging_failed)?;
    let staging = match volume.is_ephemeral {
        true => String::new(),
        false => call.stage(&publish_context).await.map_err(staging_failed)?,
    };
    let target = target(&shared.paths, &pod.metadata.uid, volume);
    call.publish(&target, &staging, &publish_context)
        .await
        .map_err(&publishing_failed)?;
    let source = call.settle(&target).await.map_err(publishing_failed)?;
    Ok(Published {
        volume: volume.clone(),
        source,
        target,
        staging,
        publish_context,
    })
}

impl<'a> Call<'a> {
    async fn new(
        shared: &'a Arc<Shared>,
        pod: &'a Arc<Pod>,
        volume: &'a CsiVolume,
        spec: DriverSpec,
    ) -> Result<Call<'a>, DriverError> {
        let client = connect(shared, &volume.driver).await?;
        let capabilities = client.capabilities().await?;
        Ok(Call {
            shared,
            pod,
            volume,
            spec,
            client,
            capabilities,
        })
    }

    async fn unless_ended<T>(&self, call: impl Future<Output = csi::Result<T>>) -> Result<T, DriverError> {
        let endings = &self.shared.csi.endings;
        endings.unless_ended(&self.pod.metadata.uid, call).await
    }

    /// The group that the driver itself gives the volume to.
    fn delegated_group(&self) -> Option<u32> {
        self.fs_group().filter(|_| self.capabilities.volume_mount_group)
    }

    fn fs_group(&self) -> Option<u32> {
        u32::try_from(self.pod.spec.security_context.fs_group?).ok()
    }

    /// Has the volume staged, unless it is. The result is where; nothing if the driver does not stage.
    async fn stage(&self, publish_context: &Attributes) -> Result<String, DriverError> {
        let (paths, volume) = (&self.shared.paths, self.volume);
        let place = match volume.is_block {
            true => layout::device_staging(paths, &volume.name),
            false => layout::global_mount(&layout::staged(paths, &volume.driver, &volume.handle)),
        };
        {
            let (shared, volume, place) = (self.shared.clone(), volume.clone(), place.clone());
            blocking(move || prepare_staging(&shared.paths, &volume, &place)).await?;
        }
        if !self.capabilities.stage_unstage {
            return Ok(String::new());
        }
        let staging = text(&place)?;
        let name = volume.unique_name();
        if self.shared.csi.staged.lock().contains(&name) {
            return Ok(staging);
        }
        let secrets = secrets::fetch(&self.shared.client, "NodeStageSecretRef", volume.stage_secret.as_ref()).await?;
        let request = NodeStageVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: staging.clone(),
            volume_capability: Some(volume.capability(self.capabilities, self.delegated_group())),
            secrets,
            volume_context: volume.attributes.clone(),
        };
        self.unless_ended(self.client.stage(request)).await?;
        self.shared.csi.staged.lock().insert(name);
        Ok(staging)
    }

    async fn publish(&self, target: &Path, staging: &str, publish_context: &Attributes) -> Result<(), DriverError> {
        let (client, volume) = (&self.shared.client, self.volume);
        let mut secrets = secrets::fetch(client, "NodePublishSecretRef", volume.publish_secret.as_ref()).await?;
        let mut volume_context = volume.attributes.clone();
        if self.spec.pod_info_on_mount {
            volume_context.extend(secrets::pod_attributes(self.pod, volume.is_ephemeral));
        }
        if !volume.is_block {
            let tokens = secrets::tokens(client, self.pod, &self.spec.token_requests).await?;
            match self.spec.service_account_token_in_secrets {
                true => secrets.extend(tokens),
                false => volume_context.extend(tokens),
            }
        }
        let request = NodePublishVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: publish_context.clone(),
            staging_target_path: staging.to_owned(),
            target_path: text(target)?,
            volume_capability: Some(volume.capability(self.capabilities, self.delegated_group())),
            readonly: volume.read_only,
            secrets,
            volume_context,
        };
        self.unless_ended(self.client.publish(request)).await?;
        Ok(())
    }

    /// Looks at what the driver published, and gives it to the pod's group.
    async fn settle(&self, target: &Path) -> Result<MountSource, DriverError> {
        let root = self.shared.paths.root().to_owned();
        let (target, volume) = (target.to_owned(), self.volume.clone());
        let lets_kubelet_own = !self.capabilities.volume_mount_group && self.spec.lets_kubelet_own(&volume);
        let group = self.fs_group().filter(|_| lets_kubelet_own);
        let policy = self.pod.spec.security_context.fs_group_change_policy.as_deref();
        let only_on_mismatch = policy == Some("OnRootMismatch");
        blocking(move || {
            let unusable = |source| DriverError::NotPublished {
                path: target.clone(),
                source,
            };
            if volume.is_block {
                let inner = target.strip_prefix(&root).unwrap_or(&target);
                let found = Dir::open(&root).and_then(|root| root.find(inner)).map_err(unusable)?;
                let stat = fstat(&found).map_err(|error| unusable(error.into()))?;
                return match FileType::from_raw_mode(stat.st_mode) {
                    FileType::BlockDevice => Ok(MountSource::Device(target)),
                    _ => Err(DriverError::NotADevice(target)),
                };
            }
            // Links are not followed: a driver does not choose other directories of the host.
            let directory = beneath::open_dir(&root, &target).map_err(unusable)?;
            if let Some(group) = group {
                ownership::set_group(&directory, group, only_on_mismatch).map_err(|source| DriverError::Own {
                    handle: volume.handle.clone(),
                    source,
                })?;
            }
            Ok(MountSource::Path(target))
        })
        .await
    }
}

/// Where the driver is to put the volume for a pod.
fn target(paths: &Paths, uid: &str, volume: &CsiVolume) -> PathBuf {
    match volume.is_block {
        true => layout::device_publish(paths, &volume.name).join(uid),
        false => layout::mount(&layout::published(paths, uid, &volume.name)),
    }
}

/// Writes down that the pod has the volume, before any driver hears of it. A volume for one pod is not given to another.
fn take(paths: &Paths, node: &str, uid: &str, volume: &CsiVolume) -> Result<(), DriverError> {
    let data = VolumeData::published(volume, node);
    if volume.is_read_write_once_pod() {
        let users = super::staged::users(paths, &data).map_err(|source| DriverError::Users(Box::new(source)))?;
        if users.iter().any(|user| user != uid) {
            return Err(DriverError::ReadWriteOncePod);
        }
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DriverError::Prepare { path, source }
    };
    let make = |path: &Path| beneath::make_dir(paths.root(), path, PARENT_MODE).map_err(failed(path));
    if !volume.is_block {
        let place = layout::published(paths, uid, &volume.name);
        make(&place)?;
        return data.write(paths, &place).map_err(failed(&place));
    }
    let place = layout::device_data(paths, &volume.name);
    make(&place)?;
    data.write(paths, &place).map_err(failed(&place))?;
    make(&layout::device_publish(paths, &volume.name))?;
    let links = layout::pod_devices(paths, uid);
    let target = target(paths, uid, volume);
    match rustix::fs::symlinkat(&target, make(&links)?, volume.name.as_str()) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        linked => linked.map_err(|error| failed(&links)(error.into())),
    }
}

fn prepare_staging(paths: &Paths, volume: &CsiVolume, place: &Path) -> Result<(), DriverError> {
    let failed = |source| DriverError::Prepare {
        path: place.to_owned(),
        source,
    };
    if !volume.is_block {
        let above = layout::staged(paths, &volume.driver, &volume.handle);
        beneath::make_dir(paths.root(), &above, PARENT_MODE).map_err(failed)?;
        VolumeData::staged(volume).write(paths, &above).map_err(failed)?;
    }
    beneath::make_dir(paths.root(), place, PARENT_MODE)
        .map(drop)
        .map_err(failed)
}

pub async fn connect(shared: &Shared, driver: &str) -> Result<NodeClient, DriverError> {
    let connected = shared.csi.drivers.connect(shared.paths.root(), driver).await;
    connected.map_err(|error| match error {
        super::error::EndpointError::Connect(source) => DriverError::Call(source),
        other => DriverError::Endpoint(other.to_string()),
    })
}

pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DriverError> + Send + 'static,
) -> Result<T, DriverError> {
    tokio::task::spawn_blocking(work).await?
}

pub fn volume_failed(step: DriverStep, volume: &CsiVolume) -> impl Fn(DriverError) -> VolumeError + Clone + use<> {
    let volume = volume.name.clone();
    move |source| VolumeError::Driver {
        step,
        volume: volume.clone(),
        source: Box::new(source),
    }
}

/// Paths are text to drivers.
fn text(path: &Path) -> Result<String, DriverError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| DriverError::Path(path.to_owned()))
}
