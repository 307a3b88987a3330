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
            State::Unhealthy("it is Ready, but new pods are not scheduled to it.".to_owned())
        }
        Some(ready) if ready.str("status") == "True" => State::Healthy("it is Ready.".to_owned()),
        Some(_) => State::Unhealthy("it is not Ready.".to_owned()),
        None => State::Unhealthy("its kubelet has never reported a status.".to_owned()),
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
                "Its kubelet has never reported a status.",
            )
            .next("Start the kubelet on the machine (karve join), or check its log."),
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
                "Its kubelet stopped reporting: the machine or the kubelet is down, or it cannot reach the API server.",
            )
            .details(heartbeat)
            .detail(ready.str("message"))
            .next("Check that the machine is running and can reach the API server, and read the kubelet's log on it."),
        ],
        _ => vec![
            Finding::new(
                Severity::Cluster,
                "node-not-ready",
                format!("Its kubelet reports that it is not ready: {}", ready.str("message")),
            )
            .details(heartbeat)
            .next("Fix the problem in the message; see the kubelet's log on the machine for details."),
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
                "Its status is Ready, but the last heartbeat of its kubelet was {} ago.",
                look::duration(seconds)
            ),
        )
        .next("Check that the kubelet is running and that the clocks of the machines agree.")
        .next("The node lifecycle controller should have marked it as not ready: check that kube-controller-manager is running."),
    ]
}

const PRESSURES: &[(&str, &str, &str)] = &[
    (
        "MemoryPressure",
        "MemoryPressure: pods are evicted, and BestEffort pods are not scheduled to it.",
        "Free memory on the machine, or add a node.",
    ),
    (
        "DiskPressure",
        "DiskPressure: pods are evicted, and unused images are removed.",
        "Free disk space on the machine, or enlarge the disk.",
    ),
    (
        "PIDPressure",
        "PIDPressure: the machine is running out of process IDs.",
        "Find the workload that starts too many processes, or raise kernel.pid_max.",
    ),
    (
        "NetworkUnavailable",
        "NetworkUnavailable: its pod network is not configured.",
        "Check the pods of the network plugin and their logs.",
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
        Finding::waiting(
            "cordoned",
            "It is cordoned: existing pods keep running, new pods are not scheduled to it.",
        )
        .next(format!(
            "When maintenance is complete: kubectl uncordon {}",
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
                format!("Only pods that tolerate {} are scheduled to it.", taints.join(", ")),
            )
            .next(format!("To remove a taint: kubectl taint nodes {} KEY-", node.name())),
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
                "Its CertificateSigningRequest {} has been neither approved nor denied.",
                request.str("spec.signerName")
            ),
        )
        .detail("Until it is approved, kubectl logs and kubectl exec for its pods may fail.")
        .next(format!(
            "If you trust the machine: kubectl certificate approve {}",
            request.name()
        )),
    ]
}
