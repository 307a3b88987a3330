//! Nodes.

use api::Value;
use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use api::kinds::lease::LEASE;
use api::kinds::node::NODE;

use super::pod::taint_text;
use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::{Finding, Severity};
use crate::why::look::{self, Look};
use crate::why::table::Kind;

/// Where kubelets renew their leases, and after how long without one a node counts as lost.
const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: u64 = 40;

pub static ROW: Kind = Kind {
    resource: &NODE,
    reads: &[&LEASE, &CERTIFICATE_SIGNING_REQUEST],
    state,
    checks: &[
        is_not_ready,
        heartbeat_is_late,
        is_under_pressure,
        is_cordoned,
        has_taints,
        certificate_waits,
    ],
};

fn state(_: &Facts, node: &Value) -> State {
    match node.condition("Ready") {
        Some(ready) if ready.str("status") == "True" && node.yes("spec.unschedulable") => {
            State::Unwell("it is Ready and takes no new pods.".to_owned())
        }
        Some(ready) if ready.str("status") == "True" => State::Well("it is Ready.".to_owned()),
        Some(_) => State::Unwell("it is not Ready.".to_owned()),
        None => State::Unwell("its kubelet has never told its state.".to_owned()),
    }
}

/// Seconds since the kubelet last renewed its lease.
fn last_heartbeat(facts: &Facts, node: &Value) -> Option<u64> {
    let lease = facts.find(&LEASE, LEASE_NAMESPACE, node.name())?;
    Some(facts.seconds_since(Some(lease.moment("spec.renewTime")?)))
}

fn is_not_ready(facts: &Facts, node: &Value) -> Vec<Finding> {
    let Some(ready) = node.condition("Ready") else {
        return vec![
            Finding::new(
                Severity::Cluster,
                "node-unknown",
                "Its kubelet has never told its state.",
            )
            .next("Start the kubelet on the machine: karve join, or look at its log."),
        ];
    };
    let heartbeat =
        last_heartbeat(facts, node).map(|seconds| format!("Its last heartbeat was {} ago.", look::duration(seconds)));
    match ready.str("status") {
        "True" => Vec::new(),
        "Unknown" => vec![
            Finding::new(
                Severity::Cluster,
                "node-lost",
                "Its kubelet has stopped telling its state: the machine, the kubelet or the network between is down.",
            )
            .details(heartbeat)
            .detail(ready.str("message"))
            .next("Look whether the machine runs and reaches the API server, and read the kubelet's log there."),
        ],
        _ => vec![
            Finding::new(
                Severity::Cluster,
                "node-not-ready",
                format!("Its kubelet says that it is not Ready: {}", ready.str("message")),
            )
            .details(heartbeat)
            .next("Mend what the message names; the kubelet's log on the machine has more."),
        ],
    }
}

/// A lease that has run out before the controller has noticed, or with the controller down.
fn heartbeat_is_late(facts: &Facts, node: &Value) -> Vec<Finding> {
    let is_ready = node.condition_is("Ready", "True").is_some();
    let Some(seconds) = last_heartbeat(facts, node).filter(|seconds| is_ready && *seconds > LEASE_SECONDS) else {
        return Vec::new();
    };
    vec![
        Finding::new(
            Severity::Cluster,
            "heartbeat-late",
            format!(
                "It says Ready, and its kubelet was last heard of {} ago.",
                look::duration(seconds)
            ),
        )
        .next("Look whether the kubelet runs; if it does, whether the clocks of the machines agree.")
        .next("The node-lifecycle controller should have marked it: see whether the controllers run."),
    ]
}

const PRESSURES: &[(&str, &str, &str)] = &[
    (
        "MemoryPressure",
        "It is short of memory: pods are evicted, and none without requests are taken.",
        "Free memory on the machine, or add a node.",
    ),
    (
        "DiskPressure",
        "It is short of disk space: pods are evicted and images removed.",
        "Free space on the machine's disk, or make it larger.",
    ),
    (
        "PIDPressure",
        "It is short of process numbers.",
        "Find what starts so many processes, or raise kernel.pid_max.",
    ),
    (
        "NetworkUnavailable",
        "Its pod network is not set up.",
        "Look at the network plugin's pods and log.",
    ),
];

fn is_under_pressure(_: &Facts, node: &Value) -> Vec<Finding> {
    let pressures = PRESSURES.iter().filter_map(|(kind, text, remedy)| {
        let condition = node.condition_is(kind, "True")?;
        let finding = Finding::new(Severity::Cluster, "node-pressure", *text).detail(condition.str("message"));
        Some(finding.next(*remedy))
    });
    pressures.collect()
}

fn is_cordoned(_: &Facts, node: &Value) -> Vec<Finding> {
    if !node.yes("spec.unschedulable") {
        return Vec::new();
    }
    vec![
        Finding::waiting("cordoned", "It is cordoned: it keeps its pods and takes no new ones.").next(format!(
            "When its maintenance is over: kubectl uncordon {}",
            node.name()
        )),
    ]
}

/// Taints that somebody has set; those of conditions are told with the conditions.
fn has_taints(_: &Facts, node: &Value) -> Vec<Finding> {
    let own = |taint: &&Value| !taint.str("key").starts_with("node.kubernetes.io/");
    let taints: Vec<String> = node.items("spec.taints").iter().filter(own).map(taint_text).collect();
    match taints.is_empty() {
        true => Vec::new(),
        false => vec![
            Finding::note(
                "tainted",
                format!("Only pods that tolerate {} are placed on it.", taints.join(", ")),
            )
            .next(format!("To let all pods in: kubectl taint nodes {} KEY-", node.name())),
        ],
    }
}

fn certificate_waits(facts: &Facts, node: &Value) -> Vec<Finding> {
    let user = format!("system:node:{}", node.name());
    let mut requests = facts.list(&CERTIFICATE_SIGNING_REQUEST).iter();
    let waiting =
        requests.find(|request| request.str("spec.username") == user && request.items("status.conditions").is_empty());
    let Some(request) = waiting else {
        return Vec::new();
    };
    vec![
        Finding::waiting(
            "certificate-waits",
            format!(
                "Its request for a certificate ({}) has been neither approved nor denied.",
                request.str("spec.signerName")
            ),
        )
        .detail("Until then, logs and exec of its pods may fail.")
        .next(format!(
            "If the machine is yours: kubectl certificate approve {}",
            request.name()
        )),
    ]
}
