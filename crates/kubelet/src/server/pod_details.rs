//! What the summary says of pods beside what their containers use: their network and their logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri::{Runtime, v1};
use serde_json::{Value, json};

use crate::beneath::{self, Dir, Enough};
use crate::moment::Moment;
use crate::pressure::{Level, Measurements, Signal};
use crate::shared::Shared;
use crate::usage::PodUsage;

/// Files of one container's logs that are looked at.
const MAX_LOG_FILES: u64 = 10_000;

/// What pods have sent and received, by UID; empty where the runtime does not say.
pub async fn networks(runtime: &dyn Runtime) -> BTreeMap<String, Value> {
    let listed = runtime
        .list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest::default())
        .await;
    let stats = listed.map(|listed| listed.stats).unwrap_or_default();
    let of_pod = |stats: &v1::PodSandboxStats| {
        let uid = stats.attributes.as_ref()?.metadata.as_ref()?.uid.clone();
        Some((uid, network(stats.linux.as_ref()?.network.as_ref()?)))
    };
    stats.iter().filter_map(of_pod).collect()
}

fn network(usage: &v1::NetworkUsage) -> Value {
    let number = |of: Option<v1::UInt64Value>| of.map_or(0, |value| value.value);
    let interface = |usage: &v1::NetworkInterfaceUsage| {
        json!({
            "name": usage.name,
            "rxBytes": number(usage.rx_bytes),
            "rxErrors": number(usage.rx_errors),
            "txBytes": number(usage.tx_bytes),
            "txErrors": number(usage.tx_errors),
        })
    };
    let default = usage.default_interface.as_ref();
    let others = usage
        .interfaces
        .iter()
        .filter(|other| default.is_none_or(|default| default.name != other.name));
    let all: Vec<Value> = default.into_iter().chain(others).map(interface).collect();
    let mut network = default.map_or_else(|| json!({}), interface);
    network["time"] = json!(Moment::from_nanos(usage.timestamp).unwrap_or_default());
    network["interfaces"] = json!(all);
    network
}

/// How large the logs of containers are, on a disk that is as full as it is.
pub async fn logs(
    shared: &Arc<Shared>,
    pods: Vec<PodUsage>,
    node: &Measurements,
    now: Moment,
) -> BTreeMap<(String, String), Value> {
    let disk = node.level(Signal::NodefsAvailable);
    let inodes = node.level(Signal::NodefsInodesFree);
    let root = shared.paths.logs().to_owned();
    let measured = tokio::task::spawn_blocking(move || {
        let mut logs = BTreeMap::new();
        for pod in &pods {
            let directory = root.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid));
            for container in &pod.containers {
                let enough = Enough {
                    bytes: u64::MAX,
                    inodes: MAX_LOG_FILES,
                };
                let opened = Dir::open(&directory.join(&container.name));
                if let Ok(size) = opened.and_then(|opened| beneath::measure(opened, enough)) {
                    let key = (pod.uid.clone(), container.name.clone());
                    logs.insert(key, log_summary(size.bytes, size.inodes, disk, inodes, now));
                }
            }
        }
        logs
    });
    measured.await.unwrap_or_default()
}

fn log_summary(bytes: u64, files: u64, disk: Option<Level>, inodes: Option<Level>, now: Moment) -> Value {
    let mut summary = json!({ "time": now, "usedBytes": bytes, "inodesUsed": files });
    if let Some(Level { available, capacity }) = disk {
        summary["availableBytes"] = json!(available);
        summary["capacityBytes"] = json!(capacity);
    }
    if let Some(Level { available, capacity }) = inodes {
        summary["inodesFree"] = json!(available);
        summary["inodes"] = json!(capacity);
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_interface_stands_for_the_pod() {
        let interface = |name: &str, bytes| v1::NetworkInterfaceUsage {
            name: name.to_owned(),
            rx_bytes: Some(v1::UInt64Value { value: bytes }),
            ..v1::NetworkInterfaceUsage::default()
        };
        let summary = network(&v1::NetworkUsage {
            timestamp: 0,
            default_interface: Some(interface("eth0", 7)),
            interfaces: vec![interface("eth0", 7), interface("net1", 3)],
        });
        assert_eq!((&summary["name"], &summary["rxBytes"]), (&json!("eth0"), &json!(7)));
        assert_eq!(summary["interfaces"].as_array().map(Vec::len), Some(2));
    }
}
