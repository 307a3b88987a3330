//! Which objects a quota looks at.

use super::is;
use crate::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use crate::kinds::pod::POD;
use crate::{Fields, Resource, Value};

/// Whether the object is in every scope of the quota. Only pods and claims of volumes are ever in one.
pub fn matches(quota: &Value, resource: &Resource, object: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = spec.list("scopes").iter().filter_map(Value::as_str);
    let selectors = spec["scopeSelector"].list("matchExpressions").iter();
    let is_in = |scope: &str, selector: &Value| {
        if is(resource, &POD) {
            is_pod_in(object, scope, selector)
        } else {
            is(resource, &PERSISTENT_VOLUME_CLAIM) && is_claim_in(object, scope, selector)
        }
    };
    scopes
        .map(|scope| (scope, &Value::Null))
        .chain(selectors.map(|one| (one.text("scopeName"), one)))
        .all(|(scope, selector)| is_in(scope, selector))
}

fn is_pod_in(pod: &Value, scope: &str, selector: &Value) -> bool {
    let spec = &pod["spec"];
    let has_deadline = spec["activeDeadlineSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => has_deadline,
        "NotTerminating" => !has_deadline,
        "BestEffort" => is_best_effort(spec),
        "NotBestEffort" => !is_best_effort(spec),
        "PriorityClass" => {
            let class = spec.text("priorityClassName");
            selects(selector, [class].into_iter().filter(|class| !class.is_empty()))
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
        _ => false,
    }
}

/// A claim may be between two classes, and is then in both.
fn is_claim_in(claim: &Value, scope: &str, selector: &Value) -> bool {
    if scope != "VolumeAttributesClass" {
        return false;
    }
    let (spec, status) = (&claim["spec"], &claim["status"]);
    let classes = [
        spec.text("volumeAttributesClassName"),
        status.text("currentVolumeAttributesClassName"),
        status["modifyVolumeStatus"].text("targetVolumeAttributesClassName"),
    ];
    selects(selector, classes.into_iter().filter(|class| !class.is_empty()))
}

/// A selector over the names that an object has in a scope; a scope without one asks for any name.
fn selects<'a>(selector: &Value, mut names: impl Iterator<Item = &'a str> + Clone) -> bool {
    let is_listed = |name: &str| selector.list("values").iter().any(|value| value == name);
    match selector.text("operator") {
        "In" => names.any(is_listed),
        "NotIn" => names.clone().next().is_none() || names.any(|name| !is_listed(name)),
        "DoesNotExist" => names.next().is_none(),
        _ => names.next().is_some(),
    }
}

/// No container, nor the pod as a whole, asks for cpu or memory.
fn is_best_effort(spec: &Value) -> bool {
    let asks = |resources: &Value| {
        ["requests", "limits"].iter().any(|list| {
            ["cpu", "memory"].iter().any(|name| {
                let amount = resources[*list][*name].as_str();
                let amount = amount.and_then(|text| text.parse::<schema::quantity::Quantity>().ok());
                amount.is_some_and(|amount| !amount.is_zero())
            })
        })
    };
    let mut containers = spec.list("containers").iter().chain(spec.list("initContainers"));
    !asks(&spec["resources"]) && !containers.any(|container| asks(&container["resources"]))
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| !term.list("namespaces").is_empty() || term.has("namespaceSelector");
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let required = affinity[*kind].list("requiredDuringSchedulingIgnoredDuringExecution");
        let preferred = affinity[*kind].list("preferredDuringSchedulingIgnoredDuringExecution");
        required.iter().any(crosses) || preferred.iter().any(|one| crosses(&one["podAffinityTerm"]))
    })
}
