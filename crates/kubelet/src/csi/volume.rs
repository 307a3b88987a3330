//! A volume that a CSI driver mounts: what a pod's volume and a PersistentVolume say about it.

use std::collections::BTreeMap;

use csi::NodeCapabilities;
use csi::v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode};
use ring::digest;

use crate::claims::{BoundVolume, VolumeMode};
use crate::pod::{Pod, SecretReference, Volume};

/// Everything that drivers are told of a volume, but for secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiVolume {
    pub driver: String,
    /// The driver's own name of the volume.
    pub handle: String,
    /// Upstream's name of the volume's directory: the PersistentVolume's name, or that of a pod's own volume.
    pub name: String,
    /// Made for one pod by the driver when it is published.
    pub is_ephemeral: bool,
    pub is_block: bool,
    pub read_only: bool,
    pub fs_type: String,
    pub attributes: BTreeMap<String, String>,
    pub mount_options: Vec<String>,
    pub access_modes: Vec<String>,
    pub stage_secret: Option<SecretReference>,
    pub publish_secret: Option<SecretReference>,
    pub expand_secret: Option<SecretReference>,
    /// The claim in the pod's namespace that led to it.
    pub claim: Option<String>,
}

impl CsiVolume {
    /// None if the volume is of another type.
    pub fn describe(pod: &Pod, volume: &Volume, bound: Option<&BoundVolume>) -> Option<CsiVolume> {
        match bound {
            Some(bound) => CsiVolume::of_claim(bound),
            None => CsiVolume::of_pod(pod, volume),
        }
    }

    fn of_claim(bound: &BoundVolume) -> Option<CsiVolume> {
        let spec = &bound.volume.spec;
        let source = spec.csi.as_ref()?;
        Some(CsiVolume {
            driver: source.driver.clone(),
            handle: source.volume_handle.clone(),
            name: bound.volume.name().to_owned(),
            is_ephemeral: false,
            is_block: spec.volume_mode == VolumeMode::Block,
            read_only: bound.read_only,
            fs_type: source.fs_type.clone(),
            attributes: source.volume_attributes.clone(),
            mount_options: spec.mount_options.clone(),
            access_modes: spec.access_modes.clone(),
            stage_secret: source.node_stage_secret_ref.clone(),
            publish_secret: source.node_publish_secret_ref.clone(),
            expand_secret: source.node_expand_secret_ref.clone(),
            claim: Some(bound.claim.clone()),
        })
    }

    fn of_pod(pod: &Pod, volume: &Volume) -> Option<CsiVolume> {
        let source = volume.csi.as_ref()?;
        let secret = source.node_publish_secret_ref.as_ref();
        Some(CsiVolume {
            driver: source.driver.clone(),
            handle: ephemeral_handle(&pod.metadata.uid, &volume.name),
            name: volume.name.clone(),
            is_ephemeral: true,
            read_only: source.read_only,
            fs_type: source.fs_type.clone(),
            attributes: source.volume_attributes.clone(),
            publish_secret: secret.map(|secret| SecretReference {
                name: secret.name.clone(),
                namespace: pod.metadata.namespace.clone(),
            }),
            ..CsiVolume::default()
        })
    }

    /// By which the volume is told from all others of the cluster, in the status of nodes too.
    pub fn unique_name(&self) -> String {
        unique_name(&self.driver, &self.handle)
    }

    pub fn is_read_write_once_pod(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteOncePod")
    }

    /// `Persistent` or `Ephemeral`, as a CSIDriver lists what it can do.
    pub fn lifecycle_mode(&self) -> &'static str {
        match self.is_ephemeral {
            true => "Ephemeral",
            false => "Persistent",
        }
    }

    /// How the driver is to give access to the volume. `group` is set where the driver itself gives the files to one.
    pub fn capability(&self, driver: NodeCapabilities, group: Option<u32>) -> csi::v1::VolumeCapability {
        let access = match self.is_block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume {
                fs_type: self.fs_type.clone(),
                mount_flags: self.mount_options.clone(),
                volume_mount_group: group.map(|group| group.to_string()).unwrap_or_default(),
            }),
        };
        let mode = self.access_mode(driver);
        csi::v1::VolumeCapability {
            access_type: Some(access),
            access_mode: Some(AccessMode { mode: mode.into() }),
        }
    }

    /// The first mode counts, as upstream has it.
    fn access_mode(&self, driver: NodeCapabilities) -> Mode {
        let first = self.access_modes.first().map_or("ReadWriteOnce", String::as_str);
        match (first, driver.single_node_multi_writer) {
            ("ReadOnlyMany", _) => Mode::MultiNodeReaderOnly,
            ("ReadWriteMany", _) => Mode::MultiNodeMultiWriter,
            ("ReadWriteOncePod", true) => Mode::SingleNodeSingleWriter,
            ("ReadWriteOnce", true) => Mode::SingleNodeMultiWriter,
            _ => Mode::SingleNodeWriter,
        }
    }
}

pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// The name of the VolumeAttachment that attaches a volume to a node.
pub fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    format!("csi-{}", sha256(&format!("{handle}{driver}{node}")))
}

pub fn sha256(text: &str) -> String {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ephemeral_handle(uid: &str, volume: &str) -> String {
    format!("csi-{}", sha256(&format!("{uid}{volume}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_modes_are_told_as_the_driver_knows_them() {
        let mode = |modes: &[&str], knows: bool| {
            let volume = CsiVolume {
                access_modes: modes.iter().map(ToString::to_string).collect(),
                ..CsiVolume::default()
            };
            volume.access_mode(NodeCapabilities {
                single_node_multi_writer: knows,
                ..NodeCapabilities::default()
            })
        };
        assert_eq!(mode(&[], false), Mode::SingleNodeWriter);
        assert_eq!(mode(&["ReadWriteOnce"], false), Mode::SingleNodeWriter);
        assert_eq!(mode(&["ReadWriteOnce"], true), Mode::SingleNodeMultiWriter);
        assert_eq!(mode(&["ReadWriteOncePod"], false), Mode::SingleNodeWriter);
        assert_eq!(mode(&["ReadWriteOncePod"], true), Mode::SingleNodeSingleWriter);
        assert_eq!(
            mode(&["ReadOnlyMany", "ReadWriteOnce"], true),
            Mode::MultiNodeReaderOnly
        );
        assert_eq!(mode(&["ReadWriteMany"], true), Mode::MultiNodeMultiWriter);
    }

    #[test]
    fn a_pods_own_volume_is_named_after_both() {
        let pod: Pod = serde_saphyr::from_str("metadata: {uid: u1, namespace: ns}").unwrap();
        let volume: Volume = serde_saphyr::from_str(
            "{name: data, csi: {driver: d, readOnly: true, fsType: ext4, nodePublishSecretRef: {name: s}}}",
        )
        .unwrap();
        let found = CsiVolume::describe(&pod, &volume, None).unwrap();
        assert_eq!(found.handle, format!("csi-{}", sha256("u1data")));
        assert_eq!(
            (found.name.as_str(), found.read_only, found.is_ephemeral),
            ("data", true, true)
        );
        let secret = found.publish_secret.unwrap();
        assert_eq!((secret.namespace.as_str(), secret.name.as_str()), ("ns", "s"));
    }
}
