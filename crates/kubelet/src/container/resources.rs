//! Requests and limits as the kernel takes them.

use cri::v1;

use crate::pod::resources::{Compute, Qos, qos};
use crate::pod::{Container, Pod};

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
    let compute = Compute::of(&container.resources);
    v1::LinuxContainerResources {
        oom_score_adj: oom_score(pod, compute, machine),
        ..of_compute(compute)
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
fn oom_score(pod: &Pod, compute: Compute, machine: Machine) -> i64 {
    let wanted = match qos(pod) {
        _ if pod.spec.priority >= CRITICAL_PRIORITY => GUARANTEED_SCORE,
        Qos::Guaranteed => GUARANTEED_SCORE,
        Qos::BestEffort => 1000,
        Qos::Burstable => {
            let share = i128::from(compute.memory_request) * 1000 / i128::from(machine.memory_bytes.max(1));
            (1000 - i64::try_from(share).unwrap_or(1000)).clamp(1000 + GUARANTEED_SCORE, 999)
        }
    };
    machine.lowest_oom_score.map_or(wanted, |lowest| wanted.max(lowest))
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
    fn processor_shares_and_quotas() {
        assert_eq!(shares(0), 2);
        assert_eq!(shares(250), 256);
        assert_eq!(quota(Some(1500)), Some(150_000));
        assert_eq!(quota(Some(1)), Some(1000));
        assert_eq!(quota(None), None);
    }
}
