//! Numbers about the node: the summary, metrics, and the marks of the flow.

use std::sync::Arc;

use client::Cache;
use cri::v1;
use serde_json::{Value, json};

use super::{Refusal, query::Query};
use crate::container::labels;
use crate::moment::Moment;
use crate::shared::Shared;
use crate::worker::PodObject;

/// Upstream's `/stats/summary`, as far as the runtime can fill it.
pub async fn summary(shared: &Shared) -> Result<Vec<u8>, Refusal> {
    let listed = shared
        .runtime
        .list_container_stats(v1::ListContainerStatsRequest::default())
        .await;
    let listed = match listed {
        Ok(answer) => answer.stats,
        Err(error) if error.is_unsupported() => Vec::new(),
        Err(error) => return Err(Refusal::internal(error.to_string())),
    };
    let mut pods: std::collections::BTreeMap<String, Value> = std::collections::BTreeMap::new();
    for stats in &listed {
        let Some(attributes) = &stats.attributes else { continue };
        let label = |name: &str| attributes.labels.get(name).cloned().unwrap_or_default();
        let uid = label(labels::POD_UID);
        let pod = pods.entry(uid.clone()).or_insert_with(|| {
            json!({
                "podRef": {"name": label(labels::POD_NAME), "namespace": label(labels::POD_NAMESPACE), "uid": uid},
                "containers": [],
            })
        });
        if let Some(containers) = pod["containers"].as_array_mut() {
            containers.push(container(stats, &label(labels::CONTAINER_NAME)));
        }
    }
    let summary = json!({
        "node": {"nodeName": shared.node_name, "startTime": Moment::now()},
        "pods": pods.into_values().collect::<Vec<_>>(),
    });
    Ok(summary.to_string().into_bytes())
}

fn container(stats: &v1::ContainerStats, name: &str) -> Value {
    let mut value = json!({"name": name});
    let at = |nanos: i64| Moment::from_nanos(nanos).unwrap_or_default();
    let number = |value: &Option<v1::UInt64Value>| value.as_ref().map_or(0, |value| value.value);
    if let Some(cpu) = &stats.cpu {
        value["cpu"] = json!({
            "time": at(cpu.timestamp),
            "usageNanoCores": number(&cpu.usage_nano_cores),
            "usageCoreNanoSeconds": number(&cpu.usage_core_nano_seconds),
        });
    }
    if let Some(memory) = &stats.memory {
        value["memory"] = json!({
            "time": at(memory.timestamp),
            "workingSetBytes": number(&memory.working_set_bytes),
            "usageBytes": number(&memory.usage_bytes),
            "rssBytes": number(&memory.rss_bytes),
        });
    }
    value
}

/// A few numbers in Prometheus' text format.
pub fn metrics(shared: &Shared, pods: &Arc<Cache<PodObject>>) -> String {
    format!(
        "# HELP kubelet_node_name The node's name. The count is always 1.\n\
         # TYPE kubelet_node_name gauge\n\
         kubelet_node_name{{node={:?}}} 1\n\
         # HELP kubelet_running_pods Number of pods that are bound to this node.\n\
         # TYPE kubelet_running_pods gauge\n\
         kubelet_running_pods {}\n",
        shared.node_name,
        pods.len()
    )
}

/// The stages that objects passed in this process; `object` and `uid` narrow them down.
pub fn marks(query: &Query) -> Vec<u8> {
    let (object, uid) = (query.get("object"), query.get("uid"));
    let wanted =
        |mark: &trace::Mark| object.is_none_or(|object| mark.object == object) && uid.is_none_or(|uid| mark.uid == uid);
    serde_json::to_vec(&trace::dump(wanted)).unwrap_or_default()
}
