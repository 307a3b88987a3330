//! Ways to the pods of other nodes: the block of each is routed through that node's own address. It needs nothing but
//! that the nodes share a network, and no packet is changed or wrapped on its way.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::error::During;
use crate::route::{GatewayRoute, Route};
use crate::route_monitor::RouteMonitor;
use crate::{Cidr, NetworkError};
use tokio::sync::watch;

/// Routes are compared with the kernel's this often also if nobody tells of a change.
const RESYNC: Duration = Duration::from_secs(30);

/// Which node's address leads to which block.
pub type Gateways = BTreeMap<Cidr, IpAddr>;

/// What a node says of its pods' addresses and of its own. It is the node's word: what it takes from others is not
/// believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    pub name: String,
    pub blocks: Vec<Cidr>,
    pub addresses: Vec<IpAddr>,
}

/// The addresses of a cluster's pods and Services.
#[derive(Clone, Copy, Debug)]
pub struct ClusterBlocks {
    pub pods: Cidr,
    pub services: Cidr,
}

/// Why a node's block is not routed to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    #[error("{0} is not inside of the cluster's addresses of pods")]
    Outside(Cidr),
    #[error("{0} has not the size of a node's block")]
    Size(Cidr),
    #[error("{0} has addresses of Services")]
    Services(Cidr),
    #[error("{0} has the address {1} of node {2}")]
    Node(Cidr, IpAddr, String),
    #[error("{0} is shared with node {1}")]
    Taken(Cidr, String),
    #[error("the node has no address that leads to {0}")]
    Gateway(Cidr),
}

/// Which address leads to which block, of all nodes but this one; and which blocks are not routed. The nodes come in the
/// order in which they were made: what an earlier one has, a later one does not take from it.
pub fn gateways(nodes: &[NodeAddresses], own: &str, cluster: ClusterBlocks) -> (Gateways, Vec<(String, BlockError)>) {
    let own_blocks = nodes.iter().filter(|node| node.name == own);
    let mut taken: Vec<(Cidr, &str)> = own_blocks
        .flat_map(|node| node.blocks.iter().map(|block| (*block, own)))
        .collect();
    let (mut gateways, mut refused) = (Gateways::new(), Vec::new());
    for node in nodes.iter().filter(|node| node.name != own) {
        for block in &node.blocks {
            match gateway(node, *block, nodes, &taken, cluster) {
                Ok(address) => {
                    gateways.insert(*block, address);
                    taken.push((*block, &node.name));
                }
                Err(why) => refused.push((node.name.clone(), why)),
            }
        }
    }
    (gateways, refused)
}

/// The address that leads to a node's block, if the block can be the node's.
fn gateway(
    node: &NodeAddresses,
    block: Cidr,
    nodes: &[NodeAddresses],
    taken: &[(Cidr, &str)],
    cluster: ClusterBlocks,
) -> Result<IpAddr, BlockError> {
    if !cluster.pods.contains_block(&block) {
        return Err(BlockError::Outside(block));
    }
    let (largest, smallest) = if block.is_ipv4() { IPV4_BLOCKS } else { IPV6_BLOCKS };
    if !(largest.max(cluster.pods.prefix())..=smallest).contains(&block.prefix()) {
        return Err(BlockError::Size(block));
    }
    if block.overlaps(&cluster.services) {
        return Err(BlockError::Services(block));
    }
    if let Some((_, other)) = taken.iter().find(|(other, _)| other.overlaps(&block)) {
        return Err(BlockError::Taken(block, (*other).to_owned()));
    }
    for other in nodes {
        if let Some(address) = other.addresses.iter().find(|address| block.contains(**address)) {
            return Err(BlockError::Node(block, *address, other.name.clone()));
        }
    }
    let leads = |address: &&IpAddr| address.is_ipv4() == block.is_ipv4() && is_machine(address, cluster);
    let address = node.addresses.iter().find(leads);
    address.copied().ok_or(BlockError::Gateway(block))
}

/// The prefix lengths between which nodes' blocks are, from the largest blocks to the smallest.
const IPV4_BLOCKS: (u8, u8) = (24, 28);
const IPV6_BLOCKS: (u8, u8) = (64, 112);

/// Whether a machine beside this one can have an address.
fn is_machine(address: &IpAddr, cluster: ClusterBlocks) -> bool {
    let is_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
    };
    let is_special = is_local || address.is_loopback() || address.is_unspecified() || address.is_multicast();
    !is_special && !cluster.pods.contains(*address) && !cluster.services.contains(*address)
}

/// Keeps the routes to blocks inside of `cluster` as they are wanted, whoever changes either, until nobody wants any. The
/// routes stay: traffic goes on while nobody keeps them.
pub async fn keep(cluster: Vec<Cidr>, mut wanted: watch::Receiver<Gateways>) -> Result<(), NetworkError> {
    let operation = || "watch the routes of the host".to_owned();
    let monitor = RouteMonitor::open().during(operation)?;
    let mut told = Vec::new();
    loop {
        let (blocks, now) = (cluster.clone(), wanted.borrow_and_update().clone());
        let synced = tokio::task::spawn_blocking(move || sync(&blocks, &now)).await;
        let failures = synced.unwrap_or_else(|panic| Err(NetworkError::Interrupted(panic.to_string())))?;
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        if failures != told {
            for error in &failures {
                tracing::warn!(
                    error,
                    "Failed to route to the pods of a node; nodes must be on the same layer 2 network"
                );
            }
            told = failures;
        }
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return Ok(()) },
            disturbed = monitor.disturbed() => disturbed.during(operation)?,
            () = tokio::time::sleep(RESYNC) => {}
        }
    }
}

/// Brings the routes to blocks inside of `cluster` to what is wanted. A node that cannot be reached directly is told
/// of in the answer and costs the others nothing.
pub fn sync(cluster: &[Cidr], wanted: &Gateways) -> Result<Vec<NetworkError>, NetworkError> {
    let route = Route::open().during(|| "open the routes of the host".to_owned())?;
    let installed = route.gateway_routes().during(|| "list routes".to_owned())?;
    let changes = plan(&installed, cluster, wanted);
    Ok(changes
        .into_iter()
        .filter_map(|change| apply(&route, &change).err())
        .collect())
}

/// Removes all routes that [`sync`] made to blocks inside of `cluster`.
pub fn remove(cluster: &[Cidr]) -> Result<(), NetworkError> {
    match sync(cluster, &Gateways::new())?.pop() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set(Cidr, IpAddr),
    Remove(Cidr, u32),
}

/// Routes outside of the cluster's own blocks belong to another cluster on this machine.
fn plan(installed: &[GatewayRoute], cluster: &[Cidr], wanted: &Gateways) -> Vec<Change> {
    let ours = |block: Cidr| cluster.iter().any(|cluster| cluster.contains_block(&block));
    let stale = installed
        .iter()
        .filter(|route| ours(route.block) && !wanted.contains_key(&route.block))
        .map(|route| Change::Remove(route.block, route.link));
    let is_there = |block: &Cidr, gateway: &IpAddr| {
        installed
            .iter()
            .any(|route| route.block == *block && route.gateway == *gateway)
    };
    let missing = wanted
        .iter()
        .filter(|(block, gateway)| ours(**block) && !is_there(block, gateway))
        .map(|(block, gateway)| Change::Set(*block, *gateway));
    stale.chain(missing).collect()
}

fn apply(route: &Route, change: &Change) -> Result<(), NetworkError> {
    match *change {
        Change::Remove(block, link) => route
            .remove_route(block, link)
            .during(|| format!("remove the route to {block}")),
        Change::Set(block, gateway) => {
            let operation = || format!("route {block} through {gateway}");
            let unreachable = || crate::netlink::Error::new(libc::ENETUNREACH);
            let link = route.link_towards(gateway).during(operation)?;
            let set = link
                .ok_or_else(unreachable)
                .and_then(|link| route.set_gateway_route(block, link.index, gateway));
            set.during(operation)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn installed(routes: &[(&str, &str)]) -> Vec<GatewayRoute> {
        routes
            .iter()
            .map(|(to, gateway)| GatewayRoute {
                block: block(to),
                gateway: gateway.parse().unwrap(),
                link: 2,
            })
            .collect()
    }

    fn check(existing: &[(&str, &str)], wanted: &[(&str, &str)], expected: &[Change]) {
        let wanted = wanted
            .iter()
            .map(|(to, gateway)| (block(to), gateway.parse().unwrap()))
            .collect();
        assert_eq!(plan(&installed(existing), &[block("10.244.0.0/16")], &wanted), expected);
    }

    fn node(name: &str, blocks: &[&str], address: &str) -> NodeAddresses {
        NodeAddresses {
            name: name.to_owned(),
            blocks: blocks.iter().map(|text| block(text)).collect(),
            addresses: vec![address.parse().unwrap()],
        }
    }

    /// The routes of node `own`, and what is said of the others'.
    fn chosen(others: &[NodeAddresses]) -> (Vec<String>, Vec<String>) {
        let own = node("own", &["10.244.0.0/24"], "10.99.0.1");
        let nodes: Vec<NodeAddresses> = others.iter().cloned().chain([own]).collect();
        let cluster = ClusterBlocks {
            pods: block("10.244.0.0/16"),
            services: block("10.244.240.0/20"),
        };
        let (gateways, refused) = gateways(&nodes, "own", cluster);
        let routes = gateways.iter().map(|(block, gateway)| format!("{block} via {gateway}"));
        let refused = refused.iter().map(|(node, why)| format!("{node}: {why}"));
        (routes.collect(), refused.collect())
    }

    #[test]
    fn other_nodes_blocks_lead_through_their_addresses() {
        let nodes = [
            node("a", &["10.244.1.0/24"], "10.99.0.2"),
            node("b", &["10.244.2.0/25"], "10.99.0.3"),
        ];
        let routes = ["10.244.1.0/24 via 10.99.0.2", "10.244.2.0/25 via 10.99.0.3"];
        assert_eq!(chosen(&nodes), (routes.map(str::to_owned).to_vec(), Vec::new()));
    }

    /// Whatever a node says, nobody else's packets are sent to it.
    #[test]
    fn a_node_takes_nothing_from_others() {
        for (wanted, why) in [
            ("0.0.0.0/1", "not inside of the cluster's addresses"),
            ("10.0.0.0/8", "not inside of the cluster's addresses"),
            ("192.0.2.0/24", "not inside of the cluster's addresses"),
            ("fd00::/64", "not inside of the cluster's addresses"),
            ("10.244.0.0/16", "not the size of a node's block"),
            ("10.244.0.0/23", "not the size of a node's block"),
            ("10.244.9.0/29", "not the size of a node's block"),
            ("10.244.1.7/32", "not the size of a node's block"),
            ("10.244.241.0/24", "addresses of Services"),
            ("10.244.0.0/24", "shared with node own"),
            ("10.244.0.16/28", "shared with node own"),
            ("10.244.1.0/24", "shared with node victim"),
            ("10.244.1.128/25", "shared with node victim"),
            ("10.244.50.0/24", "the address 10.244.50.9 of node odd"),
        ] {
            let nodes = [
                node("victim", &["10.244.1.0/24"], "10.99.0.2"),
                node("odd", &[], "10.244.50.9"),
                node("evil", &[wanted], "10.99.0.66"),
            ];
            let (routes, refused) = chosen(&nodes);
            assert_eq!(routes, ["10.244.1.0/24 via 10.99.0.2"], "{wanted}");
            assert!(
                refused[0].starts_with("evil: ") && refused[0].contains(why),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn no_block_leads_through_an_address_that_no_machine_has() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "10.244.7.7",
            "10.244.240.1",
            "::ffff:10.99.0.66",
        ] {
            let (routes, refused) = chosen(&[node("evil", &["10.244.9.0/24"], address)]);
            assert_eq!((routes.len(), refused.len()), (0, 1), "{address}");
        }
    }

    #[test]
    fn routes_follow_nodes_and_their_addresses() {
        let second = ("10.244.1.0/24", "10.99.0.2");
        let set = |to: &str, gateway: &str| Change::Set(block(to), gateway.parse().unwrap());
        check(&[], &[second], &[set("10.244.1.0/24", "10.99.0.2")]);
        check(&[second], &[second], &[]);
        check(
            &[second],
            &[("10.244.1.0/24", "10.99.0.9")],
            &[set("10.244.1.0/24", "10.99.0.9")],
        );
        check(&[second], &[], &[Change::Remove(block("10.244.1.0/24"), 2)]);
    }

    #[test]
    fn what_lies_outside_of_the_cluster_is_left_alone() {
        check(&[("10.99.9.0/24", "10.99.0.2")], &[("192.0.2.0/24", "10.99.0.2")], &[]);
    }
}
