//! Ingress: rules by which requests from outside reach services.

use crate::names::{
    dns1123_label, dns1123_subdomain, ip_address, path_segment, port_name, port_number, wildcard_subdomain,
};
use crate::pod_spec::validate_optional_name;
use crate::print::{self, AGE, NAME, or_none};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static INGRESS: Resource = Resource::namespaced("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress")
    .short(&["ing"])
    .stored_at("ingress")
    .with_subresources(&[Subresource::STATUS])
    .with_rules(&IngressRules);

struct IngressRules;

impl Rules for IngressRules {
    fn prepare_create(&self, ingress: &mut Value) {
        ingress.set("status", json!({"loadBalancer": {}}));
    }

    fn validate(&self, ingress: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&ingress["spec"], Path::new("spec"));
        if spec.list("rules").is_empty() && !spec.has("defaultBackend") {
            let detail = "either `defaultBackend` or `rules` must be specified";
            problems.invalid(&path, "", spec["rules"].clone(), detail);
        }
        if spec.has("defaultBackend") {
            validate_backend(&spec["defaultBackend"], &path.child("defaultBackend"), &mut problems);
        }
        if let Some(class) = spec["ingressClassName"].as_str() {
            problems.form(&path, "ingressClassName", class, dns1123_subdomain(class, false));
        }
        for (index, tls) in spec.list("tls").iter().enumerate() {
            validate_tls(tls, &path.child("tls").index(index), &mut problems);
        }
        for (index, rule) in spec.list("rules").iter().enumerate() {
            validate_rule(rule, &path.child("rules").index(index), &mut problems);
        }
        problems.into_vec()
    }

    /// Before there were classes, an annotation named the controller.
    fn validate_create(&self, ingress: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (old, class) = (
            ingress["metadata"]["annotations"][CLASS_ANNOTATION].as_str(),
            ingress["spec"]["ingressClassName"].as_str(),
        );
        if let (Some(old), Some(class)) = (old, class)
            && old != class
        {
            let detail = "must match `ingressClassName` when both are specified";
            problems.invalid(&Path::new("annotations").child(CLASS_ANNOTATION), "", old, detail);
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("status").child("loadBalancer").child("ingress");
        for (index, point) in new["status"]["loadBalancer"].list("ingress").iter().enumerate() {
            let path = path.index(index);
            let (ip, hostname) = (point.text("ip"), point.text("hostname"));
            if !ip.is_empty() {
                problems.form(&path, "ip", ip, ip_address(ip));
            }
            if !hostname.is_empty() {
                validate_host(hostname, &path.child("hostname"), &mut problems);
            }
        }
        problems.into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, ingress: &Value, now: i64) -> Vec<Value> {
        let spec = &ingress["spec"];
        vec![
            print::name(ingress),
            or_none(spec.text("ingressClassName")),
            hosts(spec).into(),
            addresses(&ingress["status"]).into(),
            if spec.list("tls").is_empty() { "80" } else { "80, 443" }.into(),
            print::age(ingress, now),
        ]
    }

    fn warnings(&self, ingress: &Value) -> Vec<String> {
        if !ingress["metadata"]["annotations"].has(OLD_INGRESS_CLASS) {
            return Vec::new();
        }
        let instead = "please use 'spec.ingressClassName' instead";
        vec![format!("annotation {OLD_INGRESS_CLASS:?} is deprecated, {instead}")]
    }
}

const OLD_INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

fn hosts(spec: &Value) -> String {
    let hosts: Vec<String> = spec
        .list("rules")
        .iter()
        .map(|rule| rule.text("host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    print::at_most_three(&hosts, "*")
}

fn addresses(status: &Value) -> String {
    let ingress = status["loadBalancer"].list("ingress").iter();
    let mut addresses: Vec<&str> = ingress
        .map(|point| match point.text("ip") {
            "" => point.text("hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

fn validate_rule(rule: &Value, path: &Path, problems: &mut Problems) {
    let host = rule.text("host");
    if !host.is_empty() {
        validate_host(host, &path.child("host"), problems);
    }
    if !rule.has("http") {
        return;
    }
    let path = path.child("http");
    if rule["http"].list("paths").is_empty() {
        problems.required(&path, "paths", "");
    }
    for (index, entry) in rule["http"].list("paths").iter().enumerate() {
        let path = path.child("paths").index(index);
        if !entry.has("pathType") {
            problems.required(&path, "pathType", "pathType must be specified");
            continue;
        }
        validate_path(entry, &path, problems);
        let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
        problems.optional_one_of(entry, &path, "pathType", &kinds);
        validate_backend(&entry["backend"], &path.child("backend"), problems);
    }
}

fn validate_host(host: &str, path: &Path, problems: &mut Problems) {
    if host.parse::<std::net::IpAddr>().is_ok() {
        return problems.invalid(path, "", host, "must be a DNS name, not an IP address");
    }
    let found = match host.contains('*') {
        true => wildcard_subdomain(host),
        false => dns1123_subdomain(host, false),
    };
    problems.form(path, "", host, found);
}

/// Paths that are compared by their segments have plain ones.
fn validate_path(entry: &Value, path: &Path, problems: &mut Problems) {
    let (kind, text) = (entry.text("pathType"), entry.text("path"));
    let compared = matches!(kind, "Exact" | "Prefix");
    let absolute = text.starts_with('/') || (kind == "ImplementationSpecific" && text.is_empty());
    if !absolute && (compared || kind == "ImplementationSpecific") {
        problems.invalid(path, "path", text, "must be an absolute path");
    }
    if !compared || text.is_empty() {
        return;
    }
    for odd in ["//", "/./", "/../", "%2f", "%2F"]
        .into_iter()
        .filter(|odd| text.contains(odd))
    {
        problems.invalid(path, "path", text, format!("must not contain '{odd}'"));
    }
    for odd in ["/..", "/."].into_iter().filter(|odd| text.ends_with(odd)) {
        problems.invalid(path, "path", text, format!("cannot end with '{odd}'"));
    }
}

fn validate_tls(tls: &Value, path: &Path, problems: &mut Problems) {
    for (index, host) in tls.list("hosts").iter().filter_map(Value::as_str).enumerate() {
        let found = match host.contains('*') {
            true => wildcard_subdomain(host),
            false => dns1123_subdomain(host, false),
        };
        problems.form(&path.child("hosts").index(index), "", host, found);
    }
    validate_optional_name(tls, "secretName", path, problems);
}

/// A backend that is no service: an object of some other kind.
fn validate_reference(resource: &Value, path: &Path, problems: &mut Problems) {
    if let Some(group) = resource["apiGroup"].as_str() {
        problems.form(path, "apiGroup", group, dns1123_subdomain(group, false));
    }
    for field in ["kind", "name"] {
        if problems.needs(resource, path, field) {
            let text = resource.text(field);
            problems.form(path, field, text, path_segment(text, false));
        }
    }
}

fn validate_backend(backend: &Value, path: &Path, problems: &mut Problems) {
    let service = &backend["service"];
    match (service.is_object(), backend.has("resource")) {
        (true, true) => return problems.invalid(path, "", "", "cannot set both resource and service backends"),
        (false, true) => return validate_reference(&backend["resource"], &path.child("resource"), problems),
        (false, false) => return problems.invalid(path, "", "", "resource or service backend is required"),
        (true, false) => {}
    }
    let service_path = path.child("service");
    if problems.needs(service, &service_path, "name") {
        let name = service.text("name");
        problems.form(&service_path, "name", name, dns1123_label(name, false));
    }
    let (name, number) = (service["port"].text("name"), service["port"].number("number"));
    match (name, number) {
        ("", 0) => problems.required(path, "", "port name or number is required"),
        ("", number) => problems.form(&service_path.child("port"), "number", number, port_number(number)),
        (name, 0) => problems.form(&service_path.child("port"), "name", name, port_name(name)),
        _ => problems.invalid(path, "", "", "cannot set both port name & port number"),
    }
}

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Class", "The ingress class, which names the controller."),
    print::text("Hosts", "The host names that are routed."),
    print::text("Address", "Where the load balancer listens."),
    print::text("Ports", "The ports it listens on."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn hosts_paths_and_backends_are_checked() {
        let service = json!({"name": "s", "port": {"number": 80}});
        let ingress = json!({"spec": {
            "tls": [{"hosts": ["*.example.com", "Bad"]}],
            "rules": [{"host": "*.*.example.com", "http": {"paths": [
                {"path": "/a/../b", "pathType": "Prefix", "backend": {"service": service}},
                {"path": "/a/../b", "pathType": "ImplementationSpecific", "backend": {"service": service}},
                {"path": "/", "pathType": "", "backend": {"resource": {"kind": "a/b"}}},
            ]}}],
        }});
        let found = IngressRules.validate(&ingress);
        let found: Vec<&str> = found.iter().map(|problem| problem.field.as_str()).collect();
        expect![[r#"
            spec.tls[0].hosts[1]
            spec.rules[0].host
            spec.rules[0].http.paths[0].path
            spec.rules[0].http.paths[2].pathType
            spec.rules[0].http.paths[2].backend.resource.kind
            spec.rules[0].http.paths[2].backend.resource.name"#]]
        .assert_eq(&found.join("\n"));
    }
}
