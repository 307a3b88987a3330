//! ReplicaSet: a number of equal pods.

use crate::pod_spec::default_template;
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};

pub static REPLICA_SET: Resource = Resource::namespaced("apps", "v1", "ReplicaSet", "replicasets", "replicaset")
    .short(&["rs"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS])
    .with_rules(&ReplicaSetRules);

struct ReplicaSetRules;

impl Rules for ReplicaSetRules {
    fn default(&self, set: &mut Value) {
        let spec = set.ensure("spec");
        spec.fill("replicas", 1);
        default_template(spec);
    }

    fn prepare_create(&self, set: &mut Value) {
        clear_status(set);
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn field(&self, set: &Value, path: &str) -> Option<String> {
        (path == "status.replicas").then(|| set["status"].number("replicas").to_string())
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, set: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&set["spec"], &set["status"]);
        let [containers, images] = print::containers(&spec["template"]["spec"]);
        vec![
            print::name(set),
            spec.number("replicas").into(),
            status.number("replicas").into(),
            status.number("readyReplicas").into(),
            print::age(set, now),
            containers,
            images,
            print::selector(&spec["selector"]),
        ]
    }
}

/// A new set has no pods yet.
pub(super) fn clear_status(set: &mut Value) {
    set.set("status", serde_json::json!({"replicas": 0}));
}

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Desired", "Pods that are wanted."),
    print::integer("Current", "Pods that exist."),
    print::integer("Ready", "Pods that are ready."),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
