//! CustomResourceDefinition: a kind that users bring along.

use crate::custom::{CLEANUP_FINALIZER, naming};
use crate::names::{dns1035_label, dns1123_subdomain};
use crate::print::{self, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static CUSTOM_RESOURCE_DEFINITION: Resource = Resource::cluster(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
)
.short(&["crd", "crds"])
.in_categories(&["api-extensions"])
.stored_at("apiextensions.k8s.io/customresourcedefinitions")
.with_subresources(&[Subresource::STATUS])
.with_rules(&CustomResourceDefinitionRules);

struct CustomResourceDefinitionRules;

impl Rules for CustomResourceDefinitionRules {
    fn default(&self, definition: &mut Value) {
        let spec = definition.ensure("spec");
        let names = spec.ensure("names");
        let kind = names.text("kind").to_owned();
        names.fill("singular", kind.to_lowercase());
        if !kind.is_empty() {
            names.fill("listKind", format!("{kind}List"));
        }
        if !spec["conversion"].is_object() {
            spec.set("conversion", json!({"strategy": "None"}));
        }
        if let Some(service) = spec
            .child_mut("conversion")
            .and_then(|conversion| conversion.child_mut("webhook"))
            .and_then(|webhook| webhook.child_mut("clientConfig"))
            .and_then(|config| config.child_mut("service"))
        {
            service.fill("port", 443);
        }
        let stored = spec.list("versions").iter().find(|version| version.flag("storage"));
        let stored = stored.map(|version| version["name"].clone());
        let status = definition.ensure("status");
        if let Some(stored) = stored
            && status.list("storedVersions").is_empty()
        {
            status.set("storedVersions", vec![stored]);
        }
    }

    fn prepare_create(&self, definition: &mut Value) {
        definition.remove("status");
        note_stored_version(definition);
    }

    fn prepare_update(&self, new: &mut Value, _old: &Value) {
        note_stored_version(new);
    }

    fn prepare_deletion(&self, definition: &mut Value, now: &str) {
        let metadata = definition.ensure("metadata");
        let mut finalizers = metadata.list("finalizers").to_vec();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER) {
            finalizers.push(CLEANUP_FINALIZER.into());
        }
        metadata.set("finalizers", finalizers);
        let status = naming::with_condition(
            definition,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
            now,
        );
        definition.set("status", status);
    }

    fn validate(&self, definition: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&definition["spec"], Path::new("spec"));
        let names = &spec["names"];
        if problems.needs(spec, &path, "group") {
            let group = spec.text("group");
            let found = dns1123_subdomain(group, false);
            if found.is_empty() && !group.contains('.') {
                problems.invalid(&path, "group", group, "should be a domain with at least one dot");
            }
            problems.form(&path, "group", group, found);
        }
        problems.one_of(spec, &path, "scope", &["Cluster", "Namespaced"]);
        for field in ["plural", "singular", "kind", "listKind"] {
            problems.needs(names, &path.child("names"), field);
        }
        validate_versions(spec, &path, &mut problems);
        if definition["status"].list("storedVersions").is_empty() {
            let stored = definition["status"]["storedVersions"].clone();
            problems.invalid(
                &Path::new("status"),
                "storedVersions",
                stored,
                "must have at least one stored version",
            );
        }
        problems.into_vec()
    }

    fn validate_create(&self, definition: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
        let expected = format!("{}.{}", names.text("plural"), spec.text("group"));
        let name = definition["metadata"].text("name");
        if name != expected {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            problems.invalid(&Path::new("metadata"), "name", name, detail);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new, old, path) = (&new["spec"], &old["spec"], Path::new("spec"));
        for field in ["group", "scope"] {
            problems.immutable(new, old, &path, field);
        }
        for field in ["plural", "kind"] {
            problems.immutable(&new["names"], &old["names"], &path.child("names"), field);
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, definition: &Value, _now: i64) -> Vec<Value> {
        vec![
            print::name(definition),
            definition["metadata"]["creationTimestamp"].clone(),
        ]
    }
}

/// Remembers every version in which objects may be stored.
fn note_stored_version(definition: &mut Value) {
    let versions = definition["spec"].list("versions").iter();
    let Some(stored) = versions
        .filter(|version| version.flag("storage"))
        .map(|version| version["name"].clone())
        .next()
    else {
        return;
    };
    let status = definition.ensure("status");
    let mut known = status.list("storedVersions").to_vec();
    if !known.contains(&stored) {
        known.push(stored);
        status.set("storedVersions", known);
    }
}

/// One version is stored, and each has a schema.
fn validate_versions(spec: &Value, path: &Path, problems: &mut Problems) {
    let versions = spec.list("versions");
    let mut names = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let path = path.child("versions").index(index);
        let name = version.text("name");
        problems.form(&path, "name", name, dns1035_label(name, false));
        if names.contains(&name) {
            problems.duplicate(&path, "name", name);
        }
        names.push(name);
        if !version["schema"].has("openAPIV3Schema") {
            problems.required(&path.child("schema"), "openAPIV3Schema", "schemas are required");
        }
    }
    if versions.iter().filter(|version| version.flag("storage")).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        problems.invalid(path, "versions", spec["versions"].clone(), detail);
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    Column {
        kind: "date",
        ..print::text("Created At", "When the server stored the definition.")
    },
];
