//! What objects use of a quota: the one measure that admission charges by and the controller counts by.

mod claim;
mod pod;
mod scope;

use schema::quantity::{Format, Quantity};

use crate::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use crate::kinds::pod::POD;
use crate::kinds::resource_claim::RESOURCE_CLAIM;
use crate::kinds::service::SERVICE;
use crate::pod_spec::resources::Amounts;
use crate::{Fields, Resource, Value};

pub use pod::missing;
pub use scope::matches;

/// Kinds that were counted before `count/…` was known, under their plural names.
const COUNTED_BY_NAME: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// Whether objects of this resource can be held to a quota at all.
pub fn is_measured(resource: &Resource) -> bool {
    let is_event = resource.plural == "events";
    let is_virtual = resource.plural.ends_with("reviews") || resource.plural == "bindings";
    resource.namespaced && !is_event && !is_virtual
}

/// What one object uses, of everything that a quota can limit. `now` is in seconds since the epoch.
pub fn usage(resource: &Resource, object: &Value, now: i64) -> Amounts {
    let mut usage = Amounts::new();
    usage.insert(count_name(resource), number(1));
    if is(resource, &POD) {
        pod::add_usage(object, now, &mut usage);
    } else if is(resource, &SERVICE) {
        add_service(object, &mut usage);
    } else if is(resource, &PERSISTENT_VOLUME_CLAIM) {
        claim::add_volume_claim(object, &mut usage);
    } else if is(resource, &RESOURCE_CLAIM) {
        claim::add_resource_claim(object, &mut usage);
    } else if is_counted_by_name(resource) {
        usage.insert(resource.plural.to_owned(), number(1));
    }
    usage
}

/// Whether objects of this resource are what the quota's resource `name` limits.
pub fn tracks(resource: &Resource, name: &str) -> bool {
    if name == count_name(resource) {
        return true;
    }
    if is(resource, &POD) {
        pod::tracks(name)
    } else if is(resource, &SERVICE) {
        matches!(name, "services" | "services.loadbalancers" | "services.nodeports")
    } else if is(resource, &PERSISTENT_VOLUME_CLAIM) {
        claim::tracks_volume_claims(name)
    } else if is(resource, &RESOURCE_CLAIM) {
        claim::tracks_resource_claims(name)
    } else {
        is_counted_by_name(resource) && name == resource.plural
    }
}

/// The name under which objects are counted: `count/deployments.apps`.
pub fn count_name(resource: &Resource) -> String {
    format!("count/{}", resource.qualified())
}

fn is(resource: &Resource, other: &Resource) -> bool {
    (resource.group, resource.plural) == (other.group, other.plural)
}

fn is_counted_by_name(resource: &Resource) -> bool {
    resource.group.is_empty() && COUNTED_BY_NAME.contains(&resource.plural)
}

fn add_service(service: &Value, usage: &mut Amounts) {
    let spec = &service["spec"];
    let ports = spec.list("ports");
    let given = ports.iter().filter(|port| port.number("nodePort") != 0);
    // Node ports are not given out yet when a service is admitted: what it wants counts.
    let (balancers, node_ports) = match spec.text("type") {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"] == false => (1, given.count()),
        "LoadBalancer" => (1, ports.len()),
        _ => (0, 0),
    };
    usage.insert("services".to_owned(), number(1));
    usage.insert("services.loadbalancers".to_owned(), number(balancers));
    usage.insert("services.nodeports".to_owned(), number(node_ports as i64));
}

fn number(count: i64) -> Quantity {
    Quantity::new(count, Format::DecimalSi)
}

#[cfg(test)]
mod tests;
