//! What is wrong with a pod's spec, in a pod or in a template.

mod claim;
mod container;
mod handler;
mod legacy;
mod mount;
mod resource;
mod scheduling;
mod security;
mod system;
mod volume;

use std::collections::HashSet;

use crate::metadata::validate_annotations;
use crate::names::{dns_search_path, dns1123_label, dns1123_subdomain, ip_address, label_key};
use crate::{Fields, Path, Problems, Value, validate_labels};

pub(crate) use claim::{validate_access_modes, validate_claim_spec, validate_size};
pub(crate) use resource::{
    validate_amount as validate_resource_amount, validate_any_name as validate_any_resource,
    validate_name as validate_resource, validate_requirements,
};
pub(crate) use scheduling::{validate_node_selector, validate_tolerations};
pub(crate) use volume::{validate_host_path, validate_optional_name, validate_required_texts};

/// What the checks of parts need to know about the whole.
pub struct Context<'a> {
    pub spec: &'a Value,
    /// A pod is held to some rules that a template of one is not.
    pub is_pod: bool,
    /// Names that are made from the pod's must be names as well; templates have none.
    pub pod_name: &'a str,
}

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const NAMESERVERS: usize = 3;
const SEARCH_PATHS: usize = 32;
const SEARCH_LIST_BYTES: usize = 2048;

/// Checks a template: its labels, its annotations and its spec.
pub fn validate_template(template: &Value, path: &Path, problems: &mut Problems) {
    let metadata = &template["metadata"];
    problems.extend(validate_labels(&metadata["labels"], &path.child("labels")));
    problems.extend(validate_annotations(
        &metadata["annotations"],
        &path.child("annotations"),
    ));
    let spec_path = path.child("spec");
    if !template["spec"].list("ephemeralContainers").is_empty() {
        problems.forbidden(
            &spec_path,
            "ephemeralContainers",
            "ephemeral containers not allowed in pod template",
        );
    }
    validate_pod_spec(
        &Context {
            spec: &template["spec"],
            is_pod: false,
            pod_name: "",
        },
        &spec_path,
        problems,
    );
}

pub fn validate_pod_spec(context: &Context, path: &Path, problems: &mut Problems) {
    let spec = context.spec;
    if !spec.has("terminationGracePeriodSeconds") {
        problems.required(path, "terminationGracePeriodSeconds", "");
    }
    let volumes = volume::validate_volumes(context, path, problems);
    container::validate_containers(context, &volumes, path, problems);
    problems.one_of(spec, path, "restartPolicy", &RESTART_POLICIES);
    problems.one_of(spec, path, "dnsPolicy", &DNS_POLICIES);
    problems.extend(validate_labels(&spec["nodeSelector"], &path.child("nodeSelector")));
    security::validate_pod_context(spec, path, problems);
    scheduling::validate(spec, path, problems);
    validate_dns(spec, path, problems);
    validate_names(spec, path, problems);
    validate_host_aliases(spec, path, problems);
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        problems.invalid(
            path,
            "activeDeadlineSeconds",
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    problems.optional_one_of(spec, path, "preemptionPolicy", &["PreemptLowerPriority", "Never"]);
    system::validate(spec, path, problems);
    security::validate_host_process(spec, path, problems);
    resource::validate_pod_resources(spec, path, problems);
    resource::validate_pod_claims(spec, path, problems);
}

/// The references and names of a spec that are single texts.
fn validate_names(spec: &Value, path: &Path, problems: &mut Problems) {
    for field in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        let name = spec.text(field);
        if !name.is_empty() {
            problems.form(path, field, name, dns1123_subdomain(name, false));
        }
    }
    for field in ["hostname", "subdomain"] {
        let name = spec.text(field);
        if !name.is_empty() {
            problems.form(path, field, name, dns1123_label(name, false));
        }
    }
    for (index, gate) in spec.list("readinessGates").iter().enumerate() {
        let path = path.child("readinessGates").index(index);
        let name = gate.text("conditionType");
        problems.form(&path, "conditionType", name, label_key(name));
    }
    let mut seen = HashSet::new();
    for (index, gate) in spec.list("schedulingGates").iter().enumerate() {
        let path = path.child("schedulingGates").index(index);
        let name = gate.text("name");
        problems.form(&path, "", name, label_key(name));
        if !seen.insert(name) {
            problems.duplicate(&path, "", name);
        }
    }
}

fn validate_dns(spec: &Value, path: &Path, problems: &mut Problems) {
    let config = &spec["dnsConfig"];
    let path = path.child("dnsConfig");
    let servers = config.list("nameservers");
    if spec.text("dnsPolicy") == "None" {
        if !config.is_object() {
            return problems.required(&path, "", "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return problems.required(&path, "nameservers", detail);
        }
    }
    if servers.len() > NAMESERVERS {
        let detail = format!("must not have more than {NAMESERVERS} nameservers");
        problems.invalid(&path, "nameservers", config["nameservers"].clone(), detail);
    }
    for (index, server) in servers.iter().enumerate() {
        validate_address(server, &path.child("nameservers").index(index), "", problems);
    }
    let searches: Vec<&str> = config.list("searches").iter().filter_map(Value::as_str).collect();
    if searches.len() > SEARCH_PATHS {
        let detail = format!("must not have more than {SEARCH_PATHS} search paths");
        problems.invalid(&path, "searches", config["searches"].clone(), detail);
    }
    if searches.join(" ").len() > SEARCH_LIST_BYTES {
        let detail =
            format!("must not have more than {SEARCH_LIST_BYTES} characters (including spaces) in the search list");
        problems.invalid(&path, "searches", config["searches"].clone(), detail);
    }
    for (index, search) in searches.iter().enumerate().filter(|(_, search)| **search != ".") {
        let name = search.strip_suffix('.').unwrap_or(search);
        problems.form(&path.child("searches").index(index), "", name, dns_search_path(name));
    }
    for (index, option) in config.list("options").iter().enumerate() {
        if option.text("name").is_empty() {
            problems.required(&path.child("options").index(index), "", "must not be empty");
        }
    }
}

fn validate_host_aliases(spec: &Value, path: &Path, problems: &mut Problems) {
    for (index, alias) in spec.list("hostAliases").iter().enumerate() {
        let path = path.child("hostAliases").index(index);
        validate_address(&alias["ip"], &path, "ip", problems);
        for (index, name) in alias.list("hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            problems.form(
                &path.child("hostnames").index(index),
                "",
                name,
                dns1123_subdomain(name, false),
            );
        }
    }
}

fn validate_address(address: &Value, path: &Path, field: &str, problems: &mut Problems) {
    let text = address.as_str().unwrap_or_default();
    problems.form(path, field, text, ip_address(text));
}

#[cfg(test)]
mod tests;
