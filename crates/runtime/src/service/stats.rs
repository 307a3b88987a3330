//! What pods and containers use, for `kubectl top`, eviction and the kubelet's summary.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use cri::v1;
use parking_lot::Mutex;

use super::container::Container;
use super::sandbox::Sandbox;
use super::status::has_labels;
use super::{Embedded, now_ns};
use crate::cgroup::Usage;

/// How deep a container's writable layer is searched.
const MAX_DEPTH: u32 = 256;
/// A rate over a shorter time says more about the clock than about the container.
const MIN_RATE_NS: i64 = 100_000_000;

/// The last CPU counter of each container, for rates.
#[derive(Default)]
pub struct Samples(Mutex<BTreeMap<String, Sample>>);

#[derive(Clone, Copy)]
struct Sample {
    at_ns: i64,
    cpu_ns: u64,
    rate: Option<u64>,
}

impl Samples {
    /// The billionths of a core used since the last sample.
    fn rate(&self, id: &str, at_ns: i64, cpu_ns: u64) -> Option<u64> {
        let mut samples = self.0.lock();
        let rate = match samples.get(id) {
            Some(last) if at_ns - last.at_ns < MIN_RATE_NS => return last.rate,
            Some(last) => {
                let used = u128::from(cpu_ns.saturating_sub(last.cpu_ns));
                u64::try_from(used * 1_000_000_000 / (at_ns - last.at_ns).unsigned_abs() as u128).ok()
            }
            None => None,
        };
        samples.insert(id.to_owned(), Sample { at_ns, cpu_ns, rate });
        rate
    }

    pub fn forget(&self, id: &str) {
        self.0.lock().remove(id);
    }
}

impl Embedded {
    pub(super) async fn container_stats_of(&self, container: Arc<Container>) -> cri::Result<v1::ContainerStats> {
        let runtime = self.itself.upgrade().ok_or_else(super::gone)?;
        let measured = tokio::task::spawn_blocking(move || runtime.measure(&container)).await;
        measured.map_err(|error| cri::Error::internal(error.to_string()))
    }

    pub(super) async fn list_container_stats_of(
        &self,
        filter: Option<v1::ContainerStatsFilter>,
    ) -> cri::Result<Vec<v1::ContainerStats>> {
        let filter = filter.unwrap_or_default();
        let wanted = |container: &Arc<Container>| {
            container.is_running()
                && container.record.id.starts_with(&filter.id)
                && container.record.sandbox_id.starts_with(&filter.pod_sandbox_id)
                && has_labels(&container.config.labels, &filter.label_selector)
        };
        let containers: Vec<_> = self.containers.read().values().filter(|c| wanted(c)).cloned().collect();
        let runtime = self.itself.upgrade().ok_or_else(super::gone)?;
        let measured =
            tokio::task::spawn_blocking(move || containers.iter().map(|c| runtime.measure(c)).collect()).await;
        measured.map_err(|error| cri::Error::internal(error.to_string()))
    }

    fn measure(&self, container: &Container) -> v1::ContainerStats {
        let now = now_ns();
        let usage = self.layout.usage(&container.record.spec.cgroup.path);
        let rate = usage
            .cpu_ns
            .and_then(|cpu_ns| self.cpu_samples.rate(&container.record.id, now, cpu_ns));
        let dir = self.container_dir(&container.record.id);
        let (bytes, inodes) = disk_usage(&dir.join("upper"), 0);
        v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: container.record.id.clone(),
                metadata: container.config.metadata.clone(),
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
            }),
            cpu: Some(cpu(&usage, rate, now)),
            memory: Some(memory(&usage, now)),
            writable_layer: Some(v1::FilesystemUsage {
                timestamp: now,
                fs_id: Some(v1::FilesystemIdentifier {
                    mountpoint: self.root_dir.join("containers").display().to_string(),
                }),
                used_bytes: number(Some(bytes)),
                inodes_used: number(Some(inodes)),
            }),
            swap: usage.swap_bytes.map(|bytes| v1::SwapUsage {
                timestamp: now,
                swap_available_bytes: None,
                swap_usage_bytes: number(Some(bytes)),
            }),
            io: None,
        }
    }

    pub(super) async fn sandbox_stats_of(&self, sandbox: Arc<Sandbox>) -> cri::Result<v1::PodSandboxStats> {
        let filter = v1::ContainerStatsFilter {
            pod_sandbox_id: sandbox.record.id.clone(),
            ..Default::default()
        };
        let containers = self.list_container_stats_of(Some(filter)).await?;
        let now = now_ns();
        let usage = self.pod_usage(&sandbox);
        let rate = usage
            .cpu_ns
            .and_then(|cpu_ns| self.cpu_samples.rate(&sandbox.record.id, now, cpu_ns));
        Ok(v1::PodSandboxStats {
            attributes: Some(v1::PodSandboxAttributes {
                id: sandbox.record.id.clone(),
                metadata: sandbox.config.metadata.clone(),
                labels: sandbox.config.labels.clone(),
                annotations: sandbox.config.annotations.clone(),
            }),
            linux: Some(v1::LinuxPodSandboxStats {
                cpu: Some(cpu(&usage, rate, now)),
                memory: Some(memory(&usage, now)),
                network: network_usage(&sandbox, now),
                process: Some(v1::ProcessUsage {
                    timestamp: now,
                    process_count: number(usage.processes),
                }),
                containers,
                io: None,
            }),
        })
    }
}

impl Embedded {
    /// What a pod uses: what its cgroup does, or all its containers where the kubelet gave it none of its own.
    fn pod_usage(&self, sandbox: &Sandbox) -> Usage {
        let linux = sandbox.config.linux.as_ref();
        if linux.is_some_and(|linux| !linux.cgroup_parent.is_empty()) {
            return self.layout.usage(&self.cgroup_parent_of(&sandbox.config));
        }
        let containers = self.containers_of(&sandbox.record.id);
        let running = containers.iter().filter(|container| container.is_running());
        running
            .map(|container| self.layout.usage(&container.record.spec.cgroup.path))
            .fold(Usage::default(), Usage::plus)
    }
}

fn number(value: Option<u64>) -> Option<v1::UInt64Value> {
    value.map(|value| v1::UInt64Value { value })
}

fn cpu(usage: &Usage, rate: Option<u64>, timestamp: i64) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp,
        usage_core_nano_seconds: number(usage.cpu_ns),
        usage_nano_cores: number(rate),
        psi: None,
    }
}

fn memory(usage: &Usage, timestamp: i64) -> v1::MemoryUsage {
    let available = usage
        .memory_limit_bytes
        .zip(usage.working_set_bytes)
        .map(|(limit, used)| limit.saturating_sub(used));
    v1::MemoryUsage {
        timestamp,
        working_set_bytes: number(usage.working_set_bytes),
        available_bytes: number(available),
        usage_bytes: number(usage.memory_bytes),
        rss_bytes: number(usage.rss_bytes),
        page_faults: number(usage.page_faults),
        major_page_faults: number(usage.major_page_faults),
        psi: None,
    }
}

/// The counters of the pod's own interfaces; a pod in the host's network has none of its own.
fn network_usage(sandbox: &Sandbox, timestamp: i64) -> Option<v1::NetworkUsage> {
    if !sandbox.record.spec.own_network {
        return None;
    }
    let pid = sandbox.running()?.pause_pid;
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).ok()?;
    let mut interfaces = text
        .lines()
        .filter_map(interface)
        .filter(|interface| interface.name != "lo");
    Some(v1::NetworkUsage {
        timestamp,
        default_interface: interfaces.next(),
        interfaces: interfaces.collect(),
    })
}

/// A line of `/proc/net/dev`.
fn interface(line: &str) -> Option<v1::NetworkInterfaceUsage> {
    let (name, counters) = line.split_once(':')?;
    let counters: Vec<u64> = counters
        .split_whitespace()
        .map_while(|counter| counter.parse().ok())
        .collect();
    let counter = |index: usize| number(counters.get(index).copied());
    Some(v1::NetworkInterfaceUsage {
        name: name.trim().to_owned(),
        rx_bytes: counter(0),
        rx_errors: counter(2),
        tx_bytes: counter(8),
        tx_errors: counter(10),
    })
}

/// The bytes and inodes a directory takes on disk.
pub fn disk_usage(dir: &Path, depth: u32) -> (u64, u64) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.fold((0, 0), |(bytes, inodes), entry| {
        let Ok(metadata) = entry.metadata() else {
            return (bytes, inodes);
        };
        let (bytes, inodes) = (bytes + metadata.blocks() * 512, inodes + 1);
        if metadata.is_dir() && depth < MAX_DEPTH {
            let below = disk_usage(&entry.path(), depth + 1);
            return (bytes + below.0, inodes + below.1);
        }
        (bytes, inodes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_samples_some_time_apart() {
        let samples = Samples::default();
        assert_eq!(samples.rate("c", 0, 0), None);
        assert_eq!(samples.rate("c", 1, 1), None);
        assert_eq!(samples.rate("c", 2_000_000_000, 500_000_000), Some(250_000_000));
        assert_eq!(samples.rate("c", 2_000_000_001, 900_000_000), Some(250_000_000));
    }

    #[test]
    fn interfaces_are_read_from_the_kernels_table() {
        let line = "  eth0: 1200 10 1 0 0 0 0 0 3400 20 2 0 0 0 0 0";
        let usage = interface(line).unwrap();
        assert_eq!(usage.name, "eth0");
        assert_eq!(
            [usage.rx_bytes, usage.rx_errors, usage.tx_bytes, usage.tx_errors].map(|n| n.unwrap().value),
            [1200, 1, 3400, 2]
        );
        assert_eq!(interface("Inter-|   Receive"), None);
    }
}
