//! Service: a stable address in front of pods.

mod print;
mod update;
mod validate;

use serde_json::json;

use crate::names::dns1123_label;
use crate::warnings;
use crate::{Column, FieldError, Fields, PROXY_VERBS, Path, Resource, Rules, Subresource, Value};

pub static SERVICE: Resource = Resource::namespaced("", "v1", "Service", "services", "service")
    .short(&["svc"])
    .in_categories(&["all"])
    .stored_at("services/specs")
    .with_subresources(&[
        Subresource::new("proxy", PROXY_VERBS).with_body("", "v1", "ServiceProxyOptions"),
        Subresource::STATUS,
    ])
    .returning_deleted()
    .converting_field_labels()
    .with_rules(&ServiceRules);

struct ServiceRules;

impl Rules for ServiceRules {
    fn default(&self, service: &mut Value) {
        let spec = service.ensure("spec");
        spec.fill("sessionAffinity", "None");
        default_affinity_config(spec);
        spec.fill("type", "ClusterIP");
        for port in spec.list_mut("ports") {
            port.fill("protocol", "TCP");
            let number = port.number("port");
            if matches!(&port["targetPort"], target if target.is_null() || *target == 0 || *target == "") {
                port.set("targetPort", number);
            }
        }
        if is_externally_accessible(spec) {
            spec.fill("externalTrafficPolicy", "Cluster");
        }
        let kind = spec.text("type").to_owned();
        if has_cluster_ip(spec) {
            spec.fill_absent("internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            spec.fill("allocateLoadBalancerNodePorts", true);
            if let Some(balancer) = service
                .child_mut("status")
                .and_then(|status| status.child_mut("loadBalancer"))
            {
                for ingress in balancer.list_mut("ingress") {
                    if !ingress.text("ip").is_empty() {
                        ingress.fill("ipMode", "VIP");
                    }
                }
            }
        }
    }

    fn prepare_create(&self, service: &mut Value) {
        service.set("status", json!({"loadBalancer": {}}));
        update::name_first_address(service.ensure("spec"));
        default_families(service.ensure("spec"));
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        update::keep_allocations(new.ensure("spec"), &old["spec"]);
        update::drop_what_the_type_forbids(new, &old["spec"]);
        default_families(new.ensure("spec"));
    }

    fn validate(&self, service: &Value) -> Vec<FieldError> {
        validate::validate(service).into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::validate_update(new, old).into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        validate::validate_status(new).into_vec()
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        dns1123_label(name, prefix)
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn field(&self, service: &Value, path: &str) -> Option<String> {
        match path {
            "spec.clusterIP" => Some(service["spec"].text("clusterIP").to_owned()),
            "spec.type" => Some(service["spec"].text("type").to_owned()),
            _ => None,
        }
    }

    fn columns(&self) -> &'static [Column] {
        print::COLUMNS
    }

    fn cells(&self, service: &Value, now: i64) -> Vec<Value> {
        print::cells(service, now)
    }

    fn warnings(&self, service: &Value) -> Vec<String> {
        spec_warnings(&service["spec"])
    }
}

/// What is unusual or outdated about a Service.
fn spec_warnings(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let path = Path::new("spec");
    warnings::of_addresses(spec, "clusterIPs", &path, &mut warnings);
    warnings::of_addresses(spec, "externalIPs", &path, &mut warnings);
    let balancer = spec.text("loadBalancerIP");
    warnings.extend(warnings::of_address(balancer, &path.child("loadBalancerIP")));
    for (index, range) in spec.list("loadBalancerSourceRanges").iter().enumerate() {
        let place = path.child("loadBalancerSourceRanges").index(index);
        warnings.extend(warnings::of_range(range.as_str().unwrap_or_default(), &place));
    }
    if !spec.list("externalIPs").is_empty() {
        let text = "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        warnings.push(match spec.text("type") {
            "ExternalName" => "spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned(),
            _ => text.to_owned(),
        });
    }
    if spec.text("trafficDistribution") == "PreferClose" {
        let text = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        warnings.push(text.to_owned());
    }
    warnings
}

/// Seconds for which a client sticks to a pod when the service says only that it should.
const AFFINITY_SECONDS: i64 = 10800;

fn default_affinity_config(spec: &mut Value) {
    match spec.text("sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" if !spec["sessionAffinityConfig"]["clientIP"].has("timeoutSeconds") => {
            spec.set(
                "sessionAffinityConfig",
                json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}),
            );
        }
        _ => {}
    }
}

/// Gives a service with cluster addresses its families: that of the address it names, IPv4 otherwise.
fn default_families(spec: &mut Value) {
    if !has_cluster_ip(spec) {
        return;
    }
    // A headless service without a selector takes whatever endpoints it is given.
    let takes_both = spec.text("clusterIP") == "None" && spec.entries("selector").next().is_none();
    if takes_both && !spec.has("ipFamilyPolicy") && spec.list("ipFamilies").is_empty() {
        spec.set("ipFamilyPolicy", "RequireDualStack");
        spec.set("ipFamilies", json!(["IPv4", "IPv6"]));
    }
    spec.fill_absent("ipFamilyPolicy", "SingleStack");
    if spec.list("ipFamilies").is_empty() {
        let families: Vec<&str> = match spec.list("clusterIPs") {
            [] => vec!["IPv4"],
            [first, ..] if first == "None" && takes_both && spec.text("ipFamilyPolicy") != "SingleStack" => {
                vec!["IPv4", "IPv6"]
            }
            [first, ..] if first == "None" => vec!["IPv4"],
            addresses => addresses
                .iter()
                .map(|address| family(address.as_str().unwrap_or_default()))
                .collect(),
        };
        spec.set("ipFamilies", families);
    }
}

fn family(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
}

/// What is wrong with the addresses of a service and their families.
pub fn address_problems(spec: &Value) -> Vec<FieldError> {
    validate::address_problems(spec).into_vec()
}

/// Every type but ExternalName has cluster addresses, even if that is `None`.
pub(crate) fn has_cluster_ip(spec: &Value) -> bool {
    matches!(spec.text("type"), "ClusterIP" | "NodePort" | "LoadBalancer")
}

pub(crate) fn has_node_ports(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

pub(crate) fn has_health_check_node_port(spec: &Value) -> bool {
    spec.text("type") == "LoadBalancer" && spec.text("externalTrafficPolicy") == "Local"
}

pub(crate) fn is_externally_accessible(spec: &Value) -> bool {
    match spec.text("type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => !spec.list("externalIPs").is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
