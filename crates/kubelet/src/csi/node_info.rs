//! What drivers say of this node, in the API: its CSINode, and labels and an annotation of its Node.

use std::collections::BTreeMap;

use api::ObjectMeta;
use api::kinds::csi_node::CSI_NODE;
use api::kinds::node::NODE;
use client::{Client, Patch};
use csi::v1::NodeGetInfoResponse;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::error::{InvalidPlugin, NodeInfoError};
use crate::shared::Shared;

/// Which ID each driver knows the node by.
const NODE_ID_ANNOTATION: &str = "csi.volume.kubernetes.io/nodeid";
/// Longer IDs are not stored.
const MAX_NODE_ID_LENGTH: usize = 192;
/// Labels that one driver may give the node.
const MAX_TOPOLOGY: usize = 32;
/// How often a write is tried again because somebody else wrote.
const MAX_CONFLICTS: usize = 5;

/// A driver's answer, checked.
#[derive(Debug, PartialEq, Eq)]
pub struct NodeInfo {
    pub node_id: String,
    pub topology: BTreeMap<String, String>,
    /// Volumes that can be attached to the node at once.
    pub max_volumes: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CsiNode {
    metadata: ObjectMeta,
    spec: CsiNodeSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CsiNodeSpec {
    drivers: Vec<Value>,
}

impl NodeInfo {
    pub fn checked(answer: NodeGetInfoResponse) -> Result<NodeInfo, InvalidPlugin> {
        if answer.node_id.is_empty() || answer.node_id.len() > MAX_NODE_ID_LENGTH {
            return Err(InvalidPlugin::NodeId);
        }
        let topology = answer.accessible_topology.unwrap_or_default().segments;
        let is_label = |(key, value): &(&String, &String)| {
            api::names::label_key(key).is_empty() && api::names::label_value(value).is_empty()
        };
        if let Some((key, value)) = topology.iter().find(|segment| !is_label(segment)) {
            return Err(InvalidPlugin::Topology(
                format!("{key}={value}").chars().take(128).collect(),
            ));
        }
        if topology.len() > MAX_TOPOLOGY {
            return Err(InvalidPlugin::Topology(format!("of {} segments", topology.len())));
        }
        let max_volumes = Some(answer.max_volumes_per_node).filter(|count| *count > 0);
        Ok(NodeInfo {
            node_id: answer.node_id,
            topology,
            max_volumes: max_volumes.map(|count| i32::try_from(count).unwrap_or(i32::MAX)),
        })
    }

    fn entry(&self, driver: &str) -> Value {
        let keys: Vec<&String> = self.topology.keys().collect();
        let mut entry = json!({"name": driver, "nodeID": self.node_id, "topologyKeys": keys});
        if let Some(count) = self.max_volumes {
            entry["allocatable"] = json!({"count": count});
        }
        entry
    }
}

/// Tells the API of a driver.
pub async fn install(shared: &Shared, driver: &str, info: &NodeInfo) -> Result<(), NodeInfoError> {
    let _alone = shared.csi.node_info.lock().await;
    let (client, node) = (&shared.client, shared.node_name.as_str());
    let labels = topology_labels(client, node, info).await?;
    write_node(client, node, driver, Some(&info.node_id), &labels).await?;
    write_csi_node(client, node, driver, Some(info.entry(driver)))
        .await
        .map_err(NodeInfoError::CsiNode)
}

/// Takes a driver that is gone out of the API. The labels stay: volumes were placed by them.
pub async fn uninstall(shared: &Shared, driver: &str) -> Result<(), NodeInfoError> {
    let _alone = shared.csi.node_info.lock().await;
    let (client, node) = (&shared.client, shared.node_name.as_str());
    write_csi_node(client, node, driver, None)
        .await
        .map_err(NodeInfoError::CsiNode)?;
    write_node(client, node, driver, None, &BTreeMap::new()).await
}

/// The labels that the node lacks; one that it has with another value is an error.
async fn topology_labels(
    client: &Client,
    node: &str,
    info: &NodeInfo,
) -> Result<BTreeMap<String, String>, NodeInfoError> {
    let known = node_metadata(client, node).await?.labels;
    let mut missing = info.topology.clone();
    missing.retain(|key, _| !known.contains_key(key));
    for (key, reported) in &info.topology {
        if let Some(existing) = known.get(key).filter(|existing| *existing != reported) {
            return Err(NodeInfoError::Collision {
                key: key.clone(),
                reported: reported.clone(),
                existing: existing.clone(),
            });
        }
    }
    Ok(missing)
}

async fn node_metadata(client: &Client, node: &str) -> Result<ObjectMeta, NodeInfoError> {
    #[derive(Deserialize)]
    struct Node {
        metadata: ObjectMeta,
    }
    let found = client.resource(&NODE).get::<Node>(node).await;
    Ok(found.map_err(NodeInfoError::Node)?.metadata)
}

async fn write_node(
    client: &Client,
    node: &str,
    driver: &str,
    id: Option<&str>,
    labels: &BTreeMap<String, String>,
) -> Result<(), NodeInfoError> {
    let metadata = node_metadata(client, node).await?;
    let known = metadata.annotations.get(NODE_ID_ANNOTATION);
    let before: BTreeMap<String, String> = known
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let mut ids = before.clone();
    match id {
        Some(id) => _ = ids.insert(driver.to_owned(), id.to_owned()),
        None => _ = ids.remove(driver),
    }
    if ids == before && labels.is_empty() {
        return Ok(());
    }
    let annotation = match ids.is_empty() {
        true => Value::Null,
        false => json!(json!(ids).to_string()),
    };
    let patch = json!({"metadata": {"labels": labels, "annotations": {NODE_ID_ANNOTATION: annotation}}});
    let patched = client
        .resource(&NODE)
        .patch::<IgnoredAny>(node, Patch::merge(&patch))
        .await;
    patched.map(drop).map_err(NodeInfoError::Node)
}

/// Puts an entry into the node's CSINode in place of the driver's former one, or takes that out.
async fn write_csi_node(client: &Client, node: &str, driver: &str, entry: Option<Value>) -> Result<(), client::Error> {
    let api = client.resource(&CSI_NODE);
    let mut conflicts = 0;
    loop {
        let found = match api.get::<CsiNode>(node).await {
            Err(error) if error.is_not_found() => None,
            found => Some(found?),
        };
        let written = match (found, &entry) {
            (None, None) => return Ok(()),
            (None, Some(entry)) => create_csi_node(client, node, entry).await,
            (Some(found), _) => match drivers_after(&found.spec.drivers, driver, entry.as_ref()) {
                None => return Ok(()),
                Some((drivers, is_last)) => {
                    let version = &found.metadata.resource_version;
                    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"drivers": drivers}});
                    let patched = api.patch::<IgnoredAny>(node, Patch::merge(&patch)).await;
                    match (patched, is_last) {
                        (Ok(_), false) => continue,
                        (patched, _) => patched.map(drop),
                    }
                }
            },
        };
        match written {
            Err(error) if (error.is_conflict() || error.is_already_exists()) && conflicts < MAX_CONFLICTS => {
                conflicts += 1;
            }
            written => return written,
        }
    }
}

/// The list with the entry in it, and whether that is all; none if the list is so already. An entry cannot be changed: a
/// driver that says something else than before is taken out first.
fn drivers_after(before: &[Value], driver: &str, entry: Option<&Value>) -> Option<(Vec<Value>, bool)> {
    let known = before.iter().find(|known| known["name"] == driver);
    if known == entry {
        return None;
    }
    let mut drivers: Vec<Value> = before.iter().filter(|one| one["name"] != driver).cloned().collect();
    if known.is_none() {
        drivers.extend(entry.cloned());
    }
    Some((drivers, known.is_none() || entry.is_none()))
}

async fn create_csi_node(client: &Client, node: &str, entry: &Value) -> Result<(), client::Error> {
    #[derive(Deserialize)]
    struct Node {
        metadata: ObjectMeta,
    }
    let owner = client.resource(&NODE).get::<Node>(node).await?.metadata;
    let object = json!({
        "apiVersion": CSI_NODE.api_version(),
        "kind": CSI_NODE.kind,
        "metadata": {
            "name": node,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.uid}],
        },
        "spec": {"drivers": [entry]},
    });
    let created = client.resource(&CSI_NODE).create::<IgnoredAny>(&object).await;
    created.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(node_id: &str, segments: &[(&str, &str)], max: i64) -> NodeGetInfoResponse {
        let segments = segments.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        NodeGetInfoResponse {
            node_id: node_id.to_owned(),
            max_volumes_per_node: max,
            accessible_topology: Some(csi::v1::Topology {
                segments: segments.collect(),
            }),
        }
    }

    #[test]
    fn what_a_driver_says_of_the_node_is_checked() {
        let check = |answer| NodeInfo::checked(answer).map(|info| info.entry("d"));
        assert_eq!(
            check(answer("n", &[("z/zone", "a"), ("b", "")], 7)),
            Ok(json!({"name": "d", "nodeID": "n", "topologyKeys": ["b", "z/zone"], "allocatable": {"count": 7}}))
        );
        assert_eq!(
            check(answer("n", &[], i64::MIN)),
            Ok(json!({"name": "d", "nodeID": "n", "topologyKeys": []}))
        );
        assert_eq!(
            NodeInfo::checked(answer("n", &[], i64::MAX)).map(|info| info.max_volumes),
            Ok(Some(i32::MAX))
        );
        for id in ["", &"x".repeat(193)] {
            assert_eq!(check(answer(id, &[], 0)), Err(InvalidPlugin::NodeId));
        }
        for segment in [("", "a"), ("a b", "a"), ("zone", "a b"), ("zone", &"x".repeat(64))] {
            let checked = check(answer("n", &[segment], 0));
            assert!(matches!(checked, Err(InvalidPlugin::Topology(_))), "{segment:?}");
        }
    }

    #[test]
    fn an_entry_is_replaced_in_two_steps() {
        let (old, new, other) = (
            json!({"name": "d", "nodeID": "1"}),
            json!({"name": "d", "nodeID": "2"}),
            json!({"name": "e", "nodeID": "1"}),
        );
        let before = [old.clone(), other.clone()];
        assert_eq!(drivers_after(&before, "d", Some(&old)), None);
        let first = drivers_after(&before, "d", Some(&new)).unwrap();
        assert_eq!(first, (vec![other.clone()], false));
        let second = drivers_after(&first.0, "d", Some(&new)).unwrap();
        assert_eq!(second, (vec![other.clone(), new], true));
        assert_eq!(drivers_after(&before, "d", None), Some((vec![other], true)));
        assert_eq!(drivers_after(&[], "d", None), None);
    }
}
