//! A container's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cri::v1;

use super::env::Environment;
use super::expand::TooLarge;
use super::labels;
use super::resources::{self, Machine};
use super::security::{self, ImageUser, SecurityError};
use crate::paths::Paths;
use crate::pod::{Container, Pod, RecursiveReadOnlyError, VolumeDevice, VolumeMount};
use crate::user_namespaces::HostIds;

/// What was found out for one start of a container.
#[derive(Clone, Debug, Default)]
pub struct ContainerContext {
    pub attempt: u32,
    /// The image as the runtime knows it.
    pub image_ref: String,
    pub image_user: ImageUser,
    pub environment: Environment,
    pub machine: Machine,
    /// Whether the runtime can make a mount read-only with everything below it.
    pub supports_recursive_read_only: bool,
    /// Where each volume is on the host.
    pub volumes: BTreeMap<String, PathBuf>,
    /// The volumes that containers can only read, whatever their mounts say.
    pub read_only_volumes: BTreeSet<String>,
    /// The volumes that are images.
    pub volume_images: BTreeMap<String, String>,
    /// The volumes that are block devices.
    pub volume_devices: BTreeMap<String, PathBuf>,
    /// What the mount with this index shows of its image.
    pub image_subpaths: BTreeMap<usize, String>,
    /// Where the subpath of the mount with this index is on the host.
    pub subpaths: BTreeMap<usize, PathBuf>,
    /// The pod's hosts file, unless the container brings its own.
    pub hosts_file: Option<PathBuf>,
    pub message_file: Option<PathBuf>,
    /// The container whose processes this ephemeral one wants to see.
    pub target_id: String,
    /// The ids of a pod with users of its own.
    pub host_ids: Option<HostIds>,
    /// Where the node keeps its seccomp profiles.
    pub seccomp_root: PathBuf,
    /// The bytes at which the log is rotated.
    pub log_max_bytes: u64,
}

/// Why a container has no configuration, in upstream's words where it has them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error(transparent)]
    Security(#[from] SecurityError),
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    MissingVolume { volume: String, container: String },
    #[error("cannot find volume {volume:?} to pass into container {container:?}")]
    MissingDevice { volume: String, container: String },
    #[error("invalid MountPropagation mode: {0:?}")]
    MountPropagation(String),
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(#[from] RecursiveReadOnlyError),
    #[error("unknown stop signal {0:?}")]
    StopSignal(String),
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
}

pub fn config(
    pod: &Pod,
    container: &Container,
    context: &ContainerContext,
) -> Result<v1::ContainerConfig, ConfigError> {
    let environment = &context.environment;
    let mut annotations = labels::container_annotations(pod, container, context.attempt);
    annotations.insert(cri::LOG_MAX_BYTES.to_owned(), context.log_max_bytes.to_string());
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.clone(),
            attempt: context.attempt,
        }),
        image: Some(v1::ImageSpec {
            image: context.image_ref.clone(),
            user_specified_image: container.image.clone(),
            ..v1::ImageSpec::default()
        }),
        command: environment.expand_all(&container.command)?,
        args: environment.expand_all(&container.args)?,
        working_dir: container.working_dir.clone(),
        envs: environment.iter().map(|(key, value)| variable(key, value)).collect(),
        mounts: mounts(container, context)?,
        devices: devices(container, context)?,
        labels: labels::container_labels(pod, container),
        annotations,
        log_path: Paths::relative_log(&container.name, context.attempt),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: Some(v1::LinuxContainerConfig {
            resources: Some(resources::of_container(pod, container, context.machine)),
            security_context: Some(security::container(
                pod,
                container,
                &context.image_user,
                &context.target_id,
                context.host_ids,
                &context.seccomp_root,
            )?),
        }),
        stop_signal: stop_signal(container)?,
        ..v1::ContainerConfig::default()
    })
}

fn mounts(container: &Container, context: &ContainerContext) -> Result<Vec<v1::Mount>, ConfigError> {
    let mut mounts = Vec::new();
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let mut made = volume_mount(index, mount, container, context)?;
        made.readonly |= context.read_only_volumes.contains(&mount.name);
        mounts.push(made);
    }
    let mut file = |host: &Option<PathBuf>, path: &str| {
        let taken = container.volume_mounts.iter().any(|mount| mount.mount_path == path);
        if let (Some(host), false, false) = (host, taken, path.is_empty()) {
            mounts.push(v1::Mount {
                container_path: path.to_owned(),
                host_path: host.to_string_lossy().into_owned(),
                ..v1::Mount::default()
            });
        }
    };
    file(&context.hosts_file, "/etc/hosts");
    file(&context.message_file, &container.termination_message_path);
    // On the disk, volumes have the ids that the pod sees; the runtime maps them.
    if let Some(ids) = context.host_ids {
        for mount in &mut mounts {
            (mount.uid_mappings, mount.gid_mappings) = (ids.mapping(), ids.mapping());
        }
    }
    Ok(mounts)
}

/// The block devices that a container is given.
fn devices(container: &Container, context: &ContainerContext) -> Result<Vec<v1::Device>, ConfigError> {
    let device = |wanted: &VolumeDevice| {
        let name = &wanted.name;
        let host_path = context.volume_devices.get(name);
        let host_path = host_path.ok_or_else(|| ConfigError::MissingDevice {
            volume: name.clone(),
            container: container.name.clone(),
        })?;
        let permissions = match context.read_only_volumes.contains(name) {
            true => "r",
            false => "mrw",
        };
        Ok(v1::Device {
            container_path: wanted.device_path.clone(),
            host_path: host_path.to_string_lossy().into_owned(),
            permissions: permissions.to_owned(),
        })
    };
    container.volume_devices.iter().map(device).collect()
}

fn volume_mount(
    index: usize,
    mount: &VolumeMount,
    container: &Container,
    context: &ContainerContext,
) -> Result<v1::Mount, ConfigError> {
    if let Some(image) = context.volume_images.get(&mount.name) {
        return image_mount(index, mount, image, context);
    }
    let volume = context.volumes.get(&mount.name);
    let host_path = context.subpaths.get(&index).or(volume);
    let host_path = host_path.ok_or_else(|| ConfigError::MissingVolume {
        volume: mount.name.clone(),
        container: container.name.clone(),
    })?;
    let propagation = match mount.mount_propagation.as_deref() {
        None | Some("None") => v1::MountPropagation::PropagationPrivate,
        Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
        Some(other) => return Err(ConfigError::MountPropagation(other.to_owned())),
    };
    Ok(v1::Mount {
        container_path: absolute(&mount.mount_path),
        host_path: host_path.to_string_lossy().into_owned(),
        readonly: mount.read_only,
        recursive_read_only: recursive_read_only(mount, context)?,
        propagation: propagation.into(),
        ..v1::Mount::default()
    })
}

/// An image's files are mounted by the runtime, for reading only.
fn image_mount(
    index: usize,
    mount: &VolumeMount,
    image: &str,
    context: &ContainerContext,
) -> Result<v1::Mount, ConfigError> {
    Ok(v1::Mount {
        container_path: absolute(&mount.mount_path),
        readonly: true,
        recursive_read_only: recursive_read_only(mount, context)?,
        image: Some(v1::ImageSpec {
            image: image.to_owned(),
            ..v1::ImageSpec::default()
        }),
        image_sub_path: context.image_subpaths.get(&index).cloned().unwrap_or_default(),
        ..v1::Mount::default()
    })
}

fn recursive_read_only(mount: &VolumeMount, context: &ContainerContext) -> Result<bool, ConfigError> {
    Ok(mount.is_recursive_read_only(context.supports_recursive_read_only)?)
}

/// A relative path stands for one below the root.
fn absolute(path: &str) -> String {
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

fn stop_signal(container: &Container) -> Result<i32, ConfigError> {
    match container.lifecycle.stop_signal.as_deref() {
        None | Some("") => Ok(v1::Signal::RuntimeDefault.into()),
        Some(name) => v1::Signal::from_str_name(name)
            .map(Into::into)
            .ok_or_else(|| ConfigError::StopSignal(name.to_owned())),
    }
}

fn variable(key: &str, value: &str) -> v1::KeyValue {
    v1::KeyValue {
        key: key.to_owned(),
        value: value.as_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is the node's word: what a pod's own annotations say of it does not reach the runtime.
    #[test]
    fn the_runtime_is_told_when_logs_are_rotated() {
        let mut pod = Pod::default();
        let said = (cri::LOG_MAX_BYTES.to_owned(), "99999999".to_owned());
        pod.metadata.annotations.extend([said]);
        let context = ContainerContext {
            log_max_bytes: 4096,
            ..ContainerContext::default()
        };
        let config = config(&pod, &Container::default(), &context).unwrap();
        assert_eq!(config.annotations[cri::LOG_MAX_BYTES], "4096");
    }

    #[test]
    fn a_block_volume_is_given_as_a_device() {
        let container: Container = serde_saphyr::from_str(
            "{name: c, volumeDevices: [{name: a, devicePath: /dev/xa}, {name: b, devicePath: /dev/xb}]}",
        )
        .unwrap();
        let mut context = ContainerContext {
            volume_devices: [("a".to_owned(), PathBuf::from("/dev/loop7"))].into(),
            ..ContainerContext::default()
        };
        let missing = "cannot find volume \"b\" to pass into container \"c\"";
        assert_eq!(devices(&container, &context).unwrap_err().to_string(), missing);
        context
            .volume_devices
            .insert("b".to_owned(), PathBuf::from("/dev/loop8"));
        context.read_only_volumes.insert("b".to_owned());
        let given = devices(&container, &context).unwrap();
        let shown: Vec<(&str, &str, &str)> = given
            .iter()
            .map(|device| (&*device.container_path, &*device.host_path, &*device.permissions))
            .collect();
        assert_eq!(
            shown,
            [("/dev/xa", "/dev/loop7", "mrw"), ("/dev/xb", "/dev/loop8", "r")]
        );
    }

    #[test]
    fn a_read_only_volume_is_read_only_whatever_the_mount_says() {
        let names = ["written", "claimed"];
        let mounts_of = |read_only: bool| {
            let mount = |name: &&str| VolumeMount {
                name: (*name).to_owned(),
                mount_path: format!("/{name}"),
                read_only,
                // A subpath is the volume's file, too.
                sub_path: "a".to_owned(),
                ..VolumeMount::default()
            };
            let container = Container {
                volume_mounts: names.iter().map(mount).collect(),
                ..Container::default()
            };
            let context = ContainerContext {
                volumes: names
                    .iter()
                    .map(|name| ((*name).to_owned(), PathBuf::from("/v")))
                    .collect(),
                read_only_volumes: BTreeSet::from(["written".to_owned()]),
                subpaths: (0..names.len()).map(|index| (index, PathBuf::from("/s"))).collect(),
                ..ContainerContext::default()
            };
            let mounts = mounts(&container, &context).unwrap();
            mounts.iter().map(|mount| mount.readonly).collect::<Vec<_>>()
        };
        assert_eq!(mounts_of(false), [true, false]);
        assert_eq!(mounts_of(true), [true; 2]);
    }
}
