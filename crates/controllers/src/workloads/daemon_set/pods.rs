//! The pods of a DaemonSet: how they are made, and which node they are for.

use std::cmp::Reverse;
use std::sync::Arc;

use api::kinds::daemon_set::DAEMON_SET;
use api::kinds::pod::POD;
use api::{Fields, Value};
use client::ObjectReference;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::Planner;
use crate::model::{Pod, created};
use crate::plan::{Action, Announce, Create, Delete};
use crate::workloads::history::REVISION_LABEL;
use crate::workloads::template;

pub const TEMPLATE_GENERATION_LABEL: &str = "pod-template-generation";

/// The taints that pods of a DaemonSet bear with: they are what keeps a node working.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// Pods in the node's own network do not need one that works.
const TOLERATED_ON_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The template's spec with the tolerations that its pods get.
pub fn tolerant_spec(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let mut tolerations = spec.list("tolerations").to_vec();
    let on_host = spec.flag("hostNetwork").then_some(TOLERATED_ON_HOST_NETWORK);
    for (key, effect) in TOLERATED.iter().copied().chain(on_host) {
        let known = tolerations.iter().position(|one| {
            (one.text("key"), one.text("effect"), one.text("operator")) == (key, effect, "Exists")
                && one.text("value").is_empty()
        });
        let toleration = json!({"key": key, "operator": "Exists", "effect": effect});
        match known {
            Some(index) => tolerations[index] = toleration,
            None => tolerations.push(toleration),
        }
    }
    spec.set("tolerations", tolerations);
    spec
}

/// The node a pod is on, or the one that its affinity names.
pub fn target_node(pod: &Pod) -> Option<String> {
    if !pod.spec.node_name.is_empty() {
        return Some(pod.spec.node_name.clone());
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Affinity {
        node_affinity: Value,
    }
    let affinity = pod.spec.affinity.as_deref().map(RawValue::get)?;
    let affinity: Affinity = serde_json::from_str(affinity).ok()?;
    let required = &affinity.node_affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    let fields = required
        .list("nodeSelectorTerms")
        .iter()
        .flat_map(|term| term.list("matchFields"));
    let mut names = fields.filter(|field| field.text("key") == "metadata.name" && field.text("operator") == "In");
    names.find_map(|field| match field.list("values") {
        [name] => name.as_str().map(str::to_owned),
        _ => None,
    })
}

/// Pods that have a node first, then by age, the oldest first.
pub fn sort(pods: &mut [Arc<Pod>]) {
    pods.sort_by_cached_key(|pod| {
        let placed = !pod.spec.node_name.is_empty();
        (Reverse(placed), created(&pod.metadata), pod.metadata.name.clone())
    });
}

impl Planner<'_> {
    pub fn create_on(&mut self, node: &str) {
        let set = self.set;
        let mut template = set.template();
        let mut spec = tolerant_spec(&template["spec"]);
        let only = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]});
        spec.ensure("affinity")
            .ensure("nodeAffinity")
            .ensure("requiredDuringSchedulingIgnoredDuringExecution")
            .set("nodeSelectorTerms", vec![only]);
        template.set("spec", spec);
        let labels = template.ensure("metadata").ensure("labels");
        if let Some(generation) = set.template_generation() {
            labels.set(TEMPLATE_GENERATION_LABEL, generation);
        }
        labels.set(REVISION_LABEL, self.hash.as_str());
        let pod = template::pod(&template, &DAEMON_SET, &set.metadata);
        let mut create = Create::new(&POD, &set.metadata.namespace, pod);
        create.mark = Some("daemonset-controller/pod-created");
        create.announce = Some(Announce {
            about: ObjectReference::new(&DAEMON_SET, &set.metadata),
            success: ("SuccessfulCreate", "Created pod: ".to_owned()),
            failure: Some(("FailedCreate", "Error creating: ".into())),
        });
        self.act(Action::Create(create));
    }

    pub fn delete(&mut self, pod: &Pod) {
        let mut delete = Delete::new(&POD, &pod.metadata);
        delete.announce = Some(Announce {
            about: ObjectReference::new(&DAEMON_SET, &self.set.metadata),
            success: ("SuccessfulDelete", "Deleted pod: ".to_owned()),
            failure: Some(("FailedDelete", "Error deleting: ".into())),
        });
        self.act(Action::Delete(delete));
    }
}
