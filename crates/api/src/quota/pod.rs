//! What pods use.

use std::collections::{BTreeMap, BTreeSet};

use super::number;
use crate::pod_spec::resources::{Amounts, is_pod_level, of_pod, read};
use crate::{Fields, Value, print};

/// What containers must ask for when a quota limits it: a mistake that upstream keeps.
const DEMANDED: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];
const BASIC: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Pods that have ended use nothing but their place in the store.
pub fn add_usage(pod: &Value, now: i64, usage: &mut Amounts) {
    if !is_alive(pod, now) {
        return;
    }
    let spec = &pod["spec"];
    let (mut requests, mut limits) = (of_pod(spec, "requests"), of_pod(spec, "limits"));
    for (resource, overhead) in read(spec, "overhead") {
        requests.entry(resource.clone()).or_insert(number(0)).add(&overhead);
        if let Some(limit) = limits.get_mut(&resource) {
            limit.add(&overhead);
        }
    }
    usage.insert("pods".to_owned(), number(1));
    usage.extend(compute(&requests, &limits));
}

/// Requests and limits under the names that quotas have for them.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::new();
    for (resource, request) in requests {
        let is_plain = BASIC.contains(&resource.as_str()) || resource.starts_with("hugepages-");
        if is_plain {
            usage.insert(resource.clone(), request.clone());
        }
        if is_plain || is_extended(resource) {
            usage.insert(format!("requests.{resource}"), request.clone());
        }
    }
    for (resource, limit) in limits.iter().filter(|(resource, _)| BASIC.contains(&resource.as_str())) {
        usage.insert(format!("limits.{resource}"), limit.clone());
    }
    usage
}

pub fn tracks(name: &str) -> bool {
    let bare = name.strip_prefix("requests.").or(name.strip_prefix("limits."));
    name == "pods"
        || BASIC.contains(&bare.unwrap_or(name))
        || name.starts_with("hugepages-")
        || name
            .strip_prefix("requests.")
            .is_some_and(|bare| bare.starts_with("hugepages-") || is_extended(bare))
}

/// Which of the `required` resources containers do not ask for, in words; `None` when all is said.
pub fn missing<'a>(pod: &Value, required: impl Iterator<Item = &'a str>) -> Option<String> {
    let spec = &pod["spec"];
    let says = |list: &str| read(&spec["resources"], list).keys().any(|name| is_pod_level(name));
    if says("requests") || says("limits") {
        return None;
    }
    let required: BTreeSet<&str> = required.filter(|name| DEMANDED.contains(name)).collect();
    let mut lacking: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in spec.list("containers").iter().chain(spec.list("initContainers")) {
        let resources = &container["resources"];
        let said = compute(&read(resources, "requests"), &read(resources, "limits"));
        for name in required.iter().filter(|name| !said.contains_key(**name)) {
            lacking.entry(name).or_default().insert(container.text("name"));
        }
    }
    let parts: Vec<String> = lacking
        .into_iter()
        .map(|(name, containers)| {
            let containers: Vec<&str> = containers.into_iter().collect();
            format!("{name} for: {}", containers.join(","))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
}

/// A pod counts until it has ended, or should have been gone for as long as it was given to go.
fn is_alive(pod: &Value, now: i64) -> bool {
    if matches!(pod["status"].text("phase"), "Failed" | "Succeeded") {
        return false;
    }
    let deleted = print::seconds(&pod["metadata"]["deletionTimestamp"]);
    let grace = pod["metadata"].number("deletionGracePeriodSeconds");
    let has_grace = pod["metadata"].has("deletionGracePeriodSeconds");
    deleted.is_none_or(|deleted| !has_grace || now <= deleted + grace)
}

/// A resource with a domain that is not the project's own.
fn is_extended(resource: &str) -> bool {
    match resource.split_once('/') {
        Some((domain, _)) => {
            let is_native = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
            !resource.starts_with("requests.") && (!is_native || domain == "deviceclass.resource.kubernetes.io")
        }
        None => false,
    }
}
