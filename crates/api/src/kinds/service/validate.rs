//! What is wrong with a service, or with a change of one.

use std::collections::HashSet;

use super::{has_cluster_ip, has_health_check_node_port, is_externally_accessible};
use crate::names::{
    cidr, dns1123_label, dns1123_subdomain, endpoint_address, ip_address, label_key, port_name, port_number,
};
use crate::{Fields, Path, Problems, Value, repeats, validate_labels};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const POLICIES: [&str; 2] = ["Cluster", "Local"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
/// The longest that a client can stick to a pod: a day.
const AFFINITY_SECONDS: i64 = 86400;
const BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";

pub fn validate(service: &Value) -> Problems {
    let mut problems = Problems::default();
    let (spec, path) = (&service["spec"], Path::new("spec"));
    let kind = spec.text("type");
    validate_annotations(service, &mut problems);
    if spec.list("ports").is_empty() && !is_headless(spec) && kind != "ExternalName" {
        problems.required(&path, "ports", "");
    }
    if matches!(kind, "LoadBalancer" | "NodePort") && is_headless(spec) {
        let detail = format!("may not be set to 'None' for {kind} services");
        problems.invalid(&path.child("clusterIPs").index(0), "", "None", detail);
    }
    if kind == "ExternalName" {
        validate_external_name(spec, &path, &mut problems);
    } else {
        validate_addresses(spec, &path, &mut problems);
    }
    validate_ports(spec, &path, &mut problems);
    problems.extend(validate_labels(&spec["selector"], &path.child("selector")));
    validate_affinity(spec, &path, &mut problems);
    for (index, address) in spec.list("externalIPs").iter().enumerate() {
        let address = address.as_str().unwrap_or_default();
        problems.form(
            &path.child("externalIPs").index(index),
            "",
            address,
            endpoint_address(address),
        );
    }
    problems.one_of(spec, &path, "type", &TYPES);
    validate_balancer(spec, &path, &mut problems);
    validate_policies(spec, &path, &mut problems);
    problems
}

pub fn address_problems(spec: &Value) -> Problems {
    let mut problems = Problems::default();
    validate_addresses(spec, &Path::new("spec"), &mut problems);
    problems
}

/// Only load balancers have addresses of their own.
pub fn validate_status(service: &Value) -> Problems {
    let mut problems = Problems::default();
    let balancer = &service["status"]["loadBalancer"];
    let path = Path::new("status").child("loadBalancer").child("ingress");
    if service["spec"].text("type") != "LoadBalancer" {
        if !balancer.list("ingress").is_empty() {
            let detail = "may only be used when `spec.type` is 'LoadBalancer'";
            problems.forbidden(&path, "", detail);
        }
        return problems;
    }
    for (index, ingress) in balancer.list("ingress").iter().enumerate() {
        let (path, ip, host) = (path.index(index), ingress.text("ip"), ingress.text("hostname"));
        if !ip.is_empty() {
            problems.form(&path, "ip", ip, ip_address(ip));
        }
        match (ingress.has("ipMode"), ip.is_empty()) {
            (false, false) => problems.required(&path, "ipMode", "must be specified when `ip` is set"),
            (true, true) => problems.forbidden(&path, "ipMode", "may not be specified when `ip` is not set"),
            (true, false) => problems.optional_one_of(ingress, &path, "ipMode", &["Proxy", "VIP"]),
            (false, true) => {}
        }
        if !host.is_empty() {
            problems.form(&path, "hostname", host, dns1123_subdomain(host, false));
            if host.parse::<std::net::IpAddr>().is_ok() {
                problems.invalid(&path, "hostname", host, "must be a DNS name, not an IP address");
            }
        }
    }
    problems
}

const TOPOLOGY: [&str; 2] = [
    "service.kubernetes.io/topology-mode",
    "service.kubernetes.io/topology-aware-hints",
];
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn validate_annotations(service: &Value, problems: &mut Problems) {
    let annotations = &service["metadata"]["annotations"];
    let path = Path::new("metadata").child("annotations");
    let [mode, hints] = TOPOLOGY;
    if annotations.has(mode) && annotations.has(hints) && annotations[mode] != annotations[hints] {
        let detail = format!("must match annotations[{hints}] when both are specified");
        problems.invalid(&path.key(mode), "", annotations[mode].clone(), detail);
    }
    let spec = &service["spec"];
    if let Some(ranges) = annotations[SOURCE_RANGES].as_str()
        && spec.list("loadBalancerSourceRanges").is_empty()
    {
        let path = path.key(SOURCE_RANGES);
        if spec.text("type") != "LoadBalancer" {
            problems.forbidden(&path, "", BALANCER_ONLY);
        }
        let ranges = ranges.trim();
        for range in ranges.split(',').filter(|_| !ranges.is_empty()) {
            problems.form(&path, "", range, cidr(range.trim()));
        }
    }
}

pub fn validate_update(new: &Value, old: &Value) -> Problems {
    let mut problems = Problems::default();
    let (new, old, path) = (&new["spec"], &old["spec"], Path::new("spec"));
    if has_health_check_node_port(new)
        && has_health_check_node_port(old)
        && new["healthCheckNodePort"] != old["healthCheckNodePort"]
    {
        problems.forbidden(&path, "healthCheckNodePort", "field is immutable");
    }
    if new.text("type") == "LoadBalancer"
        && old.text("type") == "LoadBalancer"
        && new["loadBalancerClass"] != old["loadBalancerClass"]
    {
        let value = new["loadBalancerClass"].clone();
        problems.invalid(&path, "loadBalancerClass", value, "may not change once set");
    }
    let addressed = has_cluster_ip(new) && has_cluster_ip(old);
    if !addressed || is_headless(new) && is_headless(old) {
        return problems;
    }
    let (after, before) = (new.list("clusterIPs"), old.list("clusterIPs"));
    if after.is_empty() && !before.is_empty() {
        let detail = "primary clusterIP can not be unset";
        problems.invalid(
            &path.child("clusterIPs").index(0),
            "",
            new["clusterIPs"].clone(),
            detail,
        );
    }
    for (index, (after, before)) in after.iter().zip(before).enumerate() {
        if after != before {
            let path = path.child("clusterIPs").index(index);
            problems.invalid(&path, "", new["clusterIPs"].clone(), "may not change once set");
        }
    }
    problems
}

fn is_headless(spec: &Value) -> bool {
    matches!(spec.list("clusterIPs"), [only] if only == "None")
}

fn validate_external_name(spec: &Value, path: &Path, problems: &mut Problems) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec.has(field) && spec[field] != Value::Array(Vec::new()) {
            problems.forbidden(path, field, "may not be set for ExternalName services");
        }
    }
    let given = spec.text("externalName");
    match given.strip_suffix('.').unwrap_or(given) {
        "" => problems.required(path, "externalName", ""),
        name => problems.form(path, "externalName", name, dns1123_subdomain(name, false)),
    }
}

fn validate_addresses(spec: &Value, path: &Path, problems: &mut Problems) {
    let addresses: Vec<&str> = spec.list("clusterIPs").iter().filter_map(Value::as_str).collect();
    let list = || spec["clusterIPs"].clone();
    match (spec.text("clusterIP"), addresses.first()) {
        ("", Some(_)) => {
            problems.invalid(
                path,
                "clusterIPs",
                list(),
                "must be empty when `clusterIP` is not specified",
            );
        }
        ("", None) => {}
        (_, None) => problems.required(path, "clusterIPs", ""),
        (address, Some(first)) if address != *first => {
            problems.invalid(path, "clusterIPs", list(), "first value must match `clusterIP`");
        }
        _ => {}
    }
    for (index, address) in addresses.iter().enumerate() {
        match *address {
            "None" if index == 0 && addresses.len() == 1 => {}
            "None" if index == 0 => {
                problems.invalid(path, "clusterIPs", list(), "'None' must be the first and only value");
            }
            address => problems.form(&path.child("clusterIPs").index(index), "", address, ip_address(address)),
        }
    }
    if addresses.len() > 2 {
        problems.invalid(path, "clusterIPs", list(), "may only hold up to 2 values");
    }
    if let [first, second] = addresses[..]
        && first != "None"
        && first.contains(':') == second.contains(':')
    {
        problems.invalid(
            path,
            "clusterIPs",
            list(),
            "may specify no more than one IP for each IP family",
        );
    }
    validate_families(spec, &addresses, path, problems);
}

fn validate_families(spec: &Value, addresses: &[&str], path: &Path, problems: &mut Problems) {
    let families: Vec<&str> = spec.list("ipFamilies").iter().filter_map(Value::as_str).collect();
    let repeated = repeats(&families);
    for (index, family) in families.iter().enumerate() {
        let path = path.child("ipFamilies").index(index);
        if !matches!(*family, "IPv4" | "IPv6") {
            problems.extend([crate::FieldError::not_supported(&path, *family, &["IPv4", "IPv6"])]);
        }
        if repeated[index] {
            problems.duplicate(&path, "", *family);
        }
    }
    problems.optional_one_of(spec, path, "ipFamilyPolicy", &FAMILY_POLICIES);
    for (index, (address, family)) in addresses.iter().zip(&families).enumerate() {
        let fits = *address == "None" || address.contains(':') == (*family == "IPv6");
        if !fits {
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            problems.invalid(&path.child("clusterIPs").index(index), "", *address, detail);
        }
    }
}

fn validate_ports(spec: &Value, path: &Path, problems: &mut Problems) {
    let ports = spec.list("ports");
    let (mut names, mut numbers, mut node_ports) = (HashSet::new(), HashSet::new(), HashSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = path.child("ports").index(index);
        let (name, number) = (port.text("name"), port.number("port"));
        if !name.is_empty() {
            problems.form(&path, "name", name, dns1123_label(name, false));
            if !names.insert(name) {
                problems.duplicate(&path, "name", name);
            }
        } else if ports.len() > 1 {
            problems.required(&path, "name", "");
        }
        problems.form(&path, "port", number, port_number(number));
        problems.one_of(port, &path, "protocol", &PROTOCOLS);
        match port["targetPort"].as_str() {
            Some(target) => problems.form(&path, "targetPort", target, port_name(target)),
            None => {
                let target = port.number("targetPort");
                problems.form(&path, "targetPort", target, port_number(target));
            }
        }
        if let Some(protocol) = port["appProtocol"].as_str() {
            problems.form(&path, "appProtocol", protocol, label_key(protocol));
        }
        let node_port = port.number("nodePort");
        if node_port != 0 {
            if spec.text("type") == "ClusterIP" {
                problems.forbidden(&path, "nodePort", "may not be used when `type` is 'ClusterIP'");
            }
            if !node_ports.insert((port.text("protocol"), node_port)) {
                problems.duplicate(&path, "nodePort", node_port);
            }
        }
        if !numbers.insert((port.text("protocol"), number)) {
            problems.duplicate(
                &path,
                "",
                serde_json::json!({"protocol": port["protocol"], "port": number}),
            );
        }
    }
}

fn validate_affinity(spec: &Value, path: &Path, problems: &mut Problems) {
    problems.one_of(spec, path, "sessionAffinity", &["ClientIP", "None"]);
    let path = path.child("sessionAffinityConfig");
    match spec.text("sessionAffinity") {
        "ClientIP" => {
            let seconds = spec["sessionAffinityConfig"]["clientIP"].number("timeoutSeconds");
            if !(1..=AFFINITY_SECONDS).contains(&seconds) {
                let detail = format!("must be greater than 0 and less than {AFFINITY_SECONDS}");
                problems.invalid(&path.child("clientIP"), "timeoutSeconds", seconds, detail);
            }
        }
        "None" if spec.has("sessionAffinityConfig") => {
            problems.forbidden(&path, "", "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn validate_balancer(spec: &Value, path: &Path, problems: &mut Problems) {
    let is_balancer = spec.text("type") == "LoadBalancer";
    let ranges = spec.list("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let path = path.child("LoadBalancerSourceRanges");
        if !is_balancer {
            problems.forbidden(&path, "", BALANCER_ONLY);
        }
        for (index, range) in ranges.iter().enumerate() {
            let range = range.as_str().unwrap_or_default().trim();
            problems.form(&path.index(index), "", range, cidr(range));
        }
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if spec.has(field) && !is_balancer {
            problems.forbidden(path, field, BALANCER_ONLY);
        }
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        problems.form(path, "loadBalancerClass", class, label_key(class));
    }
}

fn validate_policies(spec: &Value, path: &Path, problems: &mut Problems) {
    let external = spec.text("externalTrafficPolicy");
    if is_externally_accessible(spec) {
        problems.one_of(spec, path, "externalTrafficPolicy", &POLICIES);
    } else if !external.is_empty() {
        let detail = "may only be set for externally-accessible services";
        problems.invalid(path, "externalTrafficPolicy", external, detail);
    }
    let health = spec.number("healthCheckNodePort");
    if health != 0 && !has_health_check_node_port(spec) {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        problems.invalid(path, "healthCheckNodePort", health, detail);
    }
    problems.optional_one_of(spec, path, "internalTrafficPolicy", &POLICIES);
    problems.optional_one_of(spec, path, "trafficDistribution", &DISTRIBUTIONS);
}
