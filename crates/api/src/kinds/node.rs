//! Node: a machine that runs pods.

use std::cmp::Ordering;

use crate::names::{cidr, label_key, label_value};
use crate::pod_spec::resources::read;
use crate::pod_spec::validate_resource_amount;
use crate::print::{self, AGE, NAME, or_none};
use crate::warnings;
use crate::{Column, FieldError, Fields, PROXY_VERBS, Path, Problems, Resource, Rules, Subresource, Value, repeats};

pub static NODE: Resource = Resource::cluster("", "v1", "Node", "nodes", "node")
    .short(&["no"])
    .stored_at("minions")
    .with_subresources(&[
        Subresource::new("proxy", PROXY_VERBS).with_body("", "v1", "NodeProxyOptions"),
        Subresource::STATUS,
    ])
    .converting_field_labels()
    .with_rules(&NodeRules);

struct NodeRules;

impl Rules for NodeRules {
    fn default(&self, node: &mut Value) {
        align_ranges(node.ensure("spec"));
        if let Some(status) = node.child_mut("status")
            && !status.has("allocatable")
            && status.has("capacity")
        {
            status.set("allocatable", status["capacity"].clone());
        }
    }

    fn prepare_create(&self, node: &mut Value) {
        // Kubelets took their configuration from here once.
        node.ensure("spec").remove("configSource");
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if !old["spec"].has("configSource") {
            new.ensure("spec").remove("configSource");
        }
    }

    fn validate(&self, node: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_addresses(&node["status"], &mut problems);
        validate_features(&node["status"], &mut problems);
        validate_taints(&node["spec"], &Path::new("metadata").child("taints"), &mut problems);
        let path = Path::new("spec").child("podCIDRs");
        for (index, range) in node["spec"].list("podCIDRs").iter().enumerate() {
            let range = range.as_str().unwrap_or_default();
            problems.form(&path.index(index), "", range, cidr(range));
        }
        let ranges: Vec<&str> = node["spec"].list("podCIDRs").iter().filter_map(Value::as_str).collect();
        let of_v6 = ranges.iter().filter(|range| range.contains(':')).count();
        if ranges.len() > 2 || (ranges.len() == 2 && of_v6 != 1) {
            let detail = "may specify no more than one CIDR for each IP family";
            problems.invalid(&path, "", node["spec"]["podCIDRs"].clone(), detail);
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new, old, path) = (&new["spec"], &old["spec"], Path::new("spec"));
        if !old.list("podCIDRs").is_empty() && new["podCIDRs"] != old["podCIDRs"] {
            let detail = "node updates may not change podCIDR except from \"\" to valid";
            problems.forbidden(&path, "podCIDRs", detail);
        }
        if !old.text("providerID").is_empty() && new["providerID"] != old["providerID"] {
            let detail = "node updates may not change providerID except from \"\" to valid";
            problems.forbidden(&path, "providerID", detail);
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (status, path) = (&new["status"], Path::new("status"));
        validate_addresses(status, &mut problems);
        validate_features(status, &mut problems);
        for list in ["capacity", "allocatable"] {
            for (resource, amount) in &read(status, list) {
                validate_resource_amount(resource, amount, &path.child(list).child(resource), &mut problems);
            }
        }
        problems.into_vec()
    }

    /// A kubelet registers its node with the status it has.
    fn keeps_status_on_create(&self) -> bool {
        true
    }

    fn field(&self, node: &Value, path: &str) -> Option<String> {
        (path == "spec.unschedulable").then(|| node["spec"].flag("unschedulable").to_string())
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, node: &Value, now: i64) -> Vec<Value> {
        let info = &node["status"]["nodeInfo"];
        let known = |field: &str| match info.text(field) {
            "" => "<unknown>".to_owned(),
            text => text.to_owned(),
        };
        let kernel = match info.text("architecture") {
            "" => known("kernelVersion"),
            architecture => format!("{} ({architecture})", known("kernelVersion")),
        };
        vec![
            print::name(node),
            state(node).into(),
            or_none(roles(node)),
            print::age(node, now),
            info.text("kubeletVersion").into(),
            address(node, "InternalIP"),
            address(node, "ExternalIP"),
            known("osImage").into(),
            kernel.into(),
            known("containerRuntimeVersion").into(),
        ]
    }

    fn warnings(&self, node: &Value) -> Vec<String> {
        spec_warnings(&node["spec"])
    }
}

/// The features that a kubelet declares, which schedulers compare: in order, and each once.
fn validate_features(status: &Value, problems: &mut Problems) {
    let path = Path::new("status").child("declaredFeatures");
    let mut before: Option<&str> = None;
    for (index, feature) in status.list("declaredFeatures").iter().enumerate() {
        let (feature, path) = (feature.as_str().unwrap_or_default(), path.index(index));
        match before.map(|before| feature.cmp(before)) {
            Some(Ordering::Less) => problems.invalid(&path, "", feature, "list must be sorted alphabetically"),
            Some(Ordering::Equal) => problems.duplicate(&path, "", feature),
            Some(Ordering::Greater) | None => {}
        }
        if !is_feature_name(feature) {
            let detail = format!(
                "invalid feature name {feature:?}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters \
                 and slashes"
            );
            problems.invalid(&path, "", feature, detail);
        }
        before = Some(feature);
    }
}

fn is_feature_name(name: &str) -> bool {
    let is_segment = |segment: &str| {
        segment.starts_with(|first: char| first.is_ascii_alphabetic())
            && segment.chars().all(|character| character.is_ascii_alphanumeric())
    };
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(is_segment)
}

/// What is unusual or outdated about a Node.
fn spec_warnings(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (at, range) in spec.list("podCIDRs").iter().enumerate() {
        let place = Path::new("spec").child("podCIDRs").index(at);
        warnings.extend(warnings::of_range(range.as_str().unwrap_or_default(), &place));
    }
    if !spec.text("externalID").is_empty() {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    if spec.has("configSource") {
        warnings.push("spec.configSource: the feature is no longer supported".to_owned());
    }
    warnings
}

/// `podCIDRs` starts with `podCIDR`, which counts where they differ.
fn align_ranges(spec: &mut Value) {
    let first = spec.list("podCIDRs").first().and_then(Value::as_str).map(str::to_owned);
    match (spec.text("podCIDR").to_owned(), first) {
        (one, first) if one.is_empty() => {
            if let Some(first) = first.filter(|first| !first.is_empty()) {
                spec.set("podCIDR", first);
            }
        }
        (one, first) if first.as_deref() != Some(&one) => spec.set("podCIDRs", vec![one]),
        _ => {}
    }
}

fn validate_addresses(status: &Value, problems: &mut Problems) {
    let (addresses, path) = (status.list("addresses"), Path::new("status").child("addresses"));
    let repeated = repeats(addresses);
    for (index, address) in addresses.iter().enumerate() {
        if repeated[index] {
            problems.duplicate(&path.index(index), "", address.clone());
        }
    }
}

fn state(node: &Value) -> String {
    let ready = node["status"]
        .list("conditions")
        .iter()
        .find(|condition| condition.text("type") == "Ready");
    let mut state = match ready.map(|condition| condition.text("status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if node["spec"].flag("unschedulable") {
        state.push_str(",SchedulingDisabled");
    }
    state
}

fn roles(node: &Value) -> String {
    let mut roles: Vec<&str> = node["metadata"]
        .entries("labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    roles.join(",")
}

fn address(node: &Value, kind: &str) -> Value {
    let found = node["status"]
        .list("addresses")
        .iter()
        .find(|address| address.text("type") == kind);
    or_none(found.map_or("", |address| address.text("address")))
}

/// Taints are told apart by key and effect. Upstream says `metadata.taints`, so we do.
fn validate_taints(spec: &Value, path: &Path, problems: &mut Problems) {
    let taints = spec.list("taints");
    let repeated = repeats(taints.iter().map(|taint| (taint.text("key"), taint.text("effect"))));
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value) = (taint.text("key"), taint.text("value"));
        problems.form(&path, "key", key, label_key(key));
        let found = label_value(value);
        if !found.is_empty() {
            problems.invalid(&path, "value", value, found.join(";"));
        }
        problems.one_of(taint, &path, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if repeated[index] {
            let detail = "taints must be unique by key and effect pair";
            problems.extend([FieldError::new(
                crate::FieldProblem::Duplicate,
                &path,
                taint.clone(),
                detail,
            )]);
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Status", "Whether the node is ready, and whether it takes new pods."),
    print::text("Roles", "The roles that its labels give it."),
    AGE,
    print::text("Version", "The kubelet's version."),
    print::text("Internal-IP", "Its address inside the cluster's network.").wide(),
    print::text("External-IP", "Its address as seen from outside.").wide(),
    print::text("OS-Image", "The operating system.").wide(),
    print::text("Kernel-Version", "The kernel, and what it is built for.").wide(),
    print::text("Container-Runtime", "The container runtime and its version.").wide(),
];
