//! The default StorageClass of a new cluster: directories on the node of the first pod, which the built-in provisioner
//! makes.

use api::Value;
use api::kinds::namespace::NAMESPACE;
use api::kinds::storage_class::STORAGE_CLASS;
use client::{Client, Patch};
use serde::de::IgnoredAny;
use serde_json::json;

use super::local_provisioner::PROVISIONER;
use crate::model::Metadata;

/// The name of the class.
pub const DEFAULT_CLASS: &str = "local";

/// The annotation of the namespace `kube-system` that says that the class was created once. It outlives the class, so
/// that a class that an administrator deleted stays deleted.
const CREATED: &str = "karve.dev/default-storage-class";
const SYSTEM: &str = "kube-system";

/// Creates the default class unless this cluster had it before.
pub async fn create_default_class(client: &Client) -> client::Result<()> {
    let namespaces = client.resource(&NAMESPACE);
    let system: Metadata = namespaces.get(SYSTEM).await?;
    if system.metadata.annotations.contains_key(CREATED) {
        return Ok(());
    }
    match client.resource(&STORAGE_CLASS).create::<IgnoredAny>(&class()).await {
        Err(error) if !error.is_already_exists() => return Err(error),
        _ => {}
    }
    let mark = json!({"metadata": {"annotations": {CREATED: DEFAULT_CLASS}}});
    let marked = namespaces.patch::<IgnoredAny>(SYSTEM, Patch::merge(&mark)).await;
    marked.map(drop)
}

fn class() -> Value {
    json!({
        "apiVersion": STORAGE_CLASS.api_version(),
        "kind": STORAGE_CLASS.kind,
        "metadata": {
            "name": DEFAULT_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        // The size of a directory is not enforced, so there is nothing that growing a claim would change.
        "allowVolumeExpansion": false,
    })
}
