use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::*;
use crate::{Subresource, Verb};

const REFERENCE: [&str; 2] = [
    include_str!("../../facts/discovery/api.aggregated.json"),
    include_str!("../../facts/discovery/apis.aggregated.json"),
];

/// The table is what an upstream server with default settings serves: every name, verb, scope and response kind.
#[test]
fn the_table_is_upstreams_discovery() {
    let reference: Vec<Value> = REFERENCE
        .iter()
        .map(|text| serde_json::from_str(text).unwrap())
        .collect();
    let versions = reference.iter().flat_map(|document| {
        document["items"].as_array().unwrap().iter().flat_map(|group| {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            group["versions"]
                .as_array()
                .unwrap()
                .iter()
                .map(move |version| (name, version))
        })
    });
    let mut served = BTreeSet::new();
    for ((group, expected), row) in versions.zip(GROUP_VERSIONS) {
        let version = expected["version"].as_str().unwrap();
        assert_eq!((group, version), *row);
        served.insert((group, version));
        let ours: Vec<Value> = all()
            .iter()
            .filter(|resource| (resource.group, resource.version) == (group, version))
            .map(|resource| describe(resource))
            .collect();
        assert_eq!(expected["resources"], Value::Array(ours), "{group}/{version}");
    }
    // Upstream leaves these to metrics-server.
    served.insert(("metrics.k8s.io", "v1beta1"));
    assert_eq!(
        served,
        all()
            .iter()
            .map(|resource| (resource.group, resource.version))
            .collect()
    );
    assert_eq!(served, GROUP_VERSIONS.iter().copied().collect());
}

#[test]
fn rows_are_sorted_and_found() {
    let key = |resource: &Resource| (resource.group, resource.plural, resource.version);
    assert!(all().is_sorted_by_key(|resource| key(resource)));
    for resource in all() {
        let (group, plural, version) = key(resource);
        assert!(std::ptr::eq(find(group, version, plural).unwrap(), *resource));
        assert!(std::ptr::eq(
            find_kind(group, version, resource.kind).unwrap(),
            *resource
        ));
    }
    assert!(find("", "v1", "deployments").is_none());
}

/// Two resources share a place in the store only where one is another version of the other.
#[test]
fn storage_is_shared_only_between_versions() {
    let stored = || all().iter().filter(|resource| !resource.storage.is_empty());
    let mut places = BTreeSet::new();
    for resource in stored().filter(|resource| resource.storage_version.is_none()) {
        assert!(places.insert(resource.storage), "{}", resource.qualified());
    }
    for resource in stored().filter(|resource| resource.storage_version.is_some()) {
        assert!(places.contains(resource.storage), "{}", resource.qualified());
    }
}

/// Every kind prints a cell for each of its columns, and defaulting what is defaulted changes nothing.
#[test]
fn every_kind_prints_its_columns_and_defaults_once() {
    for resource in all() {
        let mut object =
            json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": {"name": "x"}});
        resource.rules.default(&mut object);
        let once = object.clone();
        resource.rules.default(&mut object);
        assert_eq!(object, once, "{}", resource.qualified());
        let cells = resource.rules.cells(&object, 0);
        assert_eq!(cells.len(), resource.rules.columns().len(), "{}", resource.qualified());
    }
}

/// A resource as aggregated discovery shows it. A response kind of the same group and version names only its kind.
fn describe(resource: &Resource) -> Value {
    let mut shown = json!({
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": names(resource.verbs),
    });
    let lists: [(&str, Vec<Value>); 3] = [
        (
            "shortNames",
            resource.short_names.iter().map(|name| json!(name)).collect(),
        ),
        (
            "categories",
            resource.categories.iter().map(|name| json!(name)).collect(),
        ),
        (
            "subresources",
            resource
                .subresources
                .iter()
                .map(|subresource| describe_subresource(resource, subresource))
                .collect(),
        ),
    ];
    let object: &mut Map<String, Value> = shown.as_object_mut().unwrap();
    for (key, values) in lists.into_iter().filter(|(_, values)| !values.is_empty()) {
        object.insert(key.to_owned(), values.into());
    }
    shown
}

fn describe_subresource(resource: &Resource, subresource: &Subresource) -> Value {
    let own = (resource.group, resource.version, resource.kind);
    let (group, version, kind) = subresource.body.unwrap_or(own);
    let (group, version) = if (group, version) == (own.0, own.1) {
        ("", "")
    } else {
        (group, version)
    };
    json!({
        "subresource": subresource.name,
        "responseKind": {"group": group, "version": version, "kind": kind},
        "verbs": names(subresource.verbs),
    })
}

fn names(verbs: &[Verb]) -> Vec<&'static str> {
    verbs.iter().map(|verb| verb.as_str()).collect()
}
