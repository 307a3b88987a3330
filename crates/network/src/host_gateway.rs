//! Ways to the pods of other nodes: the block of each is routed through that node's own address. It needs nothing but
//! that the nodes share a network, and no packet is changed or wrapped on its way.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::error::During;
use crate::route::{GatewayRoute, Route};
use crate::{Cidr, NetworkError};

/// Which node's address leads to which block.
pub type Gateways = BTreeMap<Cidr, IpAddr>;

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
    let ours = |block: Cidr| {
        cluster
            .iter()
            .any(|cluster| cluster.prefix() <= block.prefix() && cluster.contains(block.address()))
    };
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
