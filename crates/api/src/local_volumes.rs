//! What the provisioner of the StorageClass `local` and the kubelets tell each other through a PersistentVolume.
//!
//! The controller makes a PersistentVolume of type `local` with [`PROVISIONED_BY`], [`NODE_LABEL`] and the affinity to one
//! node; that node's kubelet makes the directory when a pod first uses it. When the volume is Released and its policy is Delete, the
//! controller sets [`DELETE_DATA`], the kubelet removes the directory and sets [`DATA_DELETED`], and the controller then
//! deletes the PersistentVolume.

use crate::{Fields, Value};

/// Who made the volume: [`PROVISIONER`] for directories that kubelets make and remove.
pub const PROVISIONED_BY: &str = "karve.dev/provisioned-by";
pub const PROVISIONER: &str = "local";
/// `"true"` asks the volume's node to remove its data.
pub const DELETE_DATA: &str = "karve.dev/delete-data";
/// `"true"` says that the volume's node has removed its data.
pub const DATA_DELETED: &str = "karve.dev/data-deleted";

/// The label of such a volume whose value is its node's name. A kubelet may only list the volumes of its own node, which
/// it finds by this label.
pub const NODE_LABEL: &str = "karve.dev/node";

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The node whose kubelet keeps the data of a volume that the provisioner made; none if it made it not, or if its affinity
/// does not name exactly one node.
pub fn node_of_provisioned_volume(volume: &Value) -> Option<&str> {
    if volume["metadata"]["annotations"].text(PROVISIONED_BY) != PROVISIONER || !volume["spec"].has("local") {
        return None;
    }
    let [term] = volume["spec"]["nodeAffinity"]["required"].list("nodeSelectorTerms") else {
        return None;
    };
    let [expression] = term.list("matchExpressions") else {
        return None;
    };
    if !term.list("matchFields").is_empty() || expression.text("key") != HOSTNAME || expression.text("operator") != "In"
    {
        return None;
    }
    match expression.list("values") {
        [node] => node.as_str(),
        _ => None,
    }
}

/// Whether the volume's node is to remove its data: the volume is no longer claimed, and its policy is to delete it.
pub fn wants_data_deleted(volume: &Value) -> bool {
    volume["metadata"]["annotations"].text(DELETE_DATA) == "true"
        && volume["spec"].text("persistentVolumeReclaimPolicy") == "Delete"
        && volume["status"].text("phase") == "Released"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(by: &str, terms: Value) -> Value {
        json!({
            "metadata": {"annotations": {PROVISIONED_BY: by, DELETE_DATA: "true"}},
            "spec": {
                "local": {"path": "/v/pv"}, "persistentVolumeReclaimPolicy": "Delete",
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            "status": {"phase": "Released"},
        })
    }

    #[test]
    fn only_the_affinity_to_one_node_names_a_node() {
        let expression =
            |operator: &str, values: Value| json!({"key": HOSTNAME, "operator": operator, "values": values});
        let term = |expressions: Value| json!({"matchExpressions": expressions});
        let one = term(json!([expression("In", json!(["n1"]))]));
        let node = |by: &str, terms: Value| node_of_provisioned_volume(&volume(by, terms)).map(str::to_owned);
        assert_eq!(node("local", json!([one])).as_deref(), Some("n1"));
        assert_eq!(node("other", json!([one])), None);
        assert_eq!(node("local", json!([one, one])), None);
        assert_eq!(
            node("local", json!([term(json!([expression("In", json!(["n1", "n2"]))]))])),
            None
        );
        assert_eq!(
            node("local", json!([term(json!([expression("NotIn", json!(["n1"]))]))])),
            None
        );
        assert_eq!(node("local", json!([])), None);
    }

    #[test]
    fn data_of_a_claimed_or_retained_volume_is_not_to_be_deleted() {
        let released = volume("local", json!([]));
        assert!(wants_data_deleted(&released));
        for (path, value) in [
            ("/status/phase", "Bound"),
            ("/status/phase", "Available"),
            ("/spec/persistentVolumeReclaimPolicy", "Retain"),
            ("/metadata/annotations/karve.dev~1delete-data", "false"),
        ] {
            let mut volume = released.clone();
            *volume.pointer_mut(path).unwrap() = json!(value);
            assert!(!wants_data_deleted(&volume), "{path} {value}");
        }
    }
}
