//! The node's object: what it registers with, and its status as a patch that leaves others' fields alone.

use std::collections::{BTreeMap, BTreeSet};

use cri::v1;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::machine::Machine;
use super::reserved::Reserved;
use crate::features::{HandlerFeatures, ReportedFeatures};
use crate::limits;
use crate::moment::Moment;
use crate::pressure::{Pressure, Shortage, Thresholds};

/// Everything a node's status is made from.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub name: String,
    pub ips: Vec<String>,
    pub port: u16,
    pub max_pods: u32,
    pub version: String,
    pub runtime_version: String,
    pub machine: Machine,
    /// What is kept free.
    pub thresholds: Thresholds,
    pub reserved: Reserved,
    /// What has run out.
    pub shortages: Vec<Shortage>,
    /// The pressure that the node is under, or was a moment ago.
    pub under: BTreeSet<Pressure>,
    /// Why the node cannot run pods, if it cannot.
    pub unready: Option<String>,
    pub images: Vec<Image>,
    pub runtime: ReportedFeatures,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub names: Vec<String>,
    pub size_bytes: u64,
}

/// A condition as the API has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KnownCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Moment>,
}

/// The labels by which everybody finds nodes.
pub fn labels(facts: &Facts, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let architecture = facts.machine.architecture;
    let well_known = [
        ("kubernetes.io/hostname", facts.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture),
    ];
    let well_known = well_known.map(|(key, value)| (key.to_owned(), value.to_owned()));
    well_known.into_iter().chain(own.clone()).collect()
}

/// What the node's object says about the node to those who work with it.
pub fn annotations(own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let attach = (
        "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
        "true".to_owned(),
    );
    own.clone().into_iter().chain([attach]).collect()
}

/// What is the kubelet's in a node's status.
pub fn status(facts: &Facts, known: &[KnownCondition], now: Moment) -> Value {
    let addresses = facts.ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip}));
    let addresses: Vec<Value> = addresses
        .chain([json!({"type": "Hostname", "address": facts.name})])
        .collect();
    let image = |image: &Image| json!({"names": image.names, "sizeBytes": image.size_bytes});
    json!({
        "addresses": addresses,
        "capacity": facts.machine.capacity(facts.max_pods),
        "allocatable": facts
            .machine
            .allocatable(facts.max_pods, &facts.thresholds, &facts.reserved),
        "conditions": conditions(facts, known, now),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.port}},
        "nodeInfo": {
            "machineID": facts.machine.machine_id,
            "systemUUID": facts.machine.system_uuid,
            "bootID": facts.machine.boot_id,
            "kernelVersion": facts.machine.kernel_version,
            "osImage": facts.machine.os_image,
            "containerRuntimeVersion": facts.runtime_version,
            "kubeletVersion": facts.version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": facts.machine.architecture,
        },
        "images": facts.images.iter().map(image).collect::<Vec<_>>(),
        "runtimeHandlers": runtime_handlers(&facts.runtime),
        "features": features(&facts.runtime),
    })
}

fn runtime_handlers(runtime: &ReportedFeatures) -> Vec<Value> {
    let handler = |(name, features): (&String, &HandlerFeatures)| {
        let mut handler = json!({"features": {
            "recursiveReadOnlyMounts": features.recursive_read_only_mounts,
            "userNamespaces": features.user_namespaces,
        }});
        // The default handler has no name, and an empty one is not stored.
        if !name.is_empty() {
            handler["name"] = json!(name);
        }
        handler
    };
    runtime.handlers.iter().map(handler).collect()
}

fn features(runtime: &ReportedFeatures) -> Value {
    let policy = runtime.supplemental_groups_policy;
    policy.map_or(Value::Null, |policy| json!({"supplementalGroupsPolicy": policy}))
}

fn conditions(facts: &Facts, known: &[KnownCondition], now: Moment) -> Vec<Value> {
    let under = |pressure| facts.under.contains(&pressure);
    let row = |kind, holds, yes, no| (kind, holds, if holds { yes } else { no });
    let unready = facts.unready.as_deref();
    let rows = [
        row(
            "MemoryPressure",
            under(Pressure::Memory),
            (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            ),
            ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ),
        row(
            "DiskPressure",
            under(Pressure::Disk),
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        row(
            "PIDPressure",
            under(Pressure::Pid),
            ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
            ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ),
        row(
            "Ready",
            unready.is_none(),
            ("KubeletReady", "kubelet is posting ready status"),
            ("KubeletNotReady", unready.unwrap_or_default()),
        ),
    ];
    let dated = |(kind, holds, (reason, message)): (&str, bool, (&str, &str))| {
        let status = if holds { "True" } else { "False" };
        let before = known.iter().find(|known| known.kind == kind && known.status == status);
        let since = before.and_then(|before| before.last_transition_time).unwrap_or(now);
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": since,
        })
    };
    rows.into_iter().map(dated).collect()
}

/// The patch that brings the status in the API to the wanted one; none if only the heartbeat would change.
pub fn patch(current: &Value, wanted: &Value) -> Option<Value> {
    let mut changed = Map::new();
    for (field, value) in wanted.as_object().into_iter().flatten() {
        let before = &current[field];
        let same = match field.as_str() {
            // Merged by key: what others added stays and does not count as a difference.
            "capacity" | "allocatable" => contains(before, value),
            "conditions" => same_conditions(before, value),
            // An empty list is not stored.
            "images" | "runtimeHandlers" => {
                before == value || (before.is_null() && value.as_array().is_some_and(Vec::is_empty))
            }
            "features" => before == value,
            _ => contains(before, value),
        };
        if !same {
            changed.insert(field.clone(), value.clone());
        }
    }
    if changed.is_empty() {
        return None;
    }
    // Whoever hears of a change hears that the kubelet lives.
    changed.insert("conditions".to_owned(), wanted["conditions"].clone());
    if changed.contains_key("addresses") {
        // Merged by type, which two addresses may share: the list is replaced as a whole.
        if let Some(Value::Array(addresses)) = changed.get_mut("addresses") {
            addresses.push(json!({"$patch": "replace"}));
        }
    }
    Some(json!({"status": changed}))
}

/// Whether everything wanted is there with its value.
fn contains(current: &Value, wanted: &Value) -> bool {
    match wanted {
        Value::Object(fields) => fields.iter().all(|(key, value)| contains(&current[key], value)),
        // Empty strings are not always stored.
        Value::String(text) if text.is_empty() => current.is_null() || current == wanted,
        _ => current == wanted,
    }
}

fn same_conditions(current: &Value, wanted: &Value) -> bool {
    let current = current.as_array();
    let same = |wanted: &Value| {
        let known = current
            .into_iter()
            .flatten()
            .find(|known| known["type"] == wanted["type"]);
        known.is_some_and(|known| {
            ["status", "reason", "message"]
                .iter()
                .all(|field| known[field] == wanted[field])
        })
    };
    wanted.as_array().into_iter().flatten().all(same)
}

/// The largest images, as upstream lists them: digests, then tags.
pub fn images(found: Vec<v1::Image>) -> Vec<Image> {
    let mut images: Vec<Image> = found
        .into_iter()
        .map(|image| Image {
            names: image.repo_digests.into_iter().chain(image.repo_tags).take(5).collect(),
            size_bytes: image.size,
        })
        .filter(|image| !image.names.is_empty())
        .collect();
    images.sort_by(|a, b| (b.size_bytes, &a.names).cmp(&(a.size_bytes, &b.names)));
    images.truncate(limits::NODE_STATUS_IMAGES);
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            name: "n1".to_owned(),
            ips: vec!["192.0.2.1".to_owned()],
            max_pods: 110,
            ..Facts::default()
        }
    }

    #[test]
    fn a_patch_leaves_what_others_added() {
        let now = Moment(1_700_000_000_000);
        let wanted = status(&facts(), &[], now);
        let mut current = wanted.clone();
        current["capacity"]["example.com/gpu"] = json!("4");
        current["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "NetworkUnavailable", "status": "False"}));
        assert_eq!(patch(&current, &wanted), None);
        assert_eq!(
            patch(&current, &status(&facts(), &[], Moment(now.0 + 60_000))),
            None,
            "a heartbeat is no change"
        );

        let unready = Facts {
            unready: Some("container runtime is down".to_owned()),
            ..facts()
        };
        let patch = patch(&current, &status(&unready, &[], now)).unwrap();
        let fields: Vec<&String> = patch["status"].as_object().unwrap().keys().collect();
        assert_eq!(fields, ["conditions"]);
        assert_eq!(patch["status"]["conditions"][3]["reason"], "KubeletNotReady");
    }

    #[test]
    fn a_node_says_what_its_runtime_can_do_where_the_runtime_says() {
        let now = Moment(1_700_000_000_000);
        let old = status(&facts(), &[], now);
        assert_eq!((&old["runtimeHandlers"], &old["features"]), (&json!([]), &Value::Null));
        let mut stored = old.clone();
        stored.as_object_mut().unwrap().remove("runtimeHandlers");
        assert_eq!(patch(&stored, &old), None, "an empty list is not stored");

        let features = HandlerFeatures {
            user_namespaces: true,
            ..HandlerFeatures::default()
        };
        let mut new = facts();
        new.runtime = ReportedFeatures {
            handlers: [(String::new(), features), ("kata".to_owned(), features)].into(),
            supplemental_groups_policy: Some(true),
        };
        let new = status(&new, &[], now);
        let patch = patch(&stored, &new).unwrap();
        let features = json!({"recursiveReadOnlyMounts": false, "userNamespaces": true});
        let handlers = json!([{"features": features}, {"name": "kata", "features": features}]);
        assert_eq!(patch["status"]["runtimeHandlers"], handlers);
        assert_eq!(patch["status"]["features"], json!({"supplementalGroupsPolicy": true}));
    }

    #[test]
    fn a_condition_keeps_the_time_of_its_last_change() {
        let known = KnownCondition {
            kind: "Ready".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Moment::parse("2020-01-01T00:00:00Z"),
            ..KnownCondition::default()
        };
        let status = status(&facts(), &[known], Moment(1_700_000_000_000));
        assert_eq!(status["conditions"][3]["lastTransitionTime"], "2020-01-01T00:00:00Z");
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "2023-11-14T22:13:20Z");
    }
}
