//! Growing what is on a volume after the volume itself has grown: the last step of a claim's expansion, which only the node
//! can do. A resizer says in the claim's status that it is due.

use api::ObjectMeta;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use client::{Api, EventType, ObjectReference, Patch};
use csi::v1::{CapacityRange, NodeExpandVolumeRequest};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::publish::{Published, connect, volume_failed};
use super::secrets;
use crate::moment::Moment;
use crate::pod::Pod;
use crate::pod::quantity::Milli;
use crate::shared::Shared;
use crate::volumes::{DriverError, DriverStep, VolumeError};

const STORAGE: &str = "storage";
const PENDING: &str = "NodeResizePending";
const IN_PROGRESS: &str = "NodeResizeInProgress";
const INFEASIBLE: &str = "NodeResizeInfeasible";
const RESIZE_ERROR: &str = "NodeResizeError";
/// The conditions that a finished expansion ends.
const RESIZE_CONDITIONS: [&str; 4] = [
    "Resizing",
    "FileSystemResizePending",
    "ControllerResizeError",
    RESIZE_ERROR,
];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Claim {
    metadata: ObjectMeta,
    status: ClaimStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimStatus {
    allocated_resource_statuses: std::collections::BTreeMap<String, String>,
    conditions: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Volume {
    spec: VolumeSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VolumeSpec {
    capacity: std::collections::BTreeMap<String, String>,
}

/// Expands what is on a mounted volume if that is due.
pub async fn expand_if_due(shared: &Shared, pod: &Pod, published: &Published) -> Result<(), VolumeError> {
    let Some(name) = &published.volume.claim else {
        return Ok(());
    };
    let failed = volume_failed(DriverStep::Expand, &published.volume);
    let claims = shared.client.resource(&PERSISTENT_VOLUME_CLAIM);
    let claims = claims.in_namespace(pod.metadata.namespace.clone());
    let claim: Claim = claims.get(name).await.map_err(DriverError::Claim).map_err(&failed)?;
    let status = claim.status.allocated_resource_statuses.get(STORAGE);
    if !matches!(status.map(String::as_str), Some(PENDING | IN_PROGRESS)) {
        return Ok(());
    }
    if published.volume.read_only {
        let message = "requested read-only file system";
        shared.warning(pod, "", "FileSystemResizeFailed", message);
        return Ok(());
    }
    let claims = claims.subresource("status");
    match expand(shared, &claims, &claim, published).await {
        Ok(()) => {
            tell_success(shared, pod, &claim, published);
            Ok(())
        }
        // The driver can do it only while nobody uses the volume, which is no reason to keep a pod from it.
        Err(DriverError::Call(error)) if error.is_in_use() => {
            let error = failed(DriverError::Call(error));
            shared.warning(pod, "", error.reason(), error.to_string());
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}

async fn expand(shared: &Shared, claims: &Api, claim: &Claim, published: &Published) -> Result<(), DriverError> {
    let volume = &published.volume;
    let found: Volume = shared
        .client
        .resource(&PERSISTENT_VOLUME)
        .get(&volume.name)
        .await
        .map_err(DriverError::Claim)?;
    let size = found.spec.capacity.get(STORAGE).cloned().unwrap_or_default();
    let bytes = Milli::parse(&size)
        .ok_or_else(|| DriverError::Size(size.clone()))?
        .value();
    write(
        claims,
        claim,
        json!({"allocatedResourceStatuses": {STORAGE: IN_PROGRESS}}),
    )
    .await?;
    let client = connect(shared, &volume.driver).await?;
    let capabilities = client.capabilities().await?;
    if !capabilities.expand {
        return Err(DriverError::NoExpansion(volume.driver.clone()));
    }
    let request = NodeExpandVolumeRequest {
        volume_id: volume.handle.clone(),
        volume_path: published.target.display().to_string(),
        capacity_range: Some(CapacityRange {
            required_bytes: bytes,
            limit_bytes: 0,
        }),
        staging_target_path: published.staging.clone(),
        volume_capability: Some(volume.capability(capabilities, None)),
        secrets: secrets::fetch(&shared.client, "NodeExpandSecretRef", volume.expand_secret.as_ref()).await?,
    };
    if let Err(error) = client.expand(request).await {
        write(claims, claim, failure(claim, &error)).await?;
        return Err(error.into());
    }
    let conditions = claim.status.conditions.iter();
    let others: Vec<&Value> = conditions
        .filter(|condition| !RESIZE_CONDITIONS.iter().any(|kind| condition["type"] == *kind))
        .collect();
    let done = json!({
        "capacity": {STORAGE: size}, "allocatedResourceStatuses": {STORAGE: null}, "conditions": others,
    });
    write(claims, claim, done).await
}

/// What a failed expansion leaves in the claim's status. One that can never be done is not tried again.
fn failure(claim: &Claim, error: &csi::Error) -> Value {
    let failed = json!({
        "type": RESIZE_ERROR, "status": "True", "lastTransitionTime": Moment::now(),
        "message": format!("failed to expand pvc with {error}"),
    });
    let mut conditions = claim.status.conditions.clone();
    if !conditions.iter().any(|condition| condition["type"] == RESIZE_ERROR) {
        conditions.push(failed);
    }
    match error.is_infeasible() {
        true => json!({"allocatedResourceStatuses": {STORAGE: INFEASIBLE}, "conditions": conditions}),
        false => json!({"conditions": conditions}),
    }
}

async fn write(claims: &Api, claim: &Claim, status: Value) -> Result<(), DriverError> {
    let patch = json!({"metadata": {"uid": claim.metadata.uid}, "status": status});
    let patched = claims
        .patch::<IgnoredAny>(&claim.metadata.name, Patch::merge(&patch))
        .await;
    patched.map(drop).map_err(DriverError::Claim)
}

fn tell_success(shared: &Shared, pod: &Pod, claim: &Claim, published: &Published) {
    let volume = &published.volume.name;
    let message = format!(
        "MountVolume.NodeExpandVolume succeeded for volume {volume:?} {}",
        shared.node_name
    );
    let about = ObjectReference::new(&PERSISTENT_VOLUME_CLAIM, &claim.metadata);
    let reason = "FileSystemResizeSuccessful";
    shared.events.event(&about, EventType::Normal, reason, message.clone());
    shared.normal(pod, "", reason, message);
}
