//! What a kubelet may say about PersistentVolumes: that the data of one that its own node keeps, and that is to be deleted, is
//! gone.

use api::local_volumes::{DATA_DELETED, node_of_provisioned_volume, wants_data_deleted};
use api::{Fields, Value};

use crate::{Attributes, Operation};

pub fn decide(node: &str, attributes: &Attributes) -> Result<(), String> {
    let is_update = attributes.operation == Operation::Update && attributes.subresource.is_empty();
    match is_update && says_data_is_deleted(node, &attributes.old_object, &attributes.object) {
        true => Ok(()),
        false => Err(format!(
            "node {node:?} can only annotate its own released volumes with {DATA_DELETED:?}"
        )),
    }
}

/// The annotation is all that changes.
fn says_data_is_deleted(node: &str, old: &Value, new: &Value) -> bool {
    let strip = |volume: &Value| {
        let mut volume = volume.clone();
        let metadata = volume.ensure("metadata");
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        metadata.ensure("annotations").remove(DATA_DELETED);
        volume
    };
    node_of_provisioned_volume(old) == Some(node)
        && wants_data_deleted(old)
        && new["metadata"]["annotations"].text(DATA_DELETED) == "true"
        && strip(old) == strip(new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn released() -> Value {
        let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["one"]});
        json!({
            "metadata": {
                "name": "pv", "resourceVersion": "1",
                "annotations": {"karve.dev/provisioned-by": "local", "karve.dev/delete-data": "true"},
            },
            "spec": {
                "local": {"path": "/v/pv"}, "persistentVolumeReclaimPolicy": "Delete",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            },
            "status": {"phase": "Released"},
        })
    }

    fn changed(volume: &Value, pointer: &str, value: Value) -> Value {
        let mut volume = volume.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let field = field.replace("~1", "/");
        volume.pointer_mut(parent).unwrap()[field] = value;
        volume
    }

    const DELETED: &str = "/metadata/annotations/karve.dev~1data-deleted";

    #[test]
    fn a_node_says_of_its_own_released_volume_that_its_data_is_gone_and_nothing_else() {
        let old = released();
        let new = changed(&old, DELETED, json!("true"));
        let new = changed(&new, "/metadata/resourceVersion", json!("2"));
        assert!(says_data_is_deleted("one", &old, &new));
        assert!(!says_data_is_deleted("two", &old, &new), "another node's volume");
        assert!(!says_data_is_deleted("one", &old, &old), "nothing is said");
        for (pointer, value) in [
            ("/metadata/annotations/x", json!("y")),
            ("/metadata/labels", json!({"a": "b"})),
            ("/spec/persistentVolumeReclaimPolicy", json!("Retain")),
            ("/spec/local/path", json!("/etc")),
            ("/spec/claimRef", json!({"name": "c"})),
            ("/metadata/finalizers", json!([])),
        ] {
            assert!(
                !says_data_is_deleted("one", &old, &changed(&new, pointer, value)),
                "{pointer}"
            );
        }
        for (pointer, value) in [
            ("/status/phase", json!("Bound")),
            ("/spec/persistentVolumeReclaimPolicy", json!("Retain")),
            ("/metadata/annotations/karve.dev~1delete-data", json!("false")),
            ("/metadata/annotations/karve.dev~1provisioned-by", json!("other")),
        ] {
            let old = changed(&old, pointer, value.clone());
            let new = changed(&old, DELETED, json!("true"));
            assert!(!says_data_is_deleted("one", &old, &new), "{pointer}");
        }
    }
}
