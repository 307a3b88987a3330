//! Numbers about the node and its pods: the summary, metrics, and the marks of the flow.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri::v1;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::page::{Metric, Page};
use super::{Refusal, pod_details, query::Query};
use crate::moment::Moment;
use crate::pod::Pod;
use crate::pressure::{Level, Measurements, Places, Signal};
use crate::shared::Shared;
use crate::usage::{self, ContainerUsage, PodUsage};
use crate::volumes::VolumeFigure;

/// The processors' work at the last look, to tell how fast it goes.
#[derive(Default)]
pub struct NodeCpu(Mutex<Option<(Moment, u64)>>);

impl NodeCpu {
    /// Nanoseconds of work since the machine started, and per second since the last look.
    fn look(&self, now: Moment) -> Option<(u64, Option<u64>)> {
        let total = usage::node_cpu_ns()?;
        let before = self.0.lock().replace((now, total));
        let rate = before.and_then(|(then, before)| {
            let elapsed = now.since(then).as_millis() as u64;
            (elapsed > 0).then(|| total.saturating_sub(before) * 1000 / elapsed)
        });
        Some((total, rate))
    }
}

/// What one look at the node found.
struct Look {
    now: Moment,
    pods: BTreeMap<String, PodUsage>,
    /// When each container was made, by pod and name.
    created: BTreeMap<(String, String), Moment>,
    node: Measurements,
    cpu: Option<(u64, Option<u64>)>,
    /// By the pod's UID.
    volumes: BTreeMap<String, Vec<Value>>,
    networks: BTreeMap<String, Value>,
    /// By the pod's UID and the container's name.
    logs: BTreeMap<(String, String), Value>,
}

async fn look(shared: &Shared, cpu: &NodeCpu) -> Result<Look, Refusal> {
    let internal = |error: cri::Error| Refusal::internal(error.to_string());
    let runtime = &*shared.runtime;
    let listed = runtime.list_containers(v1::ListContainersRequest::default()).await;
    let mut created = BTreeMap::new();
    for container in listed.map_err(internal)?.containers {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        let key = (
            label(crate::container::labels::POD_UID),
            label(crate::container::labels::CONTAINER_NAME),
        );
        let at = Moment::from_nanos(container.created_at).unwrap_or_default();
        let newest = created.entry(key).or_insert(at);
        *newest = at.max(*newest);
    }
    let places = Places::find(runtime, shared.paths.root()).await;
    let now = Moment::now();
    Ok(Look {
        now,
        pods: usage::pods(runtime).await.map_err(internal)?,
        created,
        node: Measurements::take(&places),
        cpu: cpu.look(now),
        volumes: BTreeMap::new(),
        networks: BTreeMap::new(),
        logs: BTreeMap::new(),
    })
}

/// Upstream's `/stats/summary`.
pub async fn summary(shared: &Arc<Shared>, cpu: &NodeCpu) -> Result<Vec<u8>, Refusal> {
    let mut look = look(shared, cpu).await?;
    for (pod, figures) in volume_figures(shared, look.now).await {
        let volumes = figures.iter().map(|figure| volume_summary(&pod, figure)).collect();
        look.volumes.insert(pod.metadata.uid.clone(), volumes);
    }
    look.networks = pod_details::networks(&*shared.runtime).await;
    look.logs = pod_details::logs(shared, look.pods.values().cloned().collect(), &look.node, look.now).await;
    let pods: Vec<Value> = look.pods.values().map(|pod| pod_summary(pod, &look)).collect();
    let summary = json!({ "node": node_summary(&shared.node_name, &look), "pods": pods });
    Ok(summary.to_string().into_bytes())
}

fn node_summary(name: &str, look: &Look) -> Value {
    let mut node = json!({ "nodeName": name, "startTime": boot_time() });
    if let Some((total, rate)) = look.cpu {
        node["cpu"] = json!({ "time": look.now, "usageNanoCores": rate.unwrap_or(0), "usageCoreNanoSeconds": total });
    }
    if let Some(Level { available, capacity }) = look.node.level(Signal::MemoryAvailable) {
        let used = capacity.saturating_sub(available);
        node["memory"] = json!({
            "time": look.now, "availableBytes": available, "usageBytes": used, "workingSetBytes": used,
        });
    }
    let fs = |bytes, inodes| file_system(look, bytes, inodes);
    if let Some(nodefs) = fs(Signal::NodefsAvailable, Signal::NodefsInodesFree) {
        node["fs"] = nodefs;
    }
    if let Some(imagefs) = fs(Signal::ImagefsAvailable, Signal::ImagefsInodesFree) {
        node["runtime"] = json!({ "imageFs": imagefs });
    }
    if let Some(Level { available, capacity }) = look.node.level(Signal::PidAvailable) {
        node["rlimit"] = json!({
            "time": look.now, "maxpid": capacity, "curproc": capacity.saturating_sub(available),
        });
    }
    node
}

fn file_system(look: &Look, bytes: Signal, inodes: Signal) -> Option<Value> {
    let Level { available, capacity } = look.node.level(bytes)?;
    let mut fs = json!({
        "time": look.now,
        "availableBytes": available,
        "capacityBytes": capacity,
        "usedBytes": capacity.saturating_sub(available),
    });
    if let Some(Level { available, capacity }) = look.node.level(inodes) {
        fs["inodesFree"] = json!(available);
        fs["inodes"] = json!(capacity);
        fs["inodesUsed"] = json!(capacity.saturating_sub(available));
    }
    Some(fs)
}

fn pod_summary(pod: &PodUsage, look: &Look) -> Value {
    let created = |name: &str| look.created.get(&(pod.uid.clone(), name.to_owned())).copied();
    let started = pod
        .containers
        .iter()
        .filter_map(|container| created(&container.name))
        .min();
    let sum = |of: fn(&ContainerUsage) -> Option<u64>| pod.containers.iter().filter_map(of).sum::<u64>();
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|container| {
            let mut summary = container_summary(container, created(&container.name));
            if let Some(logs) = look.logs.get(&(pod.uid.clone(), container.name.clone())) {
                summary["logs"] = logs.clone();
            }
            summary
        })
        .collect();
    let mut summary = json!({
        "podRef": { "name": pod.name, "namespace": pod.namespace, "uid": pod.uid },
        "startTime": started.unwrap_or(look.now),
        "containers": containers,
        "cpu": {
            "time": look.now,
            "usageNanoCores": sum(|container| container.cpu_nano_cores),
            "usageCoreNanoSeconds": sum(|container| container.cpu_ns),
        },
        "memory": {
            "time": look.now,
            "usageBytes": sum(|container| container.usage_bytes),
            "workingSetBytes": pod.memory_bytes(),
            "rssBytes": sum(|container| container.rss_bytes),
            "pageFaults": sum(|container| container.page_faults),
            "majorPageFaults": sum(|container| container.major_page_faults),
        },
        "ephemeral-storage": {
            "time": look.now, "usedBytes": pod.root_bytes(), "inodesUsed": pod.root_inodes(),
        },
    });
    if let Some(volumes) = look.volumes.get(&pod.uid).filter(|volumes| !volumes.is_empty()) {
        summary["volume"] = json!(volumes);
    }
    if let Some(network) = look.networks.get(&pod.uid) {
        summary["network"] = network.clone();
    }
    summary
}

/// Measuring volumes blocks.
pub async fn volume_figures(shared: &Arc<Shared>, now: Moment) -> Vec<(Arc<Pod>, Vec<VolumeFigure>)> {
    let shared = shared.clone();
    let measured = tokio::task::spawn_blocking(move || shared.volumes.all(now));
    measured.await.unwrap_or_default()
}

fn volume_summary(pod: &Pod, figure: &VolumeFigure) -> Value {
    let stats = &figure.stats;
    let mut summary = json!({
        "name": figure.volume,
        "time": figure.at,
        "availableBytes": stats.available_bytes,
        "capacityBytes": stats.capacity_bytes,
        "usedBytes": stats.used_bytes,
        "inodesFree": stats.inodes_free,
        "inodes": stats.inodes,
        "inodesUsed": stats.inodes_used,
    });
    if let Some(claim) = &figure.claim {
        summary["pvcRef"] = json!({ "name": claim, "namespace": pod.metadata.namespace });
    }
    summary
}

fn container_summary(container: &ContainerUsage, created: Option<Moment>) -> Value {
    json!({
        "name": container.name,
        "startTime": created.unwrap_or(container.at),
        "cpu": {
            "time": container.at,
            "usageNanoCores": container.cpu_nano_cores.unwrap_or(0),
            "usageCoreNanoSeconds": container.cpu_ns.unwrap_or(0),
        },
        "memory": {
            "time": container.at,
            "usageBytes": container.usage_bytes.unwrap_or(0),
            "workingSetBytes": container.working_set_bytes.unwrap_or(0),
            "rssBytes": container.rss_bytes.unwrap_or(0),
            "pageFaults": container.page_faults.unwrap_or(0),
            "majorPageFaults": container.major_page_faults.unwrap_or(0),
        },
        "rootfs": {
            "time": container.at,
            "usedBytes": container.root_bytes.unwrap_or(0),
            "inodesUsed": container.root_inodes.unwrap_or(0),
        },
    })
}

/// When the machine started.
fn boot_time() -> Moment {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let seconds = line.and_then(|text| text.trim().parse::<i64>().ok());
    seconds.map_or_else(Moment::now, |seconds| Moment(seconds * 1000))
}

/// Upstream's `/metrics/resource`, which metrics-server reads.
pub async fn resource_metrics(shared: &Shared, cpu: &NodeCpu) -> Result<String, Refusal> {
    let look = look(shared, cpu).await?;
    let mut page = Page::default();
    let seconds = |ns: u64| format!("{}", ns as f64 / 1e9);
    for pod in look.pods.values() {
        let of_pod = format!("namespace={:?},pod={:?}", pod.namespace, pod.name);
        for container in &pod.containers {
            let of_container = format!("container={:?},{of_pod}", container.name);
            let mut add = |metric, value: Option<String>, at| {
                if let Some(value) = value {
                    page.add(metric, &of_container, &value, at);
                }
            };
            add(CONTAINER_CPU, container.cpu_ns.map(seconds), Some(container.at));
            add(
                CONTAINER_MEMORY,
                container.working_set_bytes.map(|bytes| bytes.to_string()),
                Some(container.at),
            );
            let created = look.created.get(&(pod.uid.clone(), container.name.clone()));
            add(
                CONTAINER_START,
                created.map(|at| format!("{}", at.0 as f64 / 1e3)),
                None,
            );
        }
        let cpu_ns = pod.containers.iter().filter_map(|container| container.cpu_ns).sum();
        page.add(POD_CPU, &of_pod, &seconds(cpu_ns), Some(look.now));
        page.add(POD_MEMORY, &of_pod, &pod.memory_bytes().to_string(), Some(look.now));
    }
    if let Some((total, _)) = look.cpu {
        page.add(NODE_CPU, "", &seconds(total), Some(look.now));
    }
    if let Some(Level { available, capacity }) = look.node.level(Signal::MemoryAvailable) {
        let used = capacity.saturating_sub(available);
        page.add(NODE_MEMORY, "", &used.to_string(), Some(look.now));
    }
    page.add(SCRAPE_ERROR, "", "0", None);
    Ok(page.text())
}

const CONTAINER_CPU: Metric = (
    "container_cpu_usage_seconds_total",
    "counter",
    "CPU time that the container has used, in seconds of one core",
);
const CONTAINER_MEMORY: Metric = (
    "container_memory_working_set_bytes",
    "gauge",
    "Memory that the container works with, in bytes",
);
const CONTAINER_START: Metric = (
    "container_start_time_seconds",
    "gauge",
    "When the container was started, in seconds since the Unix epoch",
);
const POD_CPU: Metric = (
    "pod_cpu_usage_seconds_total",
    "counter",
    "CPU time that the pod has used, in seconds of one core",
);
const POD_MEMORY: Metric = (
    "pod_memory_working_set_bytes",
    "gauge",
    "Memory that the pod works with, in bytes",
);
const NODE_CPU: Metric = (
    "node_cpu_usage_seconds_total",
    "counter",
    "CPU time that the node has used, in seconds of one core",
);
const NODE_MEMORY: Metric = (
    "node_memory_working_set_bytes",
    "gauge",
    "Memory that the node works with, in bytes",
);
const SCRAPE_ERROR: Metric = (
    "resource_scrape_error",
    "gauge",
    "1 if there was an error while the metrics were gathered, 0 otherwise",
);

const VOLUME_AVAILABLE: Metric = (
    "kubelet_volume_stats_available_bytes",
    "gauge",
    "Number of available bytes in the volume",
);
const VOLUME_CAPACITY: Metric = (
    "kubelet_volume_stats_capacity_bytes",
    "gauge",
    "Capacity in bytes of the volume",
);
const VOLUME_INODES: Metric = (
    "kubelet_volume_stats_inodes",
    "gauge",
    "Maximum number of inodes in the volume",
);
const VOLUME_INODES_FREE: Metric = (
    "kubelet_volume_stats_inodes_free",
    "gauge",
    "Number of free inodes in the volume",
);
const VOLUME_INODES_USED: Metric = (
    "kubelet_volume_stats_inodes_used",
    "gauge",
    "Number of used inodes in the volume",
);
const VOLUME_USED: Metric = (
    "kubelet_volume_stats_used_bytes",
    "gauge",
    "Number of used bytes in the volume",
);

/// The figures of volumes that claims lead to, each claim once.
pub fn claim_metrics(figures: &[(Arc<Pod>, Vec<VolumeFigure>)]) -> String {
    let mut claims = BTreeMap::new();
    for (pod, figures) in figures {
        for figure in figures {
            if let Some(claim) = &figure.claim {
                claims.insert((pod.metadata.namespace.as_str(), claim.as_str()), figure.stats);
            }
        }
    }
    let mut page = Page::default();
    for ((namespace, claim), stats) in claims {
        let labels = format!("namespace={namespace:?},persistentvolumeclaim={claim:?}");
        for (metric, value) in [
            (VOLUME_AVAILABLE, stats.available_bytes),
            (VOLUME_CAPACITY, stats.capacity_bytes),
            (VOLUME_INODES, stats.inodes),
            (VOLUME_INODES_FREE, stats.inodes_free),
            (VOLUME_INODES_USED, stats.inodes_used),
            (VOLUME_USED, stats.used_bytes),
        ] {
            page.add(metric, &labels, &value.to_string(), None);
        }
    }
    page.text()
}

/// The stages that objects passed in this process; `object` and `uid` narrow them down.
pub fn marks(query: &Query) -> Vec<u8> {
    let (object, uid) = (query.get("object"), query.get("uid"));
    let wanted =
        |mark: &trace::Mark| object.is_none_or(|object| mark.object == object) && uid.is_none_or(|uid| mark.uid == uid);
    serde_json::to_vec(&trace::dump(wanted)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_as_busy_as_between_two_looks() {
        let cpu = NodeCpu::default();
        assert_eq!(cpu.look(Moment(0)).unwrap().1, None);
        assert!(cpu.look(Moment(1000)).unwrap().1.is_some());
    }
}
