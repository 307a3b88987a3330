//! What pods ask for and what nodes have left.

use std::collections::BTreeMap;

use api::Value;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use schema::quantity::Quantity;

use super::containers;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::Look;

const MAX_NODES: usize = 5;

/// What a pod asks for of one resource: its containers together, or its largest init container.
pub fn requested(pod: &Value, resource: &str) -> Quantity {
    let whole = quantity(pod.at("spec.resources.requests").get(resource));
    if !whole.is_zero() {
        return whole;
    }
    let mut sum = Quantity::ZERO;
    let mut largest = Quantity::ZERO;
    for container in containers(pod) {
        let request = quantity(container.spec.at("resources.requests").get(resource));
        let is_sidecar = container.spec.str("restartPolicy") == "Always";
        match container.is_init && !is_sidecar {
            true if request > largest => largest = request,
            true => (),
            false => sum.add(&request),
        }
    }
    let mut total = if largest > sum { largest } else { sum };
    total.add(&quantity(pod.at("spec.overhead").get(resource)));
    total
}

fn quantity(value: Option<&Value>) -> Quantity {
    let text = value.and_then(Value::as_str).unwrap_or_default();
    text.parse().unwrap_or(Quantity::ZERO)
}

/// For `1 Insufficient cpu`: what the pod asks for and what each node has.
pub fn shortage(facts: &Facts, pod: &Value, reason: &str) -> Vec<String> {
    let Some((_, resource)) = reason.split_once("Insufficient ") else {
        return Vec::new();
    };
    let wanted = requested(pod, resource);
    let mut lines = vec![format!("The pod requests {resource} {wanted}.")];
    let mut used: BTreeMap<&str, Quantity> = BTreeMap::new();
    for other in facts.list(&POD) {
        if !matches!(other.str("status.phase"), "Succeeded" | "Failed") {
            let total = used.entry(other.str("spec.nodeName")).or_insert(Quantity::ZERO);
            total.add(&requested(other, resource));
        }
    }
    for node in facts.list(&NODE).iter().take(MAX_NODES) {
        let all = quantity(node.at("status.allocatable").get(resource));
        let used = used.get(node.name()).unwrap_or(&Quantity::ZERO);
        lines.push(match facts.knows_all(&POD) {
            true if *used < all => {
                let mut free = all.clone();
                free.sub(used);
                format!("Node {} has {free} of {all} free.", node.name())
            }
            true => format!("Node {} has 0 of {all} free.", node.name()),
            false => format!("Node {} has {all} allocatable.", node.name()),
        });
    }
    lines
}

pub fn resize_is_held_back(_: &Facts, pod: &Value) -> Vec<Finding> {
    let Some(condition) = pod.condition_is("PodResizePending", "True") else {
        return Vec::new();
    };
    let message = condition.str("message");
    vec![match condition.str("reason") {
        "Infeasible" => Finding::broken(
            "resize-infeasible",
            format!("Its resize is infeasible on its node: {message}"),
        )
        .next("Request less, or create the pod again so that it is scheduled to another node."),
        _ => Finding::waiting(
            "resize-deferred",
            format!("Its resize is deferred until its node has capacity: {message}"),
        )
        .next("Free resources on the node, or request less."),
    }]
}
