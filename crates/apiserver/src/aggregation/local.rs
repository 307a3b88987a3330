//! The APIServices of what this server serves itself: built-in groups from the start, custom ones as they come and go.

use std::collections::BTreeSet;

use api::kinds::api_service::API_SERVICE;
use api::{Error, Fields, Reason, Value};
use registry::Seed;
use registry::{DeleteOptions, Registry, WriteOptions};
use serde_json::json;

/// Marks those that this server keeps: `onstart` built-in ones, `true` custom ones.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Custom resources come after everything else.
const CUSTOM_PRIORITIES: (i64, i64) = (1000, 100);

/// The priorities of built-in groups and of their versions, as clients see them in discovery's order.
const PRIORITIES: &[(&str, &str, i64, i64)] = &[
    ("", "v1", 18000, 1),
    ("apps", "v1", 17800, 15),
    ("events.k8s.io", "v1", 17750, 15),
    ("authentication.k8s.io", "v1", 17700, 15),
    ("authorization.k8s.io", "v1", 17600, 15),
    ("autoscaling", "v1", 17500, 15),
    ("autoscaling", "v2", 17500, 30),
    ("batch", "v1", 17400, 15),
    ("certificates.k8s.io", "v1", 17300, 15),
    ("networking.k8s.io", "v1", 17200, 15),
    ("policy", "v1", 17100, 15),
    ("rbac.authorization.k8s.io", "v1", 17000, 15),
    ("storage.k8s.io", "v1", 16800, 15),
    ("apiextensions.k8s.io", "v1", 16700, 15),
    ("admissionregistration.k8s.io", "v1", 16700, 15),
    ("scheduling.k8s.io", "v1", 16600, 15),
    ("coordination.k8s.io", "v1", 16500, 15),
    ("node.k8s.io", "v1", 16300, 15),
    ("discovery.k8s.io", "v1", 16200, 15),
    ("resource.k8s.io", "v1", 16200, 21),
    ("flowcontrol.apiserver.k8s.io", "v1", 16100, 21),
    // As metrics-server registers it, which takes over by naming its Service here.
    ("metrics.k8s.io", "v1beta1", 100, 100),
];

pub fn seeds() -> Vec<Seed> {
    let rows = PRIORITIES.iter();
    rows.map(|(group, version, of_group, of_version)| {
        let service = service(group, version, (*of_group, *of_version), "onstart");
        Seed::new(&API_SERVICE, service)
    })
    .collect()
}

fn service(group: &str, version: &str, priorities: (i64, i64), managed: &str) -> Value {
    let mut spec = json!({
        "version": version, "groupPriorityMinimum": priorities.0, "versionPriority": priorities.1,
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({
        "metadata": { "name": format!("{version}.{group}"), "labels": { AUTOMANAGED: managed } },
        "spec": spec,
    })
}

/// Registers custom groups and versions that are new, and takes away those that are gone.
pub async fn keep_customs(registry: &Registry, stored: &[Value], options: &WriteOptions) -> Result<(), Error> {
    let custom_resources = registry.custom_resources();
    let wanted: BTreeSet<String> = custom_resources
        .group_versions()
        .map(|(group, version)| format!("{version}.{group}"))
        .collect();
    let name = |service: &Value| service["metadata"].text("name").to_owned();
    let known: BTreeSet<String> = stored.iter().map(name).collect();
    let missing = custom_resources
        .group_versions()
        .filter(|(group, version)| !known.contains(&format!("{version}.{group}")));
    let missing: Vec<Seed> = missing
        .map(|(group, version)| Seed::new(&API_SERVICE, service(group, version, CUSTOM_PRIORITIES, "true")))
        .collect();
    if !missing.is_empty() {
        registry.seed(missing).await?;
    }
    let served = registry.served(&API_SERVICE)?.clone();
    let ours = |service: &&Value| service["metadata"]["labels"][AUTOMANAGED] == "true";
    for gone in stored
        .iter()
        .filter(ours)
        .map(name)
        .filter(|name| !wanted.contains(name))
    {
        let deleted = registry
            .delete(&served, "", &gone, &DeleteOptions::default(), options)
            .await;
        match deleted {
            Err(error) if error.reason != Reason::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_group_is_registered() {
        let registered: BTreeSet<(&str, &str)> = PRIORITIES.iter().map(|row| (row.0, row.1)).collect();
        // The group of APIServices themselves is not one of them, as upstream has it.
        let served = api::kinds::GROUP_VERSIONS.iter().copied();
        let served: BTreeSet<(&str, &str)> = served.filter(|(group, _)| *group != "apiregistration.k8s.io").collect();
        assert_eq!(registered, served);
    }
}
