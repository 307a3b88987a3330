//! Pod: what the user may leave out, what the server sets, how it is listed and how long it takes to go.

mod parts;
mod print;
mod status;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::json;

use crate::names::dns1123_subdomain;
use crate::pod_spec::{
    Context, default_pod_spec, drop_disabled, drop_old_annotations, resources, validate_pod_spec, validate_pod_update,
};
use crate::warnings;
use crate::{
    Column, FieldError, Fields, Generation, IndexedField, PROXY_VERBS, Path, Problems, Resource, Rules, Subresource,
    Value, Verb, texts,
};

pub static POD: Resource = Resource::namespaced("", "v1", "Pod", "pods", "pod")
    .short(&["po"])
    .in_categories(&["all"])
    .with_subresources(&[
        Subresource::new("attach", &[Verb::Create, Verb::Get]).with_body("", "v1", "PodAttachOptions"),
        Subresource::new("binding", &[Verb::Create]).with_body("", "v1", "Binding"),
        Subresource::new("ephemeralcontainers", &[Verb::Get, Verb::Patch, Verb::Update])
            .changing(&[&["spec", "ephemeralContainers"]])
            .moving_generation(),
        Subresource::new("eviction", &[Verb::Create]).with_body("policy", "v1", "Eviction"),
        Subresource::new("exec", &[Verb::Create, Verb::Get]).with_body("", "v1", "PodExecOptions"),
        Subresource::new("log", &[Verb::Get]),
        Subresource::new("portforward", &[Verb::Create, Verb::Get]).with_body("", "v1", "PodPortForwardOptions"),
        Subresource::new("proxy", PROXY_VERBS).with_body("", "v1", "PodProxyOptions"),
        Subresource::new("resize", &[Verb::Get, Verb::Patch, Verb::Update])
            .changing(&[&["spec"]])
            .moving_generation(),
        Subresource::STATUS,
    ])
    .returning_deleted()
    .converting_field_labels()
    .resetting_on_status_update(&[
        &["spec"],
        &["metadata", "deletionTimestamp"],
        &["metadata", "ownerReferences"],
    ])
    .indexed_by(&NODE_NAME)
    .with_rules(&PodRules);

/// Each kubelet watches the pods of its node.
static NODE_NAME: IndexedField = IndexedField {
    path: "spec.nodeName",
    value: node_name,
};

struct PodRules;

impl Rules for PodRules {
    fn default(&self, pod: &mut Value) {
        drop_old_annotations(pod);
        status::align_addresses(pod);
        let spec = pod.ensure("spec");
        for list in ["containers", "initContainers"] {
            for container in spec.list_mut(list) {
                request_what_is_limited(container);
            }
        }
        request_for_the_pod(spec);
        spec.fill("enableServiceLinks", true);
        if spec.flag("hostNetwork") {
            for list in ["containers", "initContainers"] {
                for container in spec.list_mut(list) {
                    for port in container.list_mut("ports") {
                        let port_number = port.number("containerPort");
                        port.fill_zero("hostPort", port_number);
                    }
                }
            }
        }
        default_pod_spec(spec);
        // Of pods only, in creates and updates: templates keep what they say.
        if spec.number(GRACE) < 0 {
            spec.set(GRACE, 1);
        }
    }

    fn prepare_create(&self, pod: &mut Value) {
        let labels = pod["metadata"]["labels"].clone();
        let annotations = pod["metadata"]["annotations"].clone();
        if let Some(spec) = pod.child_mut("spec") {
            parts::select_own_labels(spec, &labels);
            drop_disabled(spec, &Value::Null);
            confine(spec, &annotations);
        }
        let class = quality_of_service(&pod["spec"]);
        pod.set("status", json!({"phase": "Pending", "qosClass": class}));
        if !pod["spec"].list("schedulingGates").is_empty() {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
                "lastProbeTime": null, "lastTransitionTime": pod["metadata"]["creationTimestamp"],
            });
            pod.ensure("status").set("conditions", vec![condition]);
        }
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        if let Some(spec) = new.child_mut("spec") {
            drop_disabled(spec, &old["spec"]);
        }
    }

    fn prepare_status_update(&self, pod: &mut Value, old: &Value) {
        // The class follows from the spec, so that a status that does not say it still has it.
        if let Some(class) = old["status"].get("qosClass") {
            pod.ensure("status").fill("qosClass", class.clone());
        }
    }

    fn prepare_subresource_update(&self, subresource: &str, new: &mut Value, old: &Value) {
        if subresource == "resize" {
            parts::keep_all_but_resources(new, old);
        }
    }

    fn validate(&self, pod: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("spec");
        validate_annotations(pod, &mut problems);
        validate_tokens(&pod["spec"], &path, &mut problems);
        validate_pod_spec(
            &Context {
                spec: &pod["spec"],
                is_pod: true,
                pod_name: pod["metadata"].text("name"),
            },
            &path,
            &mut problems,
        );
        problems.into_vec()
    }

    fn validate_create(&self, pod: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&pod["spec"], Path::new("spec"));
        if !spec.list("ephemeralContainers").is_empty() {
            problems.forbidden(&path, "ephemeralContainers", "cannot be set on create");
        }
        if !spec.text("nodeName").is_empty() && !spec.list("schedulingGates").is_empty() {
            problems.forbidden(
                &path,
                "nodeName",
                "cannot be set until all schedulingGates have been cleared",
            );
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_pod_update(&new["spec"], &old["spec"], &Path::new("spec"), &mut problems);
        validate_annotations_update(new, old, &mut problems);
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        // A node that could make a mirror pod of a pod would take its Secrets from the view of the authorizer.
        validate_annotations_update(new, old, &mut problems);
        let (spec, path) = (&new["spec"], Path::new("status"));
        if spec.text("nodeName") != old["spec"].text("nodeName") {
            problems.forbidden(&path, "nodeName", "may not be changed directly");
        }
        let (new, old) = (&new["status"], &old["status"]);
        let nominated = new.text("nominatedNodeName");
        if !nominated.is_empty() {
            problems.form(
                &path,
                "nominatedNodeName",
                nominated,
                dns1123_subdomain(nominated, false),
            );
        }
        if spec.text("restartPolicy") != "Always" {
            validate_ended_containers(spec, new, old, &path, &mut problems);
        }
        status::validate(spec, new, old, &path, &mut problems);
        problems.into_vec()
    }

    fn validate_subresource_update(&self, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
        match subresource {
            "ephemeralcontainers" => parts::validate_ephemeral_containers(new, old).into_vec(),
            "resize" => parts::validate_resize(new, old).into_vec(),
            _ => Vec::new(),
        }
    }

    fn early_warnings(&self, pod: &Value) -> Vec<String> {
        let own = |container: &Value| format!("{APP_ARMOR}{}", container.text("name"));
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let containers = lists.iter().flat_map(|list| pod["spec"].list(list));
        containers
            .map(own)
            .filter(|key| pod["metadata"]["annotations"].has(key))
            .map(|key| {
                let text = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
                format!("metadata.annotations[{key}]: {text}")
            })
            .collect()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn field(&self, pod: &Value, path: &str) -> Option<String> {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        Some(match path {
            "spec.nodeName" => spec.text("nodeName").to_owned(),
            "spec.restartPolicy" => spec.text("restartPolicy").to_owned(),
            "spec.schedulerName" => spec.text("schedulerName").to_owned(),
            "spec.serviceAccountName" => spec.text("serviceAccountName").to_owned(),
            "spec.hostNetwork" => spec.flag("hostNetwork").to_string(),
            "status.phase" => status.text("phase").to_owned(),
            "status.podIP" => status.text("podIP").to_owned(),
            "status.podIPs" => {
                let addresses: Vec<&str> = status.list("podIPs").iter().map(|entry| entry.text("ip")).collect();
                addresses.join(",")
            }
            "status.nominatedNodeName" => status.text("nominatedNodeName").to_owned(),
            _ => return None,
        })
    }

    /// A pod that no kubelet holds goes at once: it was never bound, or has already ended.
    fn deletion_grace_seconds(&self, pod: &Value, requested: Option<i64>) -> Option<i64> {
        let held =
            !pod["spec"].text("nodeName").is_empty() && !matches!(pod["status"].text("phase"), "Succeeded" | "Failed");
        let wanted = requested.unwrap_or_else(|| pod["spec"].number("terminationGracePeriodSeconds"));
        match wanted {
            _ if !held => None,
            0 => None,
            ..0 => Some(1),
            seconds => Some(seconds),
        }
    }

    fn columns(&self) -> &'static [Column] {
        print::COLUMNS
    }

    fn cells(&self, pod: &Value, now: i64) -> Vec<Value> {
        print::cells(pod, now)
    }

    fn warnings(&self, pod: &Value) -> Vec<String> {
        warnings::of_pod(&Path::default(), pod)
    }

    /// People hardly ever write pods that exist.
    fn warns_on_update(&self, _new: &Value, _old: &Value) -> bool {
        false
    }

    fn status_warnings(&self, pod: &Value) -> Vec<String> {
        let addresses = pod["status"].list("podIPs").iter().enumerate();
        let unusual = addresses.filter_map(|(at, address)| {
            let place = Path::new("status").child("podIPs").index(at).child("ip");
            warnings::of_address(address.text("ip"), &place)
        });
        unusual.collect()
    }

    fn ends_grace_when_removed(&self) -> bool {
        true
    }
}

#[derive(Deserialize)]
struct Placed<'a> {
    #[serde(borrow)]
    spec: Option<Placement<'a>>,
}

#[derive(Deserialize)]
struct Placement<'a> {
    #[serde(borrow, rename = "nodeName")]
    node_name: Option<Cow<'a, str>>,
}

fn node_name(pod: &[u8]) -> Cow<'_, str> {
    let placed: Option<Placed> = serde_json::from_slice(pod).ok();
    let placement = placed.and_then(|placed| placed.spec);
    placement.and_then(|placement| placement.node_name).unwrap_or_default()
}

const GRACE: &str = "terminationGracePeriodSeconds";

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// Names the profile of a container in the way that was there before the field.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Marks the pod that stands for one a kubelet was given by a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Annotations that the node reads as if they were fields of the spec, which do not change either.
fn validate_annotations_update(new: &Value, old: &Value, problems: &mut Problems) {
    let path = Path::new("metadata").child("annotations");
    let (of_new, of_old) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
    let keys = |pod: &'_ Value| -> Vec<String> {
        let entries = pod["metadata"].entries("annotations");
        entries.map(|(key, _)| key.clone()).collect()
    };
    let changed = keys(old).into_iter().filter(|key| of_new[key] != of_old[key]);
    let added = keys(new).into_iter().filter(|key| !of_old.has(key));
    for (keys, act) in [
        (changed.collect::<Vec<_>>(), "remove or update"),
        (added.collect(), "add"),
    ] {
        for key in keys {
            let what = match key.as_str() {
                MIRROR => "mirror pod annotation",
                key if key.starts_with(APP_ARMOR) => "AppArmor annotations",
                _ => continue,
            };
            problems.forbidden(&path.key(&key), "", format!("may not {act} {what}"));
        }
    }
}
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// A token is some account's; a pod without one can only be a mirror pod.
fn validate_tokens(spec: &Value, path: &Path, problems: &mut Problems) {
    if !spec.text("serviceAccountName").is_empty() {
        return;
    }
    for (index, volume) in spec.list("volumes").iter().enumerate() {
        let path = path.child("volumes").index(index).child("projected").child("sources");
        for (index, source) in volume["projected"].list("sources").iter().enumerate() {
            if source.has("serviceAccountToken") {
                let detail = "must not be specified when serviceAccountName is not set";
                problems.forbidden(&path.index(index), "serviceAccountToken", detail);
            }
        }
    }
}

fn validate_annotations(pod: &Value, problems: &mut Problems) {
    let annotations = &pod["metadata"]["annotations"];
    let path = Path::new("metadata").child("annotations");
    if let Some(value) = annotations[MIRROR].as_str()
        && pod["spec"].text("nodeName").is_empty()
    {
        let detail = "must set spec.nodeName if mirror pod annotation is set";
        problems.invalid(&path.key(MIRROR), "", value, detail);
    }
    if let Some(value) = annotations[DELETION_COST].as_str()
        && value.parse::<i32>().is_err()
    {
        problems.invalid(&path.key(DELETION_COST), "", value, "must be a 32bit integer");
    }
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let containers: HashSet<&str> = lists
        .iter()
        .flat_map(|list| texts(pod["spec"].list(list), "name"))
        .collect();
    for (key, profile) in pod["metadata"].entries("annotations") {
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            validate_app_armor(&containers, container, profile, &path.key(key), problems);
        }
        let of_seccomp = key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER);
        let profile = profile.as_str().unwrap_or_default();
        let known = matches!(profile, "runtime/default" | "docker/default" | "unconfined");
        if of_seccomp && !known && !profile.starts_with("localhost/") {
            problems.invalid(&path, key, profile, "must be a valid seccomp profile");
        }
    }
}

/// What an annotation says of a container's profile is said by the field as well.
fn confine(spec: &mut Value, annotations: &Value) {
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.list_mut(list) {
            let Some(profile) = annotations[format!("{APP_ARMOR}{}", container.text("name"))].as_str() else {
                continue;
            };
            let field = match profile {
                "unconfined" => json!({"type": "Unconfined"}),
                "runtime/default" => json!({"type": "RuntimeDefault"}),
                other => match other.strip_prefix("localhost/") {
                    Some(file) if !file.is_empty() => json!({"type": "Localhost", "localhostProfile": file}),
                    _ => continue,
                },
            };
            if !container["securityContext"].has("appArmorProfile") {
                container.ensure("securityContext").set("appArmorProfile", field);
            }
        }
    }
}

fn validate_app_armor(
    containers: &HashSet<&str>,
    container: &str,
    profile: &Value,
    path: &Path,
    problems: &mut Problems,
) {
    if !containers.contains(container) {
        problems.invalid(path, "", container, "container not found");
    }
    let profile = profile.as_str().unwrap_or_default();
    if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with("localhost/") {
        let detail = format!("invalid AppArmor profile name: {profile:?}");
        problems.invalid(path, "", profile, detail);
    }
}

/// Whether the end of one container can have all of them started again, whatever their own policies.
fn restarts_all_containers(spec: &Value) -> bool {
    let lists = ["initContainers", "containers"];
    let containers = lists.into_iter().flat_map(|list| spec.list(list));
    let mut rules = containers.flat_map(|container| container.list("restartPolicyRules"));
    rules.any(|rule| rule.text("action") == "RestartAllContainers")
}

/// A container that ended for good stays ended, or a late status would bring it back.
fn validate_ended_containers(spec: &Value, new: &Value, old: &Value, path: &Path, problems: &mut Problems) {
    if restarts_all_containers(spec) {
        return;
    }
    let path = path.child("containerStatuses");
    let statuses = new.list("containerStatuses").iter().enumerate().rev();
    // Of two statuses of one container, the first counts.
    let places: HashMap<&Value, usize> = statuses.map(|(index, status)| (&status["name"], index)).collect();
    let own_policies: HashSet<&Value> = spec
        .list("containers")
        .iter()
        .filter(|container| container.has("restartPolicy"))
        .map(|container| &container["name"])
        .collect();
    for before in old.list("containerStatuses") {
        let terminated = &before["state"]["terminated"];
        let stays =
            terminated.is_object() && (spec.text("restartPolicy") == "Never" || terminated.number("exitCode") == 0);
        let after = places.get(&before["name"]);
        let own_policy = own_policies.contains(&before["name"]);
        if let Some(&index) = after.filter(|_| stays && !own_policy)
            && !new.list("containerStatuses")[index]["state"]["terminated"].is_object()
        {
            problems.forbidden(
                &path.index(index),
                "state",
                "may not be transitioned to non-terminated state",
            );
        }
    }
}

/// A container that limits a resource without requesting it requests the limit.
fn request_what_is_limited(container: &mut Value) {
    let resources = container.ensure("resources");
    let Some(limits) = resources["limits"].as_object().cloned() else {
        return;
    };
    let requests = resources.ensure("requests");
    for (resource, quantity) in limits {
        requests.fill(&resource, quantity);
    }
}

/// A pod that limits itself as a whole requests what its containers do, and the limit where they say nothing.
fn request_for_the_pod(spec: &mut Value) {
    let limits = resources::read(&spec["resources"], "limits");
    if limits.is_empty() {
        return;
    }
    let of_containers = resources::of_containers(spec, "requests");
    let shared = of_containers
        .iter()
        .filter(|(resource, _)| matches!(resource.as_str(), "cpu" | "memory"));
    let known = limits.iter().filter(|(resource, _)| resources::is_pod_level(resource));
    let requests = spec.ensure("resources").ensure("requests");
    for (resource, quantity) in shared.chain(known) {
        requests.fill(resource, quantity.to_string());
    }
}

/// `Guaranteed` when every container limits cpu and memory and requests just that, `BestEffort` when none says
/// anything about either, `Burstable` otherwise.
pub fn quality_of_service(spec: &Value) -> &'static str {
    let containers = || spec.list("containers").iter().chain(spec.list("initContainers"));
    let all: Vec<&Value> = if spec["resources"].is_object() {
        vec![&spec["resources"]]
    } else {
        containers().map(|container| &container["resources"]).collect()
    };
    let quantity = |resources: &Value, list: &str, resource: &str| match resources[list].text(resource) {
        "" | "0" => None,
        some => Some(some.to_owned()),
    };
    let mut any = false;
    let mut guaranteed = true;
    for resources in all {
        for resource in ["cpu", "memory"] {
            let limit = quantity(resources, "limits", resource);
            let request = quantity(resources, "requests", resource);
            any |= limit.is_some() || request.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests;
