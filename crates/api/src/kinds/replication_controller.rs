//! ReplicationController: the ancestor of ReplicaSet, with a plain map as its selector.

use super::replica_set::validate_set_status;
use super::replica_set::{COLUMNS, clear_status};
use crate::names::dns1123_subdomain;
use crate::pod_spec::{default_template, drop_disabled_in, validate_template};
use crate::print;
use crate::selector::Selector;
use crate::warnings;
use crate::workload::validate_selected;
use crate::{
    Column, FieldError, Fields, Generation, LabelSelector, Path, Problems, Resource, Rules, Subresource, Value,
};

pub static REPLICATION_CONTROLLER: Resource = Resource::namespaced(
    "",
    "v1",
    "ReplicationController",
    "replicationcontrollers",
    "replicationcontroller",
)
.short(&["rc"])
.in_categories(&["all"])
.stored_at("controllers")
.with_subresources(&[Subresource::SCALE, Subresource::STATUS])
.converting_field_labels()
.orphaning_dependents()
.with_rules(&ReplicationControllerRules);

struct ReplicationControllerRules;

impl Rules for ReplicationControllerRules {
    fn default(&self, controller: &mut Value) {
        let labels = controller["spec"]["template"]["metadata"]["labels"].clone();
        let spec = controller.ensure("spec");
        spec.fill("replicas", 1);
        if spec["template"].is_object() {
            default_template(spec);
        }
        if labels.is_object() {
            if spec.entries("selector").next().is_none() {
                spec.set("selector", labels.clone());
            }
            let metadata = controller.ensure("metadata");
            if metadata.entries("labels").next().is_none() {
                metadata.set("labels", labels);
            }
        }
    }

    fn prepare_create(&self, controller: &mut Value) {
        clear_status(controller);
        drop_disabled_in(controller, &Value::Null, &["spec", "template"]);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled_in(new, old, &["spec", "template"]);
    }

    /// Of the names it generates upstream looks at the whole alone, and counts bytes.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        let found = match prefix {
            true => Vec::new(),
            false => dns1123_subdomain(name, false),
        };
        let in_bytes = |problem: String| match problem.strip_suffix("no more than 253 characters") {
            Some(before) => format!("{before}no more than 253 bytes"),
            None => problem,
        };
        found.into_iter().map(in_bytes).collect()
    }

    fn validate(&self, controller: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&controller["spec"], Path::new("spec"));
        for field in ["replicas", "minReadySeconds"] {
            problems.not_negative(spec, &path, field);
        }
        if spec.entries("selector").next().is_none() {
            problems.required(&path, "selector", "");
        }
        if !spec["template"].is_object() {
            problems.required(&path, "template", "");
            return problems.into_vec();
        }
        let wanted = serde_json::from_value(spec["selector"].clone()).unwrap_or_default();
        let selector = LabelSelector {
            match_labels: wanted,
            ..LabelSelector::default()
        };
        validate_selected(spec, &Selector::from(&selector), &path, &mut problems);
        let template_path = path.child("template");
        validate_template(&spec["template"], &template_path, &mut problems);
        problems.optional_one_of(
            &spec["template"]["spec"],
            &template_path.child("spec"),
            "restartPolicy",
            &["Always"],
        );
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        validate_set_status(new)
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn field(&self, controller: &Value, path: &str) -> Option<String> {
        (path == "status.replicas").then(|| controller["status"].number("replicas").to_string())
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, controller: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&controller["spec"], &controller["status"]);
        let [containers, images] = print::containers(&spec["template"]["spec"]);
        vec![
            print::name(controller),
            spec.number("replicas").into(),
            status.number("replicas").into(),
            status.number("readyReplicas").into(),
            print::age(controller, now),
            containers,
            images,
            print::labels(&spec["selector"]),
        ]
    }

    fn warnings(&self, controller: &Value) -> Vec<String> {
        warnings::of_template(controller, &["spec", "template"])
    }
}
