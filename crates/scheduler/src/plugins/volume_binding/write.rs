//! Writing what was decided about volumes, and waiting until it has come true.

use std::time::Duration;

use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use client::{Client, Patch};
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::framework::{BindError, Binding};
use crate::volumes::{Assignment, Claim, SELECTED_NODE, Volume};

/// How long a claim may take to be bound; upstream's default.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often a claim is looked at meanwhile.
const INTERVAL: Duration = Duration::from_millis(250);

/// Makes all assignments of a binding come true.
pub async fn all(client: &Client, binding: &Binding) -> Result<(), BindError> {
    for assignment in &binding.volumes {
        match assignment {
            Assignment::Bind { claim, volume } => give(client, claim, volume).await?,
            Assignment::Provision { claim } => select_node(client, claim, &binding.node).await?,
        }
    }
    let deadline = Instant::now() + PATIENCE;
    for assignment in &binding.volumes {
        let (claim, made) = match assignment {
            Assignment::Bind { claim, .. } => (claim, false),
            Assignment::Provision { claim } => (claim, true),
        };
        until_bound(client, claim, made, deadline).await?;
    }
    Ok(())
}

async fn give(client: &Client, claim: &Claim, volume: &Volume) -> Result<(), BindError> {
    let metadata = &claim.metadata;
    let patch = json!({
        "metadata": {
            "resourceVersion": volume.metadata.resource_version,
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {"claimRef": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": metadata.namespace,
            "name": metadata.name, "uid": metadata.uid, "resourceVersion": metadata.resource_version,
        }},
    });
    let volumes = client.resource(&PERSISTENT_VOLUME);
    volumes
        .patch::<IgnoredAny>(&volume.metadata.name, Patch::merge(&patch))
        .await?;
    Ok(())
}

async fn select_node(client: &Client, claim: &Claim, node: &str) -> Result<(), BindError> {
    let metadata = &claim.metadata;
    let patch = json!({"metadata": {"uid": metadata.uid, "annotations": {SELECTED_NODE: node}}});
    let claims = client
        .resource(&PERSISTENT_VOLUME_CLAIM)
        .in_namespace(metadata.namespace.clone());
    claims.patch::<IgnoredAny>(&metadata.name, Patch::merge(&patch)).await?;
    Ok(())
}

async fn until_bound(client: &Client, claim: &Claim, made: bool, deadline: Instant) -> Result<(), BindError> {
    let metadata = &claim.metadata;
    let name = || format!("{}/{}", metadata.namespace, metadata.name);
    let claims = client
        .resource(&PERSISTENT_VOLUME_CLAIM)
        .in_namespace(metadata.namespace.clone());
    loop {
        let now: Claim = claims.get(&metadata.name).await?;
        if now.is_bound() {
            return Ok(());
        }
        // The provisioner takes the choice back where it cannot make a volume.
        if made && now.selected_node().is_none() {
            return Err(BindError::NotProvisioned { claim: name() });
        }
        if Instant::now() >= deadline {
            return Err(BindError::VolumeTimeout { claim: name() });
        }
        sleep(INTERVAL).await;
    }
}
