//! Requests, limits, and references to them.

use schema::quantity::Quantity;

use crate::names::label_key;
use crate::pod_spec::resources::read;
use crate::{Fields, Path, Problems, Value};

const REFERABLE: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub fn validate_requirements(resources: &Value, path: &Path, problems: &mut Problems) {
    let limits = read(resources, "limits");
    for list in ["limits", "requests"] {
        for (resource, quantity) in &read(resources, list) {
            let path = path.child(list).key(resource);
            validate_name(resource, &path, problems);
            validate_amount(resource, quantity, &path, problems);
        }
    }
    for (resource, request) in &read(resources, "requests") {
        let shared = is_overcommitted(resource);
        match limits.get(resource) {
            Some(limit) if !shared && request != limit => {
                let detail = format!("must be equal to {resource} limit of {limit}");
                problems.invalid(path, "requests", request.to_string(), detail);
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {resource} limit of {limit}");
                problems.invalid(path, "requests", request.to_string(), detail);
            }
            None if !shared => {
                problems.required(path, "limits", "Limit must be set for non overcommitable resources");
            }
            _ => {}
        }
    }
    let says = |prefix: &str| {
        ["limits", "requests"].iter().any(|list| {
            resources
                .entries(list)
                .any(|(resource, _)| resource.starts_with(prefix))
        })
    };
    if says("hugepages-") && !says("cpu") && !says("memory") {
        problems.forbidden(path, "", "HugePages require cpu or memory");
    }
}

/// Claims of a container must be claims of its pod.
pub fn validate_claims(spec: &Value, container: &Value, path: &Path, problems: &mut Problems) {
    let path = path.child("resources").child("claims");
    for (index, claim) in container["resources"].list("claims").iter().enumerate() {
        let name = claim.text("name");
        if name.is_empty() {
            problems.required(&path.index(index), "", "");
        } else if !spec
            .list("resourceClaims")
            .iter()
            .any(|of_pod| of_pod.text("name") == name)
        {
            problems.not_found(&path.index(index), "", name);
        }
    }
}

/// A reference from a variable, which may leave out its own container's name, or from a file.
pub fn validate_reference(reference: &Value, in_container: bool, path: &Path, problems: &mut Problems) {
    if !in_container {
        problems.needs(reference, path, "containerName");
    }
    let resource = reference.text("resource");
    let huge = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if !huge {
        problems.one_of(reference, path, "resource", &REFERABLE);
    }
}

pub fn validate_name(resource: &str, path: &Path, problems: &mut Problems) {
    validate_any_name(resource, path, problems);
    let standard = matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    if !resource.contains('/') && !standard {
        problems.invalid(path, "", resource, "must be a standard resource for containers");
    }
}

/// A resource's name anywhere, quotas and limits of namespaces included.
pub fn validate_any_name(resource: &str, path: &Path, problems: &mut Problems) {
    let found = label_key(resource);
    if found.is_empty() && !resource.contains('/') && !is_standard(resource) {
        problems.invalid(
            path,
            "",
            resource,
            "must be a standard resource type or fully qualified",
        );
    }
    problems.form(path, "", resource, found);
}

fn is_standard(resource: &str) -> bool {
    let counted = [
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    ];
    is_divisible(resource) || counted.contains(&resource)
}

/// Resources with a domain are counted in whole pieces.
pub fn validate_amount(resource: &str, quantity: &Quantity, path: &Path, problems: &mut Problems) {
    if quantity.is_negative() {
        problems.invalid(path, "", quantity.to_string(), "must be greater than or equal to 0");
    }
    let is_extended = resource
        .split_once('/')
        .is_some_and(|(domain, _)| !domain.contains("kubernetes.io"));
    let is_counted = !resource.contains('/') && is_standard(resource) && !is_divisible(resource);
    if (is_extended || is_counted) && quantity.milli_value() % 1000 != 0 {
        problems.invalid(path, "", quantity.to_string(), "must be an integer");
    }
}

/// Whether there can be a part of one.
fn is_divisible(resource: &str) -> bool {
    let name = resource
        .strip_prefix("requests.")
        .or(resource.strip_prefix("limits."))
        .unwrap_or(resource);
    matches!(name, "cpu" | "memory" | "ephemeral-storage" | "storage") || name.starts_with("hugepages-")
}

/// Whether containers may ask for more in sum than there is.
fn is_overcommitted(resource: &str) -> bool {
    let native = resource
        .split_once('/')
        .is_none_or(|(domain, _)| domain.ends_with("kubernetes.io"));
    native && !resource.starts_with("hugepages-")
}
