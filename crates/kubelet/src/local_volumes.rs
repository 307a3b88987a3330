//! Removes the data of this node's provisioned volumes once they are released: the other half of the provisioner of the
//! StorageClass `local`, which makes and deletes the PersistentVolumes.

use std::sync::Arc;
use std::time::Duration;

use api::ObjectMeta;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::local_volumes::{DATA_DELETED, NODE_LABEL, node_of_provisioned_volume, wants_data_deleted};
use bytes::Bytes;
use client::{Cache, EventType, Object, ObjectReference, Patch, Reflector, Selection};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::shared::Shared;
use crate::volumes::{VolumeError, provisioned};

/// How long to wait before data that could not be removed is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How long to wait when nothing failed and nothing changes.
const IDLE: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error("a pod on this node still uses the volume")]
    InUse,
    #[error("failed to check whether a pod uses the volume: {0}")]
    Users(#[source] VolumeError),
    #[error("failed to remove the volume's directory: {0}")]
    Remove(#[source] std::io::Error),
    #[error("failed to read the PersistentVolume from the API server: {0}")]
    Api(#[from] client::Error),
    #[error("the removal of files panicked: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// A volume of this node, as far as its end concerns it.
struct ReleasedVolume {
    metadata: ObjectMeta,
    is_released: bool,
}

impl Object for ReleasedVolume {
    fn decode(object: &Bytes) -> Result<ReleasedVolume, serde_json::Error> {
        let volume: Value = serde_json::from_slice(object)?;
        Ok(ReleasedVolume {
            metadata: ObjectMeta::deserialize(&volume["metadata"])?,
            is_released: is_to_be_removed(&volume),
        })
    }

    fn namespace(&self) -> &str {
        ""
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// Removes data for as long as it is not dropped.
pub async fn remove_released(shared: Arc<Shared>) {
    let cache: Arc<Cache<ReleasedVolume>> = Arc::default();
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    cache.on_change(move |_, _| notify.notify_one());
    let selection = Selection {
        label_selector: format!("{NODE_LABEL}={}", shared.node_name),
        ..Selection::default()
    };
    let reflector = Reflector::new(shared.client.resource(&PERSISTENT_VOLUME), selection, cache.clone());
    tokio::join!(reflector.run(), async {
        loop {
            let pause = match remove_all(&shared, &cache).await {
                true => IDLE,
                false => RETRY,
            };
            tokio::select! {
                () = changed.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    });
}

/// False if something has to be tried again.
async fn remove_all(shared: &Arc<Shared>, cache: &Cache<ReleasedVolume>) -> bool {
    let mut all_done = true;
    for released in cache.all().iter().filter(|volume| volume.is_released) {
        let volume = &released.metadata.name;
        match remove(shared, volume).await {
            Ok(()) => tracing::info!(volume, "Removed the data of a released volume"),
            Err(error) => {
                all_done = false;
                tracing::warn!(volume, %error, "Failed to remove the data of a released volume; retrying");
                let about = ObjectReference::new(&PERSISTENT_VOLUME, &released.metadata);
                let message = error.to_string();
                shared
                    .events
                    .event(&about, EventType::Warning, "VolumeFailedDelete", message);
            }
        }
    }
    all_done
}

/// Asks the API once more, for what a watch showed may be over; then removes the data and says so.
async fn remove(shared: &Arc<Shared>, name: &str) -> Result<(), RemoveError> {
    let volumes = shared.client.resource(&PERSISTENT_VOLUME);
    let volume: Value = match volumes.get(name).await {
        Err(error) if error.is_not_found() => return Ok(()),
        found => found?,
    };
    if node_of_provisioned_volume(&volume) != Some(shared.node_name.as_str()) || !is_to_be_removed(&volume) {
        return Ok(());
    }
    let (paths, directory) = (shared.paths.clone(), name.to_owned());
    let removed = tokio::task::spawn_blocking(move || {
        if provisioned::is_in_use(&paths, &directory).map_err(RemoveError::Users)? {
            return Err(RemoveError::InUse);
        }
        provisioned::remove(&paths, &directory).map_err(RemoveError::Remove)
    });
    removed.await??;
    // Only if nothing about the volume has changed since it was found released.
    let metadata = json!({
        "resourceVersion": volume["metadata"]["resourceVersion"],
        "annotations": {DATA_DELETED: "true"},
    });
    volumes
        .patch::<Value>(name, Patch::merge(&json!({ "metadata": metadata })))
        .await?;
    Ok(())
}

fn is_to_be_removed(volume: &Value) -> bool {
    let told = &volume["metadata"]["annotations"][DATA_DELETED];
    wants_data_deleted(volume) && told.as_str() != Some("true")
}
