//! CustomResourceDefinition: a kind that users bring along.

use crate::print::{self, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};
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

const COLUMNS: &[Column] = &[
    NAME,
    Column {
        kind: "date",
        ..print::text("Created At", "When the server stored the definition.")
    },
];
