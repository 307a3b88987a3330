//! The routes to the pods of other nodes, kept as the cluster's Nodes say.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::ObjectMeta;
use api::kinds::node::NODE;
use client::{Client, Informers, WithMetadata};
use network::host_gateway::{self, Gateways};
use network::{Cidr, NetworkError};
use serde::Deserialize;
use tokio::sync::Notify;
use tracing::warn;

/// Routes are compared with the kernel's this often: they vanish when a link goes down for a moment.
const RESYNC: Duration = Duration::from_secs(30);

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
pub async fn follow(client: Client, own: String, cluster: Cidr) -> anyhow::Result<()> {
    let informers = Informers::new(client);
    let nodes = informers.cache::<Node>(&NODE);
    let changed = Arc::new(Notify::new());
    let waker = changed.clone();
    nodes.on_change(move |_, _| waker.notify_one());
    nodes.synced().await;
    let mut known = None;
    loop {
        let wanted = gateways(nodes.all().iter().map(Arc::as_ref), &own);
        if known.as_ref() != Some(&wanted) {
            apply(cluster, wanted.clone()).await?;
            known = Some(wanted);
        }
        tokio::select! {
            () = changed.notified() => {}
            () = tokio::time::sleep(RESYNC) => known = None,
        }
    }
}

async fn apply(cluster: Cidr, wanted: Gateways) -> anyhow::Result<()> {
    let failures: Vec<NetworkError> =
        tokio::task::spawn_blocking(move || host_gateway::sync(&[cluster], &wanted)).await??;
    for error in failures {
        warn!(%error, "the pods of a node cannot be reached; nodes must share a network");
    }
    Ok(())
}

/// Which address leads to which block, of all nodes but this one.
fn gateways<'a>(nodes: impl Iterator<Item = &'a Node>, own: &str) -> Gateways {
    let others = nodes.filter(|node| node.metadata.name != own);
    others.flat_map(ways_to).collect()
}

fn ways_to(node: &Node) -> Vec<(Cidr, IpAddr)> {
    let internal = node
        .status
        .addresses
        .iter()
        .filter(|entry| entry.r#type == "InternalIP");
    let addresses: Vec<IpAddr> = internal.filter_map(|entry| entry.address.parse().ok()).collect();
    let blocks = node.spec.pod_cidrs.iter().filter_map(|text| text.parse::<Cidr>().ok());
    blocks
        .filter_map(|block| {
            let same_family = |address: &&IpAddr| address.is_ipv4() == block.is_ipv4();
            addresses.iter().find(same_family).map(|address| (block, *address))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, block: &str, address: &str) -> Node {
        let object = serde_json::json!({
            "metadata": {"name": name},
            "spec": {"podCIDRs": [block]},
            "status": {"addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address},
            ]},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn other_nodes_blocks_lead_through_their_internal_addresses() {
        let nodes = [
            node("a", "10.244.0.0/24", "10.99.0.1"),
            node("b", "10.244.1.0/24", "10.99.0.2"),
            node("c", "fd00::/64", "10.99.0.3"),
            node("d", "nonsense", "10.99.0.4"),
        ];
        let expected: Gateways = [("10.244.1.0/24".parse().unwrap(), "10.99.0.2".parse().unwrap())].into();
        assert_eq!(gateways(nodes.iter(), "a"), expected);
    }
}
