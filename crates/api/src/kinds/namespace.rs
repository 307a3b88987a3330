//! Namespace: a room for names, emptied before it goes.

use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value, Verb};
use schema::ownership::Filter;
use serde_json::json;

pub static NAMESPACE: Resource = Resource::cluster("", "v1", "Namespace", "namespaces", "namespace")
    .short(&["ns"])
    .with_verbs(&[
        Verb::Create,
        Verb::Delete,
        Verb::Get,
        Verb::List,
        Verb::Patch,
        Verb::Update,
        Verb::Watch,
    ])
    .with_subresources(&[
        Subresource::new("finalize", &[Verb::Update])
            .changing(&[&["spec", "finalizers"]])
            .owning(Filter {
                only: None,
                without: &[&["status"]],
            }),
        Subresource::STATUS,
    ])
    .converting_field_labels()
    .without_grace_period()
    .with_rules(&NamespaceRules);

struct NamespaceRules;

/// Held until everything in the namespace is gone.
const FINALIZER: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Rules for NamespaceRules {
    fn default(&self, namespace: &mut Value) {
        label_with_name(namespace);
        namespace.ensure("status").fill("phase", "Active");
    }

    fn prepare_create(&self, namespace: &mut Value) {
        label_with_name(namespace);
        namespace.set("status", json!({"phase": "Active"}));
        let spec = namespace.ensure("spec");
        let mut finalizers = spec.list("finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            finalizers.push(FINALIZER.into());
        }
        spec.set("finalizers", finalizers);
    }

    /// Finalizers of the spec change only through the `finalize` subresource.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        label_with_name(new);
        match old["spec"].get("finalizers") {
            Some(finalizers) => new.ensure("spec").set("finalizers", finalizers.clone()),
            None => {
                new.ensure("spec").remove("finalizers");
            }
        }
    }

    fn validate_create(&self, namespace: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("spec").child("finalizers");
        for name in finalizers(namespace) {
            validate_finalizer(name, &path, &mut problems);
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let phase = new["status"].text("phase");
        let (wanted, when) = match new["metadata"].has("deletionTimestamp") {
            true => ("Terminating", "is not"),
            false => ("Active", "is"),
        };
        if phase != wanted {
            let detail = format!("may only be '{wanted}' if `deletionTimestamp` {when} empty");
            problems.invalid(&Path::new("status"), "Phase", phase, detail);
        }
        problems.into_vec()
    }

    fn validate_subresource_update(&self, _subresource: &str, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for (index, name) in finalizers(new).enumerate() {
            let path = Path::new("spec").child("finalizers").index(index);
            validate_finalizer(name, &path, &mut problems);
        }
        problems.into_vec()
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        crate::names::dns1123_label(name, prefix)
    }

    fn field(&self, namespace: &Value, path: &str) -> Option<String> {
        (path == "status.phase").then(|| namespace["status"].text("phase").to_owned())
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, namespace: &Value, now: i64) -> Vec<Value> {
        let phase = namespace["status"].text("phase").into();
        vec![print::name(namespace), phase, print::age(namespace, now)]
    }

    fn prepare_termination(&self, namespace: &mut Value) {
        namespace.set("status", json!({ "phase": "Terminating" }));
    }

    fn other_finalizers<'a>(&self, namespace: &'a Value) -> &'a [Value] {
        namespace["spec"].list("finalizers")
    }
}

fn finalizers(namespace: &Value) -> impl Iterator<Item = &str> {
    namespace["spec"].list("finalizers").iter().filter_map(Value::as_str)
}

fn validate_finalizer(name: &str, path: &Path, problems: &mut Problems) {
    problems.form(path, "", name, crate::names::label_key(name));
    if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        problems.invalid(path, "", name, detail);
    }
}

/// Selectors can pick a namespace by its name because the name is always a label too.
fn label_with_name(namespace: &mut Value) {
    let name = namespace["metadata"].text("name").to_owned();
    if !name.is_empty() {
        namespace.ensure("metadata").ensure("labels").set(NAME_LABEL, name);
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Status", "Active, or Terminating while it is emptied."),
    AGE,
];
