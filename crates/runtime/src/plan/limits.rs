//! Resource limits.

use cri::v1::LinuxContainerResources;

use crate::spec::Limits;

/// The limits of a container. In the CRI zero means: not given.
pub fn limits(resources: &LinuxContainerResources) -> Limits {
    let given = |value: i64| (value != 0).then_some(value);
    let text = |value: &String| (!value.is_empty()).then(|| value.clone());
    Limits {
        cpu_shares: u64::try_from(resources.cpu_shares).ok().filter(|shares| *shares != 0),
        cpu_quota_us: given(resources.cpu_quota),
        cpu_period_us: u64::try_from(resources.cpu_period).ok().filter(|period| *period != 0),
        memory_bytes: given(resources.memory_limit_in_bytes),
        // Without a word about swap a limited container gets none, as in every runtime.
        memory_swap_bytes: given(resources.memory_swap_limit_in_bytes).or(given(resources.memory_limit_in_bytes)),
        pids: None,
        cpuset_cpus: text(&resources.cpuset_cpus),
        cpuset_mems: text(&resources.cpuset_mems),
        hugepages: resources
            .hugepage_limits
            .iter()
            .map(|limit| (limit.page_size.clone(), limit.limit))
            .collect(),
        unified: resources.unified.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_limit_and_swap_follows_memory() {
        assert_eq!(limits(&LinuxContainerResources::default()), Limits::default());
        let resources = LinuxContainerResources {
            memory_limit_in_bytes: 4096,
            cpu_shares: 2,
            ..Default::default()
        };
        let limits = limits(&resources);
        assert_eq!((limits.memory_swap_bytes, limits.cpu_shares), (Some(4096), Some(2)));
    }
}
