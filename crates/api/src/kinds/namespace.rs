//! Namespace: a room for names, emptied before it goes.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value, Verb};
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
    .with_subresources(&[Subresource::new("finalize", &[Verb::Update]), Subresource::STATUS])
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
