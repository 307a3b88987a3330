//! Mirror pods: objects in the API that show static pods to users, and that nobody can change them by.

use std::sync::Arc;

use serde_json::{Value, json};

use super::manifest::Manifest;
use crate::pod;
use crate::worker::PodObject;

/// What is to be done in the API.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Create {
        namespace: String,
        name: String,
        pod: Value,
    },
    Delete {
        namespace: String,
        name: String,
        uid: String,
    },
}

impl Step {
    pub fn key(&self) -> String {
        let (Step::Create { namespace, name, .. } | Step::Delete { namespace, name, .. }) = self;
        format!("{namespace}/{name}")
    }
}

/// What to create and delete so that each static pod has one mirror pod of its present manifest and no other one is left.
/// Mirror pods of pods that are still `ending` are kept until they have.
pub fn plan(wanted: &[(String, &Manifest)], known: &[Arc<PodObject>], ending: &dyn Fn(&str) -> bool) -> Vec<Step> {
    let mut steps = Vec::new();
    for object in known.iter().filter(|object| object.pod.is_mirror()) {
        let (key, metadata) = (object.pod.key(), &object.pod.metadata);
        let mut owners = wanted.iter().filter(|(wanted, _)| *wanted == key);
        let kept = owners.any(|(_, manifest)| manifest.is_mirrored_by(&object.pod));
        // Somebody who deletes a mirror pod does not have to wait for what it shows.
        if !kept && (!ending(&key) || object.pod.is_deleting()) {
            steps.push(Step::Delete {
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
            });
        }
    }
    for (key, manifest) in wanted {
        if !known.iter().any(|object| object.pod.key() == *key) {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            steps.push(Step::Create {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                pod: manifest.pod.clone(),
            });
        }
    }
    steps
}

/// The object that stands for a static pod: its copy, owned by the node.
pub fn object(manifest: &Value, node_name: &str, node_uid: &str) -> Value {
    let mut object = manifest.clone();
    let metadata = &mut object["metadata"];
    let hash = metadata["annotations"][pod::CONFIG_HASH].clone();
    metadata["annotations"][pod::MIRROR] = hash;
    metadata["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": true,
    }]);
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("uid");
        metadata.remove("resourceVersion");
    }
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    object
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::pod::Pod;

    fn manifest(uid: &str) -> Manifest {
        let pod = json!({"metadata": {"name": "web-n1", "namespace": "default", "uid": uid,
            "annotations": {pod::CONFIG_HASH: uid}}});
        Manifest {
            uid: uid.to_owned(),
            pod,
        }
    }

    fn object(text: &str) -> Arc<PodObject> {
        let pod: Pod = serde_saphyr::from_str(text).unwrap();
        Arc::new(PodObject {
            pod: Arc::new(pod),
            raw: Bytes::new(),
        })
    }

    fn steps(wanted: &[(String, &Manifest)], known: &[Arc<PodObject>], ending: bool) -> Vec<&'static str> {
        let steps = plan(wanted, known, &|_| ending);
        steps
            .iter()
            .map(|step| match step {
                Step::Create { .. } => "create",
                Step::Delete { uid, .. } => {
                    assert_eq!(uid, "m");
                    "delete"
                }
            })
            .collect()
    }

    #[test]
    fn each_static_pod_has_one_mirror_pod_of_its_present_manifest() {
        let first = manifest("one");
        let wanted = [(first.key(), &first)];
        let mirror = |hash: &str, more: &str| {
            object(&format!(
                "metadata: {{name: web-n1, namespace: default, uid: m, {more}annotations: {{kubernetes.io/config.mirror: {hash}}}}}"
            ))
        };
        assert_eq!(steps(&wanted, &[], false), ["create"]);
        assert!(steps(&wanted, &[mirror("one", "")], false).is_empty());
        assert_eq!(
            steps(&wanted, &[mirror("two", "")], false),
            ["delete"],
            "and then it is created"
        );
        let deleted = mirror("one", "deletionTimestamp: '2024-01-01T00:00:00Z', ");
        assert_eq!(steps(&wanted, std::slice::from_ref(&deleted), false), ["delete"]);
        assert_eq!(steps(&[], &[mirror("one", "")], false), ["delete"]);
        assert!(
            steps(&[], &[mirror("one", "")], true).is_empty(),
            "the pod is still ending"
        );
        assert_eq!(steps(&[], &[deleted], true), ["delete"]);
    }

    #[test]
    fn pods_of_others_are_left_alone() {
        let first = manifest("one");
        let other = object("metadata: {name: web-n1, namespace: default, uid: x}");
        assert!(steps(&[(first.key(), &first)], &[other], false).is_empty());
    }

    #[test]
    fn a_mirror_pod_is_owned_by_its_node() {
        let object = super::object(&manifest("one").pod, "n1", "node-uid");
        assert_eq!(object["metadata"]["annotations"]["kubernetes.io/config.mirror"], "one");
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "node-uid");
        assert_eq!(object["metadata"]["uid"], Value::Null);
    }
}
