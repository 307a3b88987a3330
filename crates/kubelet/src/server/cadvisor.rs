//! Upstream's `/metrics/cadvisor`: what pods and containers use, under cAdvisor's names and labels.
//!
//! The figures are the runtime's, and for throttling and page caches those of the containers' cgroups.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use cri::v1;
use metrics::labels;

use super::Refusal;
use super::page::{Metric, Page};
use crate::cgroup::Cgroups;
use crate::container::{labels as container_labels, resources};
use crate::moment::Moment;
use crate::pod::{Container, Pod};
use crate::shared::Shared;
use crate::static_pods::NodePods;

const CPU: Metric = (
    "container_cpu_usage_seconds_total",
    "counter",
    "Cumulative cpu time consumed in seconds.",
);
const CFS_PERIODS: Metric = (
    "container_cpu_cfs_periods_total",
    "counter",
    "Number of elapsed enforcement period intervals.",
);
const CFS_THROTTLED: Metric = (
    "container_cpu_cfs_throttled_periods_total",
    "counter",
    "Number of throttled period intervals.",
);
const CFS_THROTTLED_SECONDS: Metric = (
    "container_cpu_cfs_throttled_seconds_total",
    "counter",
    "Total time duration the container has been throttled.",
);
const WORKING_SET: Metric = (
    "container_memory_working_set_bytes",
    "gauge",
    "Current working set in bytes.",
);
const USAGE: Metric = (
    "container_memory_usage_bytes",
    "gauge",
    "Current memory usage in bytes, including all memory regardless of when it was accessed",
);
const RSS: Metric = ("container_memory_rss", "gauge", "Size of RSS in bytes.");
const CACHE: Metric = (
    "container_memory_cache",
    "gauge",
    "Number of bytes of page cache memory.",
);
const SWAP: Metric = ("container_memory_swap", "gauge", "Container swap usage in bytes.");
const FAILURES: Metric = (
    "container_memory_failures_total",
    "counter",
    "Cumulative count of memory allocation failures.",
);
const FS_USAGE: Metric = (
    "container_fs_usage_bytes",
    "gauge",
    "Number of bytes that are consumed by the container on this filesystem.",
);
const START_TIME: Metric = (
    "container_start_time_seconds",
    "gauge",
    "Start time of the container since unix epoch in seconds.",
);
const LAST_SEEN: Metric = (
    "container_last_seen",
    "gauge",
    "Last time a container was seen by the exporter",
);
const SPEC_PERIOD: Metric = ("container_spec_cpu_period", "gauge", "CPU period of the container.");
const SPEC_QUOTA: Metric = ("container_spec_cpu_quota", "gauge", "CPU quota of the container.");
const SPEC_SHARES: Metric = ("container_spec_cpu_shares", "gauge", "CPU share of the container.");
const SPEC_MEMORY: Metric = (
    "container_spec_memory_limit_bytes",
    "gauge",
    "Memory limit for the container.",
);
const RECEIVED: Metric = (
    "container_network_receive_bytes_total",
    "counter",
    "Cumulative count of bytes received",
);
const RECEIVE_ERRORS: Metric = (
    "container_network_receive_errors_total",
    "counter",
    "Cumulative count of errors encountered while receiving",
);
const TRANSMITTED: Metric = (
    "container_network_transmit_bytes_total",
    "counter",
    "Cumulative count of bytes transmitted",
);
const TRANSMIT_ERRORS: Metric = (
    "container_network_transmit_errors_total",
    "counter",
    "Cumulative count of errors encountered while transmitting",
);
const SCRAPE_ERROR: Metric = (
    "container_scrape_error",
    "gauge",
    "1 if there was an error while getting container metrics, 0 otherwise",
);
const CORES: Metric = ("machine_cpu_cores", "gauge", "Number of logical CPU cores.");
const MEMORY: Metric = (
    "machine_memory_bytes",
    "gauge",
    "Amount of memory installed on the machine.",
);

/// One container or pod that samples are about.
#[derive(Default)]
struct Subject<'a> {
    container: &'a str,
    /// Its cgroup.
    id: String,
    image: &'a str,
    /// The container's identifier.
    name: &'a str,
    namespace: &'a str,
    pod: &'a str,
}

impl Subject<'_> {
    fn labels(&self, more: &[(&str, &str)]) -> String {
        let mut pairs = vec![
            ("container", self.container),
            ("id", self.id.as_str()),
            ("image", self.image),
            ("name", self.name),
            ("namespace", self.namespace),
            ("pod", self.pod),
        ];
        pairs.extend_from_slice(more);
        pairs.sort_unstable();
        labels(&pairs)
    }
}

/// The page as a whole.
pub async fn page(shared: &Arc<Shared>, pods: &NodePods) -> Result<String, Refusal> {
    let internal = |error: cri::Error| Refusal::internal(error.to_string());
    let runtime = &*shared.runtime;
    let listed = runtime.list_containers(v1::ListContainersRequest::default()).await;
    let containers = listed.map_err(internal)?.containers;
    let stats = runtime
        .list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default())
        .await;
    let stats = stats.map_err(internal)?.stats;
    let pods: BTreeMap<String, Arc<Pod>> = pods
        .all()
        .iter()
        .map(|object| (object.pod.metadata.uid.clone(), object.pod.clone()))
        .collect();
    let shared = shared.clone();
    let written = tokio::task::spawn_blocking(move || {
        let containers = containers
            .iter()
            .map(|container| (container.id.as_str(), container))
            .collect();
        write(&stats, &containers, &pods, &shared)
    });
    written.await.map_err(|error| Refusal::internal(error.to_string()))
}

/// Blocks on the file system, where cgroups are.
fn write(
    stats: &[v1::PodSandboxStats],
    containers: &BTreeMap<&str, &v1::Container>,
    pods: &BTreeMap<String, Arc<Pod>>,
    shared: &Shared,
) -> String {
    let mut page = Page::default();
    for sandbox in stats {
        let attributes = sandbox.attributes.clone().unwrap_or_default();
        let uid = attributes.metadata.unwrap_or_default().uid;
        let (Some(pod), Some(linux)) = (pods.get(&uid), &sandbox.linux) else {
            continue;
        };
        write_pod(&mut page, pod, linux, &shared.cgroups);
        for stats in &linux.containers {
            write_container(&mut page, pod, stats, containers, shared);
        }
    }
    page.add(SCRAPE_ERROR, "", "0", None);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    page.add(CORES, "", &cores.to_string(), None);
    page.add(MEMORY, "", &shared.machine.memory_bytes.to_string(), None);
    page.text()
}

fn write_pod(page: &mut Page, pod: &Pod, linux: &v1::LinuxPodSandboxStats, cgroups: &Cgroups) {
    let subject = Subject {
        id: cgroups.parent(pod),
        namespace: &pod.metadata.namespace,
        pod: &pod.metadata.name,
        ..Subject::default()
    };
    write_usage(page, &subject, linux.cpu.as_ref(), linux.memory.as_ref());
    let Some(network) = &linux.network else { return };
    let at = Moment::from_nanos(network.timestamp);
    let default = network.default_interface.iter();
    let others = network.interfaces.iter().filter(|other| {
        let default = network.default_interface.as_ref();
        default.is_none_or(|default| default.name != other.name)
    });
    for interface in default.chain(others) {
        let labels = subject.labels(&[("interface", interface.name.as_str())]);
        for (metric, figure) in [
            (RECEIVED, interface.rx_bytes),
            (RECEIVE_ERRORS, interface.rx_errors),
            (TRANSMITTED, interface.tx_bytes),
            (TRANSMIT_ERRORS, interface.tx_errors),
        ] {
            add(page, metric, &labels, value(figure), at);
        }
    }
}

fn write_container(
    page: &mut Page,
    pod: &Pod,
    stats: &v1::ContainerStats,
    containers: &BTreeMap<&str, &v1::Container>,
    shared: &Shared,
) {
    let attributes = stats.attributes.clone().unwrap_or_default();
    let Some(listed) = containers.get(attributes.id.as_str()) else {
        return;
    };
    let Some((_, spec)) = listed
        .labels
        .get(container_labels::CONTAINER_NAME)
        .and_then(|name| pod.container(name))
    else {
        return;
    };
    let subject = Subject {
        container: &spec.name,
        id: format!("{}/{}", shared.cgroups.parent(pod), attributes.id),
        image: &spec.image,
        name: &attributes.id,
        namespace: &pod.metadata.namespace,
        pod: &pod.metadata.name,
    };
    write_usage(page, &subject, stats.cpu.as_ref(), stats.memory.as_ref());
    let plain = subject.labels(&[]);
    let now = Moment::now();
    if let Some(layer) = &stats.writable_layer {
        let labels = subject.labels(&[("device", "")]);
        add(
            page,
            FS_USAGE,
            &labels,
            value(layer.used_bytes),
            Moment::from_nanos(layer.timestamp),
        );
    }
    let swap = stats.swap.as_ref().and_then(|swap| value(swap.swap_usage_bytes));
    add(page, SWAP, &plain, swap, None);
    let started = Moment::from_nanos(listed.created_at).unwrap_or_default();
    page.add(START_TIME, &plain, &(started.0 as f64 / 1e3).to_string(), None);
    page.add(LAST_SEEN, &plain, &(now.0 / 1000).to_string(), None);
    write_spec(page, &plain, pod, spec, shared);
    write_cgroup(page, &plain, &shared.cgroups, &subject.id);
}

fn write_usage(page: &mut Page, subject: &Subject<'_>, cpu: Option<&v1::CpuUsage>, memory: Option<&v1::MemoryUsage>) {
    if let Some(cpu) = cpu {
        let labels = subject.labels(&[("cpu", "total")]);
        if let Some(ns) = value(cpu.usage_core_nano_seconds) {
            page.add(CPU, &labels, &seconds(ns), Moment::from_nanos(cpu.timestamp));
        }
    }
    let Some(memory) = memory else { return };
    let (labels, at) = (subject.labels(&[]), Moment::from_nanos(memory.timestamp));
    for (metric, figure) in [
        (WORKING_SET, memory.working_set_bytes),
        (USAGE, memory.usage_bytes),
        (RSS, memory.rss_bytes),
    ] {
        add(page, metric, &labels, value(figure), at);
    }
    for (kind, figure) in [
        ("pgfault", memory.page_faults),
        ("pgmajfault", memory.major_page_faults),
    ] {
        let labels = subject.labels(&[("failure_type", kind), ("scope", "container")]);
        add(page, FAILURES, &labels, value(figure), at);
    }
}

/// What the container was promised and may use at most.
fn write_spec(page: &mut Page, labels: &str, pod: &Pod, spec: &Container, shared: &Shared) {
    let given = resources::of_container(pod, spec, shared.machine);
    page.add(SPEC_PERIOD, labels, &given.cpu_period.max(100_000).to_string(), None);
    if given.cpu_quota > 0 {
        page.add(SPEC_QUOTA, labels, &given.cpu_quota.to_string(), None);
    }
    page.add(SPEC_SHARES, labels, &given.cpu_shares.to_string(), None);
    let limit = given.memory_limit_in_bytes.max(0);
    page.add(SPEC_MEMORY, labels, &limit.to_string(), None);
}

fn write_cgroup(page: &mut Page, labels: &str, cgroups: &Cgroups, cgroup: &str) {
    let cpu = cgroups.read(cgroup, "cpu", "cpu.stat").unwrap_or_default();
    let field = |text: &str, name: &str| -> Option<u64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    };
    if let Some(periods) = field(&cpu, "nr_periods").filter(|periods| *periods > 0) {
        page.add(CFS_PERIODS, labels, &periods.to_string(), None);
        add(page, CFS_THROTTLED, labels, field(&cpu, "nr_throttled"), None);
        let micros = field(&cpu, "throttled_usec").map(|micros| micros * 1000);
        if let Some(ns) = micros.or_else(|| field(&cpu, "throttled_time")) {
            page.add(CFS_THROTTLED_SECONDS, labels, &seconds(ns), None);
        }
    }
    let memory = cgroups.read(cgroup, "memory", "memory.stat").unwrap_or_default();
    let cache = field(&memory, "total_cache").or_else(|| field(&memory, "file"));
    add(page, CACHE, labels, cache, None);
}

fn add(page: &mut Page, metric: Metric, labels: &str, value: Option<u64>, at: Option<Moment>) {
    if let Some(value) = value {
        page.add(metric, labels, &value.to_string(), at);
    }
}

fn value(of: Option<v1::UInt64Value>) -> Option<u64> {
    of.map(|value| value.value)
}

fn seconds(ns: u64) -> String {
    (ns as f64 / 1e9).to_string()
}

impl Cgroups {
    /// A file of a cgroup, in the hierarchy that has the controller. Blocks on the file system.
    fn read(&self, cgroup: &str, controller: &str, file: &str) -> Option<String> {
        fs::read_to_string(self.path_of(cgroup, controller)?.join(file)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_labels_that_dashboards_join_by() {
        let subject = Subject {
            container: "main",
            id: "/kubepods/podu/c1".to_owned(),
            image: "nginx:1",
            name: "c1",
            namespace: "default",
            pod: "web",
        };
        let cpu = v1::CpuUsage {
            timestamp: 5_000_000,
            usage_core_nano_seconds: Some(v1::UInt64Value { value: 1_500_000_000 }),
            ..v1::CpuUsage::default()
        };
        let memory = v1::MemoryUsage {
            timestamp: 5_000_000,
            working_set_bytes: Some(v1::UInt64Value { value: 4096 }),
            ..v1::MemoryUsage::default()
        };
        let mut page = Page::default();
        write_usage(&mut page, &subject, Some(&cpu), Some(&memory));
        expect_test::expect![[r#"
            # HELP container_cpu_usage_seconds_total Cumulative cpu time consumed in seconds.
            # TYPE container_cpu_usage_seconds_total counter
            container_cpu_usage_seconds_total{container="main",cpu="total",id="/kubepods/podu/c1",image="nginx:1",name="c1",namespace="default",pod="web"} 1.5 5
            # HELP container_memory_working_set_bytes Current working set in bytes.
            # TYPE container_memory_working_set_bytes gauge
            container_memory_working_set_bytes{container="main",id="/kubepods/podu/c1",image="nginx:1",name="c1",namespace="default",pod="web"} 4096 5
        "#]]
        .assert_eq(&page.text());
    }

    #[test]
    fn a_pod_shows_each_interface_once() {
        let pod: Pod = serde_saphyr::from_str("metadata: {name: web, namespace: default, uid: u}").unwrap();
        let interface = |name: &str| v1::NetworkInterfaceUsage {
            name: name.to_owned(),
            rx_bytes: Some(v1::UInt64Value { value: 7 }),
            ..v1::NetworkInterfaceUsage::default()
        };
        let linux = v1::LinuxPodSandboxStats {
            network: Some(v1::NetworkUsage {
                default_interface: Some(interface("eth0")),
                interfaces: vec![interface("eth0"), interface("net1")],
                ..v1::NetworkUsage::default()
            }),
            ..v1::LinuxPodSandboxStats::default()
        };
        let mut page = Page::default();
        write_pod(&mut page, &pod, &linux, &Cgroups::detect("/t", None));
        let text = page.text();
        let received = text
            .lines()
            .filter(|line| line.starts_with("container_network_receive_bytes_total{"));
        assert_eq!(received.count(), 2, "{text}");
    }
}
