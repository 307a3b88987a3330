//! Volumes that are attached to the node before they are mounted: the node says that it has them in use, the attach-detach
//! controller says that they are attached, and the driver's attacher says with what result.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::kinds::node::NODE;
use api::kinds::volume_attachment::VOLUME_ATTACHMENT;
use client::{Client, Patch};
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::Instant;

use super::volume::{CsiVolume, attachment_name};
use crate::shared::Shared;
use crate::volumes::DriverError;

/// How long one attempt waits for a volume to be attached; after that the pod is told, and it is tried again.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often to look meanwhile, at first and later.
const LOOK: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The volumes that the node's status says are in use. A volume is not detached from a healthy node while it is there.
#[derive(Default)]
pub struct InUse {
    names: Mutex<BTreeSet<String>>,
    /// One write of the node's status at a time, so that the last one is the last word.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NodeObject {
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    volumes_in_use: BTreeSet<String>,
    volumes_attached: Vec<AttachedVolume>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AttachedVolume {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Attachment {
    status: AttachmentStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AttachmentStatus {
    attached: bool,
    attachment_metadata: BTreeMap<String, String>,
    attach_error: Option<AttachError>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct AttachError {
    message: String,
}

impl InUse {
    /// Adds a volume; true if it was not there.
    pub fn add(&self, name: String) -> bool {
        self.names.lock().insert(name)
    }

    /// Keeps only these of the volumes; true if others were there.
    pub fn retain(&self, is_used: impl Fn(&str) -> bool) -> bool {
        let mut names = self.names.lock();
        let before = names.len();
        names.retain(|name| is_used(name));
        names.len() != before
    }

    /// Writes the list into the node's status where it differs.
    pub async fn report(&self, client: &Client, node: &str) -> Result<(), client::Error> {
        let _alone = self.writing.lock().await;
        let wanted = self.names.lock().clone();
        let api = client.resource(&NODE);
        if api.get::<NodeObject>(node).await?.status.volumes_in_use == wanted {
            return Ok(());
        }
        let patch = json!({"status": {"volumesInUse": wanted}});
        let api = api.subresource("status");
        api.patch::<IgnoredAny>(node, Patch::strategic(&patch)).await.map(drop)
    }
}

/// Waits until a volume is attached to this node. The result is what the attacher says to the driver's node service.
pub async fn wait_until_attached(shared: &Shared, volume: &CsiVolume) -> Result<BTreeMap<String, String>, DriverError> {
    let (client, node) = (&shared.client, shared.node_name.as_str());
    let name = volume.unique_name();
    shared.csi.in_use.add(name.clone());
    shared
        .csi
        .in_use
        .report(client, node)
        .await
        .map_err(DriverError::InUse)?;
    let begun = Instant::now();
    let mut pause = LOOK;
    loop {
        let found = look(client, node, &name, volume).await;
        match found {
            Err(DriverError::NotAttached { .. }) if begun.elapsed() < PATIENCE => {}
            found => return found,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
}

async fn look(
    client: &Client,
    node: &str,
    name: &str,
    volume: &CsiVolume,
) -> Result<BTreeMap<String, String>, DriverError> {
    let attachment = attachment_name(&volume.driver, &volume.handle, node);
    let not_attached = || DriverError::NotAttached {
        handle: volume.handle.clone(),
        attachment: attachment.clone(),
    };
    let found = client.resource(&VOLUME_ATTACHMENT).get::<Attachment>(&attachment).await;
    let status = match found {
        Err(error) if error.is_not_found() || error.is_forbidden() => return Err(not_attached()),
        found => found.map_err(DriverError::Attachment)?.status,
    };
    if let Some(error) = status.attach_error.filter(|_| !status.attached) {
        return Err(DriverError::Attach(error.message));
    }
    // The node's list is the controller's word that it will not detach the volume without looking for it in use.
    let told = client.resource(&NODE).get::<NodeObject>(node).await;
    let told = told.map_err(DriverError::InUse)?.status.volumes_attached;
    match status.attached && told.iter().any(|attached| attached.name == name) {
        true => Ok(status.attachment_metadata),
        false => Err(not_attached()),
    }
}
