//! The routes to the pods of other nodes, kept as the cluster's Nodes say.

use std::sync::Arc;

use api::ObjectMeta;
use api::kinds::node::NODE;
use client::{Client, Informers, WithMetadata};
use network::host_gateway::{self, ClusterBlocks, Gateways, NodeAddresses};
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tracing::warn;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    addresses: Vec<Address>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    r#type: String,
    address: String,
}

impl WithMetadata for Node {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Follows the Nodes until the future is dropped. The routes stay: traffic goes on while nobody follows.
pub async fn follow(client: Client, own: String, cluster: ClusterBlocks) -> anyhow::Result<()> {
    let informers = Informers::new(client);
    let nodes = informers.cache::<Node>(&NODE);
    let changed = Arc::new(Notify::new());
    let waker = changed.clone();
    nodes.on_change(move |_, _| waker.notify_one());
    nodes.synced().await;
    let mut told = Vec::new();
    let wanted = watch::Sender::new(gateways(&nodes.all(), &own, cluster, &mut told));
    let kept = host_gateway::keep(vec![cluster.pods], wanted.subscribe());
    let followed = async {
        loop {
            changed.notified().await;
            let now = gateways(&nodes.all(), &own, cluster, &mut told);
            wanted.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
        }
    };
    tokio::select! {
        kept = kept => Ok(kept?),
        () = followed => Ok(()),
    }
}

/// The ways to other nodes' pods. `told` are the blocks that were refused before: of each it is told once.
fn gateways(
    nodes: &[Arc<Node>],
    own: &str,
    cluster: ClusterBlocks,
    told: &mut Vec<(String, host_gateway::BlockError)>,
) -> Gateways {
    let (wanted, refused) = host_gateway::gateways(&addresses(nodes.to_vec()), own, cluster);
    if refused != *told {
        for (node, why) in &refused {
            warn!(node, %why, "Ignoring spec.podCIDRs of a node: they conflict with other addresses of the cluster");
        }
        *told = refused;
    }
    wanted
}

/// What the Nodes say, in the order in which they were made.
fn addresses(mut nodes: Vec<Arc<Node>>) -> Vec<NodeAddresses> {
    nodes.sort_by(|a, b| {
        let age = |node: &Node| (node.metadata.creation_timestamp.clone(), node.metadata.name.clone());
        age(a).cmp(&age(b))
    });
    nodes.iter().map(|node| addresses_of(node)).collect()
}

fn addresses_of(node: &Node) -> NodeAddresses {
    let internal = node
        .status
        .addresses
        .iter()
        .filter(|entry| entry.r#type == "InternalIP");
    let blocks = node.spec.pod_cidrs.iter();
    NodeAddresses {
        name: node.metadata.name.clone(),
        blocks: blocks.filter_map(|text| text.parse().ok()).collect(),
        addresses: internal.filter_map(|entry| entry.address.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, created: &str, block: &str, address: &str) -> Arc<Node> {
        let object = serde_json::json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {"podCIDRs": [block]},
            "status": {"addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address},
            ]},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn nodes_come_in_the_order_in_which_they_were_made() {
        let nodes = vec![
            node("evil", "2026-01-02T00:00:00Z", "10.244.1.0/24", "10.99.0.66"),
            node("victim", "2026-01-01T00:00:00Z", "10.244.1.0/24", "10.99.0.2"),
            node("odd", "2026-01-03T00:00:00Z", "nonsense", "10.99.0.4"),
        ];
        let found = addresses(nodes);
        let names: Vec<&str> = found.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["victim", "evil", "odd"]);
        assert_eq!(found[0].blocks, ["10.244.1.0/24".parse().unwrap()]);
        assert_eq!(found[0].addresses, ["10.99.0.2".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!(found[2].blocks, []);
    }
}
