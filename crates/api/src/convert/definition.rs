//! CustomResourceDefinitions as upstream keeps them in etcd: in the beta version, which says once what all versions have
//! in common.

use serde_json::{Map, Value, json};

use crate::Fields;

/// What the beta version may say once for all versions, and what it is called in each of them.
const COMMON: [&str; 3] = ["additionalPrinterColumns", "selectableFields", "subresources"];

/// Rewrites a definition of `v1beta1` as one of `v1`.
pub fn to_v1(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let schema = spec.remove("validation");
    let common: Vec<(&str, Value)> = COMMON
        .iter()
        .filter_map(|field| Some((*field, spec.remove(*field)?)))
        .collect();
    let first = spec.remove("version");
    if !spec.get("versions").is_some_and(Value::is_array)
        && let Some(name) = first
    {
        let only = json!([{ "name": name, "served": true, "storage": true }]);
        spec.insert("versions".to_owned(), only);
    }
    for version in spec
        .get_mut("versions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        for (field, value) in &common {
            if !version.has(field) {
                version.set(field, value.clone());
            }
        }
        if let Some(schema) = &schema
            && !version.has("schema")
        {
            version.set("schema", schema.clone());
        }
        version
            .list_mut("additionalPrinterColumns")
            .iter_mut()
            .for_each(rename_path);
    }
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) {
        nest_webhook(conversion);
    }
}

fn rename_path(column: &mut Value) {
    if let Some(path) = column.remove("JSONPath") {
        column.set("jsonPath", path);
    }
}

fn nest_webhook(conversion: &mut Map<String, Value>) {
    let mut webhook = Map::new();
    for (from, to) in [
        ("webhookClientConfig", "clientConfig"),
        ("conversionReviewVersions", "conversionReviewVersions"),
    ] {
        if let Some(value) = conversion.remove(from) {
            webhook.insert(to.to_owned(), value);
        }
    }
    if webhook.contains_key("clientConfig") {
        conversion.insert("webhook".to_owned(), webhook.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_once_is_said_of_each_version() {
        let mut definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
            "spec": {
                "version": "v1", "preserveUnknownFields": false,
                "validation": { "openAPIV3Schema": { "type": "object" } },
                "additionalPrinterColumns": [{ "name": "A", "JSONPath": ".a" }],
                "versions": [{ "name": "v1", "served": true, "storage": true }],
                "conversion": { "strategy": "Webhook", "webhookClientConfig": { "url": "u" }, "conversionReviewVersions": ["v1"] },
            },
        });
        crate::convert(&mut definition, "apiextensions.k8s.io/v1");
        assert_eq!(
            definition,
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "spec": {
                    "versions": [{
                        "name": "v1", "served": true, "storage": true,
                        "schema": { "openAPIV3Schema": { "type": "object" } },
                        "additionalPrinterColumns": [{ "name": "A", "jsonPath": ".a" }],
                    }],
                    "conversion": {
                        "strategy": "Webhook",
                        "webhook": { "clientConfig": { "url": "u" }, "conversionReviewVersions": ["v1"] },
                    },
                },
            })
        );
    }
}
