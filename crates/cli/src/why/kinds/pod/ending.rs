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
            format!("It is bound to node \"{node}\", which does not exist."),
        )
        .next(format!(
            "Start the node again, or delete the pod: {}",
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
                "Its node \"{}\" is not Ready, so the state of its containers is unknown.",
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
                format!("Its deletion is {overdue} overdue and blocked by finalizers: {finalizers}."),
            )
            .next(format!(
                "Check that the controller that owns {finalizers} is running; it must remove the finalizer."
            ))
            .next("If that controller was uninstalled, remove the finalizer with kubectl edit."),
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
                format!("Its deletion is {overdue} overdue: the kubelet of node \"{node}\" must terminate it, but does not respond."),
            )
            .next(format!("If you are sure that the machine is powered off: {}", force_delete(pod))),
        ],
        _ => vec![
            Finding::waiting(
                "pod-still-ending",
                format!("Its deletion is {overdue} overdue although node \"{node}\" is Ready: its containers do not stop or its volumes cannot be unmounted."),
            )
            .next("Check the kubelet's log on the node."),
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
        "It was evicted because its node was low on resources.",
        "Set requests that match its use, reduce its use, or free resources on the node; then delete the pod.",
    ),
    (
        "DeadlineExceeded",
        "deadline-exceeded",
        "It ran longer than its spec.activeDeadlineSeconds.",
        "Raise activeDeadlineSeconds, or shorten the work.",
    ),
    (
        "NodeLost",
        "node-lost",
        "Its node was lost.",
        "Delete the pod, and check the node.",
    ),
    (
        "NodeAffinity",
        "not-admitted",
        "The node rejected it: the node's labels no longer match the pod's nodeSelector or affinity.",
        "Correct the labels of the node or the pod's nodeSelector, then create the pod again.",
    ),
    (
        "Preempting",
        "preempted",
        "It was preempted by a pod with a higher priority.",
        "Add a node, or give it a higher priority.",
    ),
    (
        "Terminated",
        "node-shutdown",
        "Its node was shut down.",
        "No action is needed if its controller created a replacement.",
    ),
    (
        "UnexpectedAdmissionError",
        "not-admitted",
        "The kubelet rejected it at admission.",
        "Fix the cause in the message, then create the pod again.",
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
                "The node rejected it: insufficient {}.",
                reason.trim_start_matches("OutOf")
            ),
        )
        .next("Its controller creates a replacement; a pod without a controller must be created again."),
        None => Finding::broken("pod-failed", format!("It failed with reason {reason}.")),
    };
    vec![match message {
        "" => finding,
        message => finding.detail(message),
    }]
}
