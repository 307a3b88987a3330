//! PersistentVolumeClaims of pods, followed to the volumes they are bound to.
//!
//! [`resolve`] asks the API and checks everything that must hold before a volume is touched: that the claim is the pod's to
//! use, that claim and volume are bound to each other, and that the volume can be used on this node. The messages are
//! upstream's.

mod affinity;
mod objects;
#[cfg(test)]
mod tests;

use api::kinds::node::NODE;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use client::Client;
use serde::Deserialize;

use crate::pod::{Pod, Volume};
pub use affinity::NodeLabels;
pub use objects::{Claim, LocalSource, PersistentVolume, VolumeMode};

/// Which claim a volume of a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimReference<'a> {
    /// Any claim of the pod's namespace.
    Named { claim: &'a str, read_only: bool },
    /// The claim that a controller makes for this volume of this pod.
    Generated,
}

/// A volume that a pod may use through its claim.
#[derive(Clone, Debug)]
pub struct BoundVolume {
    pub claim: String,
    pub volume: PersistentVolume,
    pub read_only: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("error processing PVC {namespace}/{claim}: {source}")]
    Claim {
        namespace: String,
        claim: String,
        source: Box<ClaimProblem>,
    },
    #[error("volume {volume} has volumeMode Block, but is specified in volumeMounts")]
    BlockMounted { volume: String },
    #[error("volume {volume} has volumeMode Filesystem, but is specified in volumeDevices")]
    FilesystemAsDevice { volume: String },
    #[error("failed to fetch Node {node} from API server: {source}")]
    Node { node: String, source: client::Error },
}

/// What is wrong with a claim or the volume it names.
#[derive(Debug, thiserror::Error)]
pub enum ClaimProblem {
    #[error("failed to fetch PVC from API server: {0}")]
    FetchClaim(#[source] client::Error),
    #[error("PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwned {
        namespace: String,
        claim: String,
        pod: String,
    },
    #[error("PVC is being deleted")]
    BeingDeleted,
    #[error("PVC is not bound")]
    NotBound,
    #[error("PVC has empty pvc.Spec.VolumeName")]
    NoVolumeName,
    #[error("the API server answered with another object than PVC {0}")]
    OtherClaim(String),
    #[error("failed to fetch PV {volume} from API server: {source}")]
    FetchVolume { volume: String, source: client::Error },
    #[error("PV name {0:?} is not a valid name")]
    InvalidVolumeName(String),
    #[error("found PV object {0} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim")]
    NoClaimRef(String),
    #[error("found PV object {volume} but its pv.Spec.ClaimRef.UID {found} does not point to claim.UID {wanted}")]
    OtherClaimRef {
        volume: String,
        found: String,
        wanted: String,
    },
}

/// Follows a pod's volume to what it is bound to. `is_set_up` says that the pod has the volume already, so that it keeps it
/// although somebody deletes the claim.
pub async fn resolve(
    client: &Client,
    pod: &Pod,
    volume: &Volume,
    reference: ClaimReference<'_>,
    is_set_up: impl Fn(&PersistentVolume) -> bool,
) -> Result<BoundVolume, ClaimError> {
    let (namespace, name) = (&pod.metadata.namespace, claim_name(pod, volume, reference));
    let failed = |problem: ClaimProblem| ClaimError::Claim {
        namespace: namespace.clone(),
        claim: name.clone(),
        source: Box::new(problem),
    };
    let claims = client
        .resource(&PERSISTENT_VOLUME_CLAIM)
        .in_namespace(namespace.clone());
    let claim: Claim = claims
        .get(&name)
        .await
        .map_err(|error| failed(ClaimProblem::FetchClaim(error)))?;
    let volume_name = check_claim(pod, &claim, &name, reference).map_err(failed)?;
    let found: PersistentVolume = client
        .resource(&PERSISTENT_VOLUME)
        .get(&volume_name)
        .await
        .map_err(|source| ClaimProblem::FetchVolume {
            volume: volume_name.clone(),
            source,
        })
        .map_err(failed)?;
    check_binding(&claim, &found).map_err(failed)?;
    if claim.metadata.deletion_timestamp.is_some() && !is_set_up(&found) {
        return Err(failed(ClaimProblem::BeingDeleted));
    }
    check_mode(pod, volume, &found)?;
    Ok(BoundVolume {
        claim: name,
        volume: found,
        read_only: matches!(reference, ClaimReference::Named { read_only: true, .. }),
    })
}

/// The labels of this node, for volumes that can only be used on some.
pub async fn node_labels(client: &Client, node: &str) -> Result<NodeLabels, ClaimError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Node {
        metadata: Metadata,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        labels: std::collections::BTreeMap<String, String>,
    }
    let found = client.resource(&NODE).get::<Node>(node).await;
    let found = found.map_err(|source| ClaimError::Node {
        node: node.to_owned(),
        source,
    })?;
    Ok(NodeLabels {
        name: node.to_owned(),
        labels: found.metadata.labels,
    })
}

/// The claim that a controller makes for an ephemeral volume is named after the pod and the volume.
fn claim_name(pod: &Pod, volume: &Volume, reference: ClaimReference<'_>) -> String {
    match reference {
        ClaimReference::Named { claim, .. } => claim.to_owned(),
        ClaimReference::Generated => format!("{}-{}", pod.metadata.name, volume.name),
    }
}

/// The name of the volume that a claim is bound to.
fn check_claim(pod: &Pod, claim: &Claim, name: &str, reference: ClaimReference<'_>) -> Result<String, ClaimProblem> {
    let metadata = &claim.metadata;
    // The answer decides whose data is mounted; it is not believed to be what was asked for.
    if metadata.name != name || metadata.namespace != pod.metadata.namespace || metadata.uid.is_empty() {
        return Err(ClaimProblem::OtherClaim(name.to_owned()));
    }
    if reference == ClaimReference::Generated && !claim.is_controlled_by(&pod.metadata.uid) {
        return Err(ClaimProblem::NotOwned {
            namespace: pod.metadata.namespace.clone(),
            claim: name.to_owned(),
            pod: pod.metadata.name.clone(),
        });
    }
    if claim.status.phase != "Bound" {
        return Err(ClaimProblem::NotBound);
    }
    let volume = &claim.spec.volume_name;
    if volume.is_empty() {
        return Err(ClaimProblem::NoVolumeName);
    }
    // Names of volumes become names of directories.
    if !api::names::dns1123_subdomain(volume, false).is_empty() {
        return Err(ClaimProblem::InvalidVolumeName(volume.clone()));
    }
    Ok(volume.clone())
}

/// A volume is the claim's only if it says so itself.
fn check_binding(claim: &Claim, volume: &PersistentVolume) -> Result<(), ClaimProblem> {
    let name = &volume.metadata.name;
    if *name != claim.spec.volume_name {
        return Err(ClaimProblem::InvalidVolumeName(name.clone()));
    }
    let Some(bound) = &volume.spec.claim_ref else {
        return Err(ClaimProblem::NoClaimRef(name.clone()));
    };
    if bound.uid != claim.metadata.uid {
        return Err(ClaimProblem::OtherClaimRef {
            volume: name.clone(),
            found: bound.uid.clone(),
            wanted: claim.metadata.uid.clone(),
        });
    }
    Ok(())
}

/// Containers use a volume as its mode says: as a file system or as a device.
fn check_mode(pod: &Pod, volume: &Volume, found: &PersistentVolume) -> Result<(), ClaimError> {
    let name = &volume.name;
    let mut containers = pod.all_containers().map(|(_, container)| container);
    let is_wrong = containers.any(|container| match found.spec.volume_mode {
        VolumeMode::Block => container.volume_mounts.iter().any(|mount| mount.name == *name),
        VolumeMode::Filesystem => container.volume_devices.iter().any(|device| device.name == *name),
    });
    match (is_wrong, found.spec.volume_mode) {
        (false, _) => Ok(()),
        (true, VolumeMode::Block) => Err(ClaimError::BlockMounted { volume: name.clone() }),
        (true, VolumeMode::Filesystem) => Err(ClaimError::FilesystemAsDevice { volume: name.clone() }),
    }
}
