//! Pods that this node does not let in: pure, from the pod and what is known of the node to a reason and a message, which
//! are upstream's.
//!
//! The scheduler asks most of this before it chooses a node. It is asked again here, for whoever creates a pod may name
//! its node and pass the scheduler by.

mod sysctl;

use std::collections::{BTreeMap, BTreeSet};

use crate::pod::Pod;
use crate::pod::quantity::Milli;
use crate::pod::resources::{Compute, Qos, pod_compute, qos};
use crate::pressure::Pressure;

pub use sysctl::{BadSysctl, SysctlRules, normalized};

/// The operating system of this node, by the name that pods and labels have for it.
const OS: &str = "linux";
const OS_LABEL: &str = "kubernetes.io/os";

/// Why a pod is not let in: the reason of its status, and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: String,
    pub message: String,
}

/// What is known of the node when a pod comes.
pub struct Surroundings<'a> {
    pub sysctls: &'a SysctlRules,
    /// What the node is running out of.
    pub pressure: &'a BTreeSet<Pressure>,
    /// What each of the other pods was granted.
    pub others: &'a [Compute],
    pub allocatable: &'a BTreeMap<String, String>,
}

impl Refusal {
    fn new(reason: &str, message: impl Into<String>) -> Refusal {
        Refusal {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Why a pod that has not run here yet is not let in, if it is not. The first reason is the one that is told.
pub fn refusal(pod: &Pod, node: &Surroundings<'_>) -> Option<Refusal> {
    under_pressure(pod, node.pressure)
        .or_else(|| forbidden_sysctl(pod, node.sysctls))
        .or_else(|| other_os(pod))
        .or_else(|| no_room(pod, node.others, node.allocatable))
}

/// Of memory alone a node can be short and still run what it has promised some.
fn under_pressure(pod: &Pod, pressure: &BTreeSet<Pressure>) -> Option<Refusal> {
    if pressure.is_empty() || pod.is_critical() {
        return None;
    }
    let only_memory = pressure.iter().all(|pressure| *pressure == Pressure::Memory);
    let tolerated = || {
        pod.spec
            .tolerations
            .iter()
            .any(|toleration| toleration.tolerates_memory_pressure())
    };
    if only_memory && (qos(pod) != Qos::BestEffort || tolerated()) {
        return None;
    }
    let names: Vec<&str> = pressure.iter().map(|pressure| pressure.condition()).collect();
    Some(Refusal::new(
        "Evicted",
        format!("The node had condition: [{}]. ", names.join(" ")),
    ))
}

fn forbidden_sysctl(pod: &Pod, rules: &SysctlRules) -> Option<Refusal> {
    let spec = &pod.spec;
    let names = spec.security_context.sysctls.iter().map(|sysctl| sysctl.name.as_str());
    let why = names.filter_map(|name| rules.check(name, spec.host_network, spec.host_ipc).err());
    let why = why.map(|why| Refusal::new("SysctlForbidden", format!("forbidden sysctl: {why}")));
    why.into_iter().next()
}

/// Pods for another system are checked by its rules when they are created, and not by those that bind them here.
fn other_os(pod: &Pod) -> Option<Refusal> {
    if pod.metadata.labels.get(OS_LABEL).is_some_and(|label| label != OS) {
        return Some(Refusal::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    let os = pod.spec.os.as_ref().filter(|os| os.name != OS)?;
    tracing::debug!(pod = pod.key(), os = os.name, "a pod for another operating system");
    Some(Refusal::new(
        "PodOSNotSupported",
        "Failed to admit pod as the OS field doesn't match node OS",
    ))
}

fn no_room(pod: &Pod, others: &[Compute], allocatable: &BTreeMap<String, String>) -> Option<Refusal> {
    // What a critical pod lacks is made for it by evicting others.
    if pod.is_critical() {
        return None;
    }
    let capacity = |name: &str| Milli::parse(allocatable.get(name)?);
    let wanted = pod_compute(pod);
    let used = |of: fn(&Compute) -> i64| others.iter().map(of).fold(0, i64::saturating_add);
    let rows = [
        ("pods", 1, others.len() as i64, capacity("pods").map(Milli::value)),
        (
            "cpu",
            wanted.cpu_request_milli,
            used(|other| other.cpu_request_milli),
            capacity("cpu").map(Milli::milli),
        ),
        (
            "memory",
            wanted.memory_request,
            used(|other| other.memory_request),
            capacity("memory").map(Milli::value),
        ),
    ];
    let short = rows.into_iter().find_map(|(name, requested, used, capacity)| {
        let capacity = capacity?;
        (requested > 0 && requested > capacity.saturating_sub(used)).then_some((name, requested, used, capacity))
    });
    let (name, requested, used, capacity) = short?;
    Some(Refusal::new(
        &format!("OutOf{name}"),
        format!("Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"),
    ))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(pod: &str, pressure: &[Pressure], expected: Expect) {
        let pod: Pod = serde_saphyr::from_str(pod).unwrap();
        let other = Compute {
            cpu_request_milli: 1500,
            memory_request: 1 << 30,
            ..Compute::default()
        };
        let amounts = [("cpu", "2"), ("memory", "4Gi"), ("pods", "3")];
        let node = Surroundings {
            sysctls: &SysctlRules::new(&["net.core.*".to_owned()]).unwrap(),
            pressure: &pressure.iter().copied().collect(),
            others: &[other, Compute::default()],
            allocatable: &amounts
                .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
                .into(),
        };
        let text = refusal(&pod, &node).map(|refusal| format!("{}: {}", refusal.reason, refusal.message));
        expected.assert_eq(&text.unwrap_or_default());
    }

    #[test]
    fn a_pod_for_another_system_is_not_let_in() {
        check("spec: {os: {name: linux}, containers: [{name: a}]}", &[], expect![""]);
        check(
            "spec: {os: {name: windows}, containers: [{name: a}]}",
            &[],
            expect!["PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"],
        );
        check(
            "{metadata: {labels: {kubernetes.io/os: windows}}, spec: {containers: [{name: a}]}}",
            &[],
            expect![[
                "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
            ]],
        );
    }

    #[test]
    fn a_pod_that_would_change_the_kernel_for_others_is_not_let_in() {
        let spec = |host: &str, name: &str| {
            format!(
                "spec: {{{host}securityContext: {{sysctls: [{{name: {name}, value: '1'}}]}}, containers: [{{name: a}}]}}"
            )
        };
        check(&spec("", "net.ipv4.tcp_syncookies"), &[], expect![""]);
        check(&spec("", "net.core.somaxconn"), &[], expect![""]);
        check(
            &spec("", "kernel.msgmax"),
            &[],
            expect![[r#"SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowlisted"#]],
        );
        check(
            &spec("hostNetwork: true, ", "net.ipv4.tcp_syncookies"),
            &[],
            expect![[
                r#"SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled"#
            ]],
        );
        check(
            &spec("hostIPC: true, ", "kernel/shm_rmid_forced"),
            &[],
            expect![[
                r#"SysctlForbidden: forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host IPC enabled"#
            ]],
        );
    }

    #[test]
    fn a_node_takes_no_more_than_it_has() {
        let spec =
            |requests: &str| format!("spec: {{containers: [{{name: a, resources: {{requests: {{{requests}}}}}}}]}}");
        check(&spec("cpu: 500m, memory: 3Gi"), &[], expect![""]);
        check(
            &spec("cpu: 501m"),
            &[],
            expect!["OutOfcpu: Node didn't have enough resource: cpu, requested: 501, used: 1500, capacity: 2000"],
        );
        check(
            &spec("memory: 3073Mi"),
            &[],
            expect![
                "OutOfmemory: Node didn't have enough resource: memory, requested: 3222274048, used: 1073741824, capacity: 4294967296"
            ],
        );
        check(
            "spec: {priority: 2000000000, containers: [{name: a, resources: {requests: {cpu: 9}}}]}",
            &[],
            expect![""],
        );
        let pod: Pod = serde_saphyr::from_str("spec: {containers: [{name: a}]}").unwrap();
        let full = no_room(
            &pod,
            &[Compute::default(); 110],
            &BTreeMap::from([("pods".to_owned(), "110".to_owned())]),
        );
        assert_eq!(full.unwrap().reason, "OutOfpods");
    }

    #[test]
    fn a_node_under_pressure_takes_only_what_it_promised_memory() {
        let (plain, asking) = (
            "spec: {containers: [{name: a}]}",
            "spec: {containers: [{name: a, resources: {requests: {memory: 1Mi}}}]}",
        );
        let refused = expect!["Evicted: The node had condition: [MemoryPressure]. "];
        check(plain, &[Pressure::Memory], refused);
        check(asking, &[Pressure::Memory], expect![""]);
        check(
            "spec: {tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}], containers: [{name: a}]}",
            &[Pressure::Memory],
            expect![""],
        );
        check(
            asking,
            &[Pressure::Memory, Pressure::Disk],
            expect!["Evicted: The node had condition: [MemoryPressure DiskPressure]. "],
        );
        check(
            "spec: {priority: 2000001000, containers: [{name: a}]}",
            &[Pressure::Disk],
            expect![""],
        );
    }
}
