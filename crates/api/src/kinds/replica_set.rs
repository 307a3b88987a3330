//! ReplicaSet: a number of equal pods.

use crate::pod_spec::{default_template, drop_disabled_in};
use crate::print::{self, AGE, CONTAINERS, IMAGES, NAME, SELECTOR};
use crate::warnings;
use crate::workload::{validate_available, validate_counts, validate_parts, validate_running, validate_selector_stays};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};

pub static REPLICA_SET: Resource = Resource::namespaced("apps", "v1", "ReplicaSet", "replicasets", "replicaset")
    .short(&["rs"])
    .in_categories(&["all"])
    .with_subresources(&[Subresource::SCALE, Subresource::STATUS])
    .converting_field_labels()
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
        drop_disabled_in(set, &Value::Null, &["spec", "template"]);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled_in(new, old, &["spec", "template"]);
    }

    fn validate(&self, set: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&set["spec"], Path::new("spec"));
        for field in ["replicas", "minReadySeconds"] {
            problems.not_negative(spec, &path, field);
        }
        // Upstream names the deployment here as well.
        validate_running(spec, "deployment", "ReplicaSet", &path, &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate_selector_stays(new, old)
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        validate_set_status(new)
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

    fn warnings(&self, set: &Value) -> Vec<String> {
        warnings::of_template(set, &["spec", "template"])
    }
}

/// A new set has no pods yet.
pub(super) fn clear_status(set: &mut Value) {
    set.set("status", serde_json::json!({"replicas": 0}));
}

pub(super) fn validate_set_status(new: &Value) -> Vec<FieldError> {
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    let mut problems = validate_counts(new, &["replicas", "observedGeneration", "terminatingReplicas"]);
    problems.extend(validate_counts(new, &parts).into_vec());
    validate_parts(new, "replicas", &parts, &mut problems);
    validate_available(new, &mut problems);
    problems.into_vec()
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
