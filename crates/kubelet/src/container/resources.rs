//! Requests and limits as the kernel takes them.

use cri::v1;

use crate::pod::resources::{Compute, Qos, container_compute, pod_compute, qos};
use crate::pod::{Container, ContainerKind, Pod, Resources};

/// A period of the CPU controller, in microseconds.
const CPU_PERIOD_US: i64 = 100_000;
const MIN_QUOTA_US: i64 = 1_000;
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// Pods of this priority and above are never to be killed for memory before others.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;
const GUARANTEED_SCORE: i64 = -997;

/// What the kernel of this node allows and has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine {
    pub memory_bytes: i64,
    /// The lowest `oom_score_adj` this process may give; `None` if any.
    pub lowest_oom_score: Option<i64>,
}

pub fn shares(cpu_milli: i64) -> i64 {
    (cpu_milli * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// The quota of a limit; none without one.
pub fn quota(cpu_limit_milli: Option<i64>) -> Option<i64> {
    cpu_limit_milli.map(|milli| (milli * CPU_PERIOD_US / 1000).max(MIN_QUOTA_US))
}

pub fn of_container(pod: &Pod, container: &Container, machine: Machine) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        oom_score_adj: oom_score(pod, container, machine),
        ..of_compute(container_compute(pod, container))
    }
}

pub fn of_compute(compute: Compute) -> v1::LinuxContainerResources {
    v1::LinuxContainerResources {
        cpu_period: CPU_PERIOD_US,
        cpu_quota: quota(compute.cpu_limit_milli).unwrap_or(0),
        cpu_shares: shares(compute.cpu_request_milli),
        memory_limit_in_bytes: compute.memory_limit.unwrap_or(0),
        ..v1::LinuxContainerResources::default()
    }
}

/// The more of its node's memory a container has asked for, the later it is killed.
fn oom_score(pod: &Pod, container: &Container, machine: Machine) -> i64 {
    let wanted = match qos(pod) {
        _ if pod.spec.priority >= CRITICAL_PRIORITY => GUARANTEED_SCORE,
        Qos::Guaranteed => GUARANTEED_SCORE,
        Qos::BestEffort => 1000,
        Qos::Burstable => {
            let request = protected_memory(pod, container);
            let share = i128::from(request) * 1000 / i128::from(machine.memory_bytes.max(1));
            (1000 - i64::try_from(share).unwrap_or(1000)).clamp(1000 + GUARANTEED_SCORE, 999)
        }
    };
    machine.lowest_oom_score.map_or(wanted, |lowest| wanted.max(lowest))
}

/// The memory that counts as a container's own: what it asks for, a sidecar no less than any container that it serves,
/// and its part of what the pod asks for beyond its containers.
fn protected_memory(pod: &Pod, container: &Container) -> i64 {
    let request = |container: &Container| Compute::from_resources(&container.resources).memory_request;
    let is_sidecar = |own: &&Container| own.name == container.name && own.init_kind() == ContainerKind::Sidecar;
    let served = pod.spec.containers.iter().map(request).min().unwrap_or_default();
    let own = match pod.spec.init_containers.iter().find(is_sidecar) {
        Some(sidecar) => request(sidecar).max(served),
        None => request(container),
    };
    own.saturating_add(unassigned_memory(pod))
}

/// What a pod asks for as a whole and none of its containers does, for each of them.
fn unassigned_memory(pod: &Pod) -> i64 {
    let whole = Compute::from_resources(&pod.spec.resources).memory_request;
    if whole == 0 {
        return 0;
    }
    let mut apart = pod.clone();
    apart.spec.resources = Resources::default();
    apart.spec.overhead.clear();
    let assigned = pod_compute(&apart).memory_request;
    let containers = pod.spec.containers.len() + pod.spec.init_containers.len();
    (whole - assigned) / i64::try_from(containers.max(1)).unwrap_or(i64::MAX)
}

impl Machine {
    /// Without CAP_SYS_RESOURCE a process cannot give a score below its own.
    pub fn detect(memory_bytes: i64) -> Machine {
        const CAP_SYS_RESOURCE: u32 = 24;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective
            .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
            .unwrap_or(0);
        let own = std::fs::read_to_string("/proc/self/oom_score_adj").ok();
        let own = own.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Machine {
            memory_bytes,
            lowest_oom_score: (effective & (1 << CAP_SYS_RESOURCE) == 0).then_some(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_follow_quality_of_service() {
        let score = |resources: &str, lowest_oom_score: Option<i64>| {
            let pod: Pod =
                serde_saphyr::from_str(&format!("spec: {{containers: [{{name: a, resources: {resources}}}]}}"))
                    .unwrap();
            let machine = Machine {
                memory_bytes: 4 << 30,
                lowest_oom_score,
            };
            of_container(&pod, &pod.spec.containers[0], machine).oom_score_adj
        };
        assert_eq!(score("{}", None), 1000);
        assert_eq!(score("{requests: {memory: 1Gi}}", None), 750);
        assert_eq!(score("{limits: {memory: 1Gi, cpu: 1}}", None), -997);
        assert_eq!(score("{limits: {memory: 1Gi, cpu: 1}}", Some(0)), 0);
    }

    #[test]
    fn memory_of_the_pod_protects_all_of_its_containers() {
        let pod: Pod = serde_saphyr::from_str(
            r#"
spec:
  resources: {requests: {memory: 2Gi}}
  initContainers: [{name: side, restartPolicy: Always}]
  containers: [{name: a, resources: {requests: {memory: 1Gi}}}]
"#,
        )
        .unwrap();
        let machine = Machine {
            memory_bytes: 4 << 30,
            lowest_oom_score: None,
        };
        let score = |container: &Container| of_container(&pod, container, machine).oom_score_adj;
        // A quarter is its own, and half of another quarter.
        assert_eq!(score(&pod.spec.containers[0]), 625);
        assert_eq!(score(&pod.spec.init_containers[0]), 625);
    }

    #[test]
    fn processor_shares_and_quotas() {
        assert_eq!(shares(0), 2);
        assert_eq!(shares(250), 256);
        assert_eq!(quota(Some(1500)), Some(150_000));
        assert_eq!(quota(Some(1)), Some(1000));
        assert_eq!(quota(None), None);
    }
}
