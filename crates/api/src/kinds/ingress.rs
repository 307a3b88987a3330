//! Ingress: rules by which requests from outside reach services.

use crate::names::{dns1123_label, dns1123_subdomain, port_name, port_number};
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
        validate_optional_name(spec, "ingressClassName", &path, &mut problems);
        for (index, rule) in spec.list("rules").iter().enumerate() {
            validate_rule(rule, &path.child("rules").index(index), &mut problems);
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
}

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
    if host.parse::<std::net::IpAddr>().is_ok() {
        problems.invalid(path, "host", host, "must be a DNS name, not an IP address");
    } else if !host.is_empty() {
        let name = host.strip_prefix("*.").unwrap_or(host);
        problems.form(path, "host", host, dns1123_subdomain(name, false));
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
        let text = entry.text("path");
        match entry.text("pathType") {
            "" => {
                problems.required(&path, "pathType", "pathType must be specified");
                continue;
            }
            "Exact" | "Prefix" if !text.starts_with('/') => {
                problems.invalid(&path, "path", text, "must be an absolute path");
            }
            "ImplementationSpecific" if !text.is_empty() && !text.starts_with('/') => {
                problems.invalid(&path, "path", text, "must be an absolute path");
            }
            _ => {}
        }
        let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
        problems.optional_one_of(entry, &path, "pathType", &kinds);
        validate_backend(&entry["backend"], &path.child("backend"), problems);
    }
}

fn validate_backend(backend: &Value, path: &Path, problems: &mut Problems) {
    let service = &backend["service"];
    match (service.is_object(), backend.has("resource")) {
        (true, true) => return problems.invalid(path, "", "", "cannot set both resource and service backends"),
        (false, true) => return,
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

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Class", "The ingress class, which names the controller."),
    print::text("Hosts", "The host names that are routed."),
    print::text("Address", "Where the load balancer listens."),
    print::text("Ports", "The ports it listens on."),
    AGE,
];
