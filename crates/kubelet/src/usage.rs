//! What pods and the node use, as the runtime and the kernel tell it.

use std::collections::BTreeMap;
use std::fs;

use cri::{Runtime, v1};

use crate::container::labels;
use crate::moment::Moment;

/// The clock ticks of `/proc/stat` in a second, which Linux fixes for every architecture we know.
const TICKS_PER_SECOND: u64 = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    pub name: String,
    pub at: Moment,
    pub cpu_ns: Option<u64>,
    pub cpu_nano_cores: Option<u64>,
    pub working_set_bytes: Option<u64>,
    pub usage_bytes: Option<u64>,
    pub rss_bytes: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    /// What it has written into its own layer.
    pub root_bytes: Option<u64>,
    pub root_inodes: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    pub uid: String,
    pub name: String,
    pub namespace: String,
    pub containers: Vec<ContainerUsage>,
}

impl PodUsage {
    pub fn memory_bytes(&self) -> u64 {
        self.containers
            .iter()
            .filter_map(|container| container.working_set_bytes)
            .sum()
    }

    pub fn root_bytes(&self) -> u64 {
        self.containers
            .iter()
            .filter_map(|container| container.root_bytes)
            .sum()
    }

    pub fn root_inodes(&self) -> u64 {
        self.containers
            .iter()
            .filter_map(|container| container.root_inodes)
            .sum()
    }
}

/// The pods whose containers run, by UID.
pub async fn pods(runtime: &dyn Runtime) -> cri::Result<BTreeMap<String, PodUsage>> {
    matching(runtime, None).await
}

/// One pod, if its containers run.
pub async fn pod(runtime: &dyn Runtime, uid: &str) -> cri::Result<Option<PodUsage>> {
    let filter = v1::ContainerStatsFilter {
        label_selector: [(labels::POD_UID.to_owned(), uid.to_owned())].into(),
        ..v1::ContainerStatsFilter::default()
    };
    Ok(matching(runtime, Some(filter)).await?.remove(uid))
}

async fn matching(
    runtime: &dyn Runtime,
    filter: Option<v1::ContainerStatsFilter>,
) -> cri::Result<BTreeMap<String, PodUsage>> {
    let listed = match runtime
        .list_container_stats(v1::ListContainerStatsRequest { filter })
        .await
    {
        Err(error) if error.is_unsupported() => Vec::new(),
        answer => answer?.stats,
    };
    let mut pods: BTreeMap<String, PodUsage> = BTreeMap::new();
    for stats in &listed {
        let Some(attributes) = &stats.attributes else { continue };
        let label = |name: &str| attributes.labels.get(name).cloned().unwrap_or_default();
        let uid = label(labels::POD_UID);
        let pod = pods.entry(uid.clone()).or_insert_with(|| PodUsage {
            uid,
            name: label(labels::POD_NAME),
            namespace: label(labels::POD_NAMESPACE),
            containers: Vec::new(),
        });
        pod.containers.push(container(stats, label(labels::CONTAINER_NAME)));
    }
    Ok(pods)
}

fn container(stats: &v1::ContainerStats, name: String) -> ContainerUsage {
    let number = |value: &Option<v1::UInt64Value>| value.as_ref().map(|value| value.value);
    let (cpu, memory) = (stats.cpu.unwrap_or_default(), stats.memory.unwrap_or_default());
    let layer = stats.writable_layer.clone().unwrap_or_default();
    ContainerUsage {
        name,
        at: Moment::from_nanos(cpu.timestamp.max(memory.timestamp)).unwrap_or_default(),
        cpu_ns: number(&cpu.usage_core_nano_seconds),
        cpu_nano_cores: number(&cpu.usage_nano_cores),
        working_set_bytes: number(&memory.working_set_bytes),
        usage_bytes: number(&memory.usage_bytes),
        rss_bytes: number(&memory.rss_bytes),
        page_faults: number(&memory.page_faults),
        major_page_faults: number(&memory.major_page_faults),
        root_bytes: number(&layer.used_bytes),
        root_inodes: number(&layer.inodes_used),
    }
}

/// How long all processors have worked since the machine started, in nanoseconds.
pub fn node_cpu_ns() -> Option<u64> {
    busy_ns(&fs::read_to_string("/proc/stat").ok()?)
}

/// User, nice, system, irq, softirq and steal of the first line; idle and iowait are rest.
fn busy_ns(stat: &str) -> Option<u64> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let busy = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|index| ticks.get(*index))
        .sum::<u64>();
    Some(busy * (1_000_000_000 / TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_rest_while_they_wait() {
        let stat = "cpu  10 1 20 999 50 3 4 2 0 0\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ns(stat), Some(40 * 10_000_000));
        assert_eq!(busy_ns("intr 1"), None);
    }
}
