//! Pods that have failed as a whole, do not go away, or whose node is not there.

use api::Value;
use api::kinds::node::NODE;

use crate::why::facts::Facts;
use crate::why::finding::{Finding, Reference, Severity};
use crate::why::look::{self, Look};

/// How long after its time a pod may take to be gone.
const PATIENCE_SECONDS: u64 = 10;

fn has_ended(pod: &Value) -> bool {
    matches!(pod.str("status.phase"), "Succeeded" | "Failed")
}

pub fn node_is_gone(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let node = pod.str("spec.nodeName");
    if node.is_empty() || has_ended(pod) || !facts.lacks(&NODE, "", node) {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "node-missing",
            format!("It is bound to the node \"{node}\", which does not exist."),
        )
        .next(format!(
            "Start the node again, or give the pod up: {}",
            force_delete(pod)
        )),
    ]
}

pub fn node_is_not_ready(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let node = pod.str("spec.nodeName");
    let Some(node) = facts.find(&NODE, "", node).filter(|_| !has_ended(pod)) else {
        return Vec::new();
    };
    let ready = node.condition("Ready");
    if ready.is_none_or(|ready| ready.str("status") == "True") {
        return Vec::new();
    }
    vec![
        Finding::new(
            Severity::Broken,
            "node-not-ready",
            format!(
                "Its node \"{}\" is not Ready, so nobody knows how its containers are.",
                node.name()
            ),
        )
        .because_of(Reference::of(&NODE, node)),
    ]
}

pub fn does_not_end(facts: &Facts, pod: &Value) -> Vec<Finding> {
    let overdue = facts.seconds_since(pod.moment("metadata.deletionTimestamp"));
    if !pod.is_deleting() || overdue < PATIENCE_SECONDS {
        return Vec::new();
    }
    let overdue = look::duration(overdue);
    let finalizers = pod.texts("metadata.finalizers").join(", ");
    if !finalizers.is_empty() {
        return vec![
            Finding::broken(
                "pod-finalizers",
                format!(
                    "It was deleted, should have been gone {overdue} ago, and is held by the finalizers {finalizers}."
                ),
            )
            .next(format!(
                "The controller that set {finalizers} has to remove it; see whether it runs."
            ))
            .next("If that controller is gone for good, remove the finalizer: kubectl edit"),
        ];
    }
    let node = pod.str("spec.nodeName");
    let is_lost = facts
        .find(&NODE, "", node)
        .is_none_or(|node| node.condition_is("Ready", "True").is_none());
    match is_lost {
        true if facts.knows(&NODE) => vec![
            Finding::broken(
                "pod-node-lost",
                format!("It was deleted {overdue} ago, and only the kubelet of \"{node}\" can end it, which does not answer."),
            )
            .next(format!("When the machine is off for certain: {}", force_delete(pod))),
        ],
        _ => vec![
            Finding::waiting(
                "pod-still-ending",
                format!("It should have been gone {overdue} ago, and its node \"{node}\" is Ready: its containers or volumes do not end."),
            )
            .next("Look at the kubelet's log on the node."),
        ],
    }
}

fn force_delete(pod: &Value) -> String {
    format!(
        "kubectl -n {} delete pod {} --force --grace-period=0",
        pod.namespace(),
        pod.name()
    )
}

/// Why a pod failed, where that is not a container's exit code.
const REASONS: &[(&str, &str, &str, &str)] = &[
    (
        "Evicted",
        "evicted",
        "The node evicted it to save itself.",
        "Set requests for what it uses, lower its use, or free the node; then delete the pod.",
    ),
    (
        "DeadlineExceeded",
        "deadline-exceeded",
        "It ran longer than its spec.activeDeadlineSeconds.",
        "Raise activeDeadlineSeconds, or make it faster.",
    ),
    (
        "NodeLost",
        "node-lost",
        "Its node was lost.",
        "Delete the pod, and look at the node.",
    ),
    (
        "NodeAffinity",
        "not-admitted",
        "The node refused it: its labels do not fit the pod's node selector or affinity any more.",
        "Correct the labels of the node or the pod's selector, and make the pod anew.",
    ),
    (
        "Preempting",
        "preempted",
        "It had to make room for a pod of higher priority.",
        "Add a node, or give it a higher priority.",
    ),
    (
        "Terminated",
        "node-shutdown",
        "Its node was shut down.",
        "Nothing, if its owner has made another one.",
    ),
    (
        "UnexpectedAdmissionError",
        "not-admitted",
        "The kubelet refused to admit it.",
        "See what the message says, and make the pod anew.",
    ),
];

pub fn failed_as_a_whole(_: &Facts, pod: &Value) -> Vec<Finding> {
    let reason = pod.str("status.reason");
    if pod.str("status.phase") != "Failed" || reason.is_empty() {
        return Vec::new();
    }
    let message = pod.str("status.message");
    let known = REASONS.iter().find(|row| row.0 == reason);
    let finding = match known {
        Some((_, cause, text, remedy)) => Finding::broken(cause, *text).next(*remedy),
        None if reason.starts_with("OutOf") => Finding::broken(
            "not-admitted",
            format!(
                "The node refused it, because it has too little {} left.",
                reason.trim_start_matches("OutOf")
            ),
        )
        .next("Its owner makes another one; a bare pod has to be made anew."),
        None => Finding::broken("pod-failed", format!("It failed with the reason {reason}.")),
    };
    vec![match message {
        "" => finding,
        message => finding.detail(message),
    }]
}
