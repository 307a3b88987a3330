//! Every node gets its own block of the pod network.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use api::kinds::node::NODE;
use async_trait::async_trait;
use client::{Cache, EventType, Key, ObjectReference};
use parking_lot::Mutex;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::Node;
use crate::plan::{Action, Event, Patch, Plan};
use crate::settings::Settings;

pub const ROW: Row = Row {
    name: "node-ipam",
    account: "node-controller",
    queue: "cidrallocator_node",
    workers: 1,
    start,
};

const DEFAULT_MASK_IPV4: u8 = 24;
const DEFAULT_MASK_IPV6: u8 = 64;

/// There is one key, that of all nodes: no block may be given to two of them.
struct Controller {
    pools: Vec<Pool>,
    nodes: Arc<Cache<Node>>,
    without: Mutex<HashSet<String>>,
}

/// A network and how it is cut up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pool {
    base: u128,
    bits: u8,
    prefix: u8,
    block: u8,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let nodes = setup.cache::<Node>(&NODE);
    let pools = pools(setup.settings());
    let (queue, wanted) = (setup.queue(), !pools.is_empty());
    nodes.on_change(move |_, new| {
        // A node that goes leaves its block to one that has none.
        if wanted && new.is_none_or(|node| node.spec.pod_cidrs.is_empty()) {
            queue.add(Key::new("", "nodes"));
        }
    });
    Box::new(Controller {
        pools,
        nodes,
        without: Mutex::default(),
    })
}

fn pools(settings: &Settings) -> Vec<Pool> {
    let masks = (
        settings.node_cidr_mask_size_ipv4.unwrap_or(DEFAULT_MASK_IPV4),
        settings.node_cidr_mask_size_ipv6.unwrap_or(DEFAULT_MASK_IPV6),
    );
    let parsed = settings.cluster_cidrs.iter().filter_map(|text| {
        let pool = Pool::parse(text, masks);
        if pool.is_none() {
            tracing::error!(
                network = text,
                "not a network that blocks for nodes can be cut from; it is left out"
            );
        }
        pool
    });
    parsed.collect()
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, _key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        Ok(plan(&self.nodes.all(), &self.pools, &mut self.without.lock()))
    }
}

/// `without` are the nodes for which there was no block the last time: of each it is told once.
fn plan(nodes: &[Arc<Node>], pools: &[Pool], without: &mut HashSet<String>) -> Plan {
    let mut plan = Plan::default();
    let told = std::mem::take(without);
    let mut free: Vec<Free<'_>> = pools.iter().map(|pool| Free::new(pool, nodes)).collect();
    for node in nodes.iter().filter(|node| node.spec.pod_cidrs.is_empty()) {
        let blocks: Option<Vec<String>> = free.iter_mut().map(Free::take).collect();
        let Some(blocks) = blocks.filter(|blocks| !blocks.is_empty()) else {
            without.insert(node.metadata.name.clone());
            if told.contains(&node.metadata.name) {
                continue;
            }
            plan.actions.push(Action::Event(Event {
                about: ObjectReference::new(&NODE, &node.metadata),
                kind: EventType::Normal,
                reason: "CIDRNotAvailable",
                message: format!("Node {} status is now: CIDRNotAvailable", node.metadata.name),
            }));
            continue;
        };
        let spec = json!({"podCIDR": blocks[0], "podCIDRs": blocks});
        let patch = Patch::new(&NODE, &node.metadata, json!({"spec": spec}));
        plan.actions.push(Action::Patch(patch.at_revision(&node.metadata)));
    }
    plan
}

/// The blocks of a pool that no node has, from the lowest.
struct Free<'a> {
    pool: &'a Pool,
    taken: BTreeSet<u128>,
    next: u128,
}

impl<'a> Free<'a> {
    fn new(pool: &'a Pool, nodes: &[Arc<Node>]) -> Free<'a> {
        let cidrs = nodes.iter().flat_map(|node| &node.spec.pod_cidrs);
        Free {
            pool,
            taken: cidrs.flat_map(|cidr| pool.indexes_of(cidr)).collect(),
            next: 0,
        }
    }

    fn take(&mut self) -> Option<String> {
        while self.taken.contains(&self.next) {
            self.next += 1;
        }
        let block = self.pool.block(self.next)?;
        self.next += 1;
        Some(block)
    }
}

impl Pool {
    fn parse(text: &str, masks: (u8, u8)) -> Option<Pool> {
        let (address, prefix) = split(text)?;
        let (bits, block) = if address.is_ipv4() {
            (32, masks.0)
        } else {
            (128, masks.1)
        };
        let host_bits = u32::from(bits - prefix);
        let base = number(address) & u128::MAX.checked_shl(host_bits).unwrap_or(0);
        // More than 2^16 blocks, upstream's bound too, would be a mistake.
        let fits = prefix <= block && block <= bits && block - prefix <= 16;
        fits.then_some(Pool {
            base,
            bits,
            prefix,
            block,
        })
    }

    /// The block with this number, if the pool has that many.
    fn block(&self, index: u128) -> Option<String> {
        if index >= 1 << (self.block - self.prefix) {
            return None;
        }
        let number = self.base + (index << (self.bits - self.block));
        let address = match self.bits {
            32 => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).ok()?)),
            _ => IpAddr::V6(Ipv6Addr::from(number)),
        };
        Some(format!("{address}/{}", self.block))
    }

    /// The blocks that have any address of a network. One as large as all blocks together is nobody's to have, and leaves
    /// the others theirs.
    fn indexes_of(&self, cidr: &str) -> RangeInclusive<u128> {
        let nothing = RangeInclusive::new(1, 0);
        let same_family = |(address, _): &(IpAddr, u8)| address.is_ipv4() == (self.bits == 32);
        let Some((address, prefix)) = split(cidr).filter(same_family) else {
            return nothing;
        };
        let is_part = prefix > self.prefix || prefix == self.block;
        let Some(offset) = number(address).checked_sub(self.base).filter(|_| is_part) else {
            return nothing;
        };
        let (index, count) = (
            offset >> (self.bits - self.block),
            1 << self.block.saturating_sub(prefix),
        );
        let first = index / count * count;
        first..=first + count - 1
    }
}

fn split(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
    (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, prefix))
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::objects;

    fn check(cluster_cidrs: &[&str], nodes: &str, expected: Expect) {
        let settings = Settings {
            cluster_cidrs: cluster_cidrs.iter().map(|text| (*text).to_owned()).collect(),
            ..Settings::default()
        };
        let planned = plan(&objects(nodes), &pools(&settings), &mut HashSet::new());
        expected.assert_eq(&planned.to_string());
    }

    const NODES: &str = "
metadata: {name: a, resourceVersion: '1'}
---
metadata: {name: b, resourceVersion: '2'}
spec: {podCIDR: 10.244.0.0/24, podCIDRs: [10.244.0.0/24]}
---
metadata: {name: c, resourceVersion: '3'}";

    #[test]
    fn nodes_get_the_lowest_free_blocks() {
        check(
            &["10.244.0.0/16"],
            NODES,
            expect![[r#"
            patch nodes a: {"metadata":{"resourceVersion":"1"},"spec":{"podCIDR":"10.244.1.0/24","podCIDRs":["10.244.1.0/24"]}}
            patch nodes c: {"metadata":{"resourceVersion":"3"},"spec":{"podCIDR":"10.244.2.0/24","podCIDRs":["10.244.2.0/24"]}}
        "#]],
        );
        check(
            &["10.244.0.0/16", "fd00:10::/56"],
            "metadata: {name: a, resourceVersion: '1'}",
            expect![[r#"
            patch nodes a: {"metadata":{"resourceVersion":"1"},"spec":{"podCIDR":"10.244.0.0/24","podCIDRs":["10.244.0.0/24","fd00:10::/64"]}}
        "#]],
        );
    }

    /// A node that has several blocks, or a part of one, has all blocks that it touches; no other gets them.
    #[test]
    fn no_block_is_given_out_of_what_a_node_has_already() {
        let block = |taken: &str| {
            let nodes = format!(
                "metadata: {{name: a, resourceVersion: '1'}}\n---\n\
                 metadata: {{name: b}}\nspec: {{podCIDR: {taken}, podCIDRs: ['{taken}']}}"
            );
            let settings = Settings {
                cluster_cidrs: vec!["10.244.0.0/16".to_owned()],
                ..Settings::default()
            };
            plan(&objects(&nodes), &pools(&settings), &mut HashSet::new()).to_string()
        };
        for (taken, given) in [
            ("10.244.0.0/22", "10.244.4.0/24"),
            ("10.244.0.7/32", "10.244.1.0/24"),
            ("10.244.0.0/17", "10.244.128.0/24"),
            ("10.244.0.0/16", "10.244.0.0/24"),
            ("10.240.0.0/13", "10.244.0.0/24"),
            ("0.0.0.0/0", "10.244.0.0/24"),
            ("10.243.0.0/16", "10.244.0.0/24"),
            ("10.245.0.0/16", "10.244.0.0/24"),
            ("fd00::/8", "10.244.0.0/24"),
        ] {
            assert!(block(taken).contains(given), "{taken}: {}", block(taken));
        }
    }

    #[test]
    fn an_enormous_network_costs_nothing_to_leave_out() {
        let pool = Pool::parse("fd00::/64", (24, 64)).unwrap();
        assert_eq!(pool.indexes_of("fd00::/8").count(), 0);
        assert_eq!(pool.indexes_of("::/0").count(), 0);
        assert_eq!(pool.indexes_of("fd00::/64").count(), 1);
    }

    #[test]
    fn a_used_up_network_is_told() {
        check(
            &["10.244.0.0/23"],
            NODES,
            expect![[r#"
            patch nodes a: {"metadata":{"resourceVersion":"1"},"spec":{"podCIDR":"10.244.1.0/24","podCIDRs":["10.244.1.0/24"]}}
            event Normal CIDRNotAvailable: Node c status is now: CIDRNotAvailable
        "#]],
        );
    }

    #[test]
    fn a_node_without_a_block_is_told_of_once() {
        let settings = Settings {
            cluster_cidrs: vec!["10.244.0.0/24".to_owned()],
            ..Settings::default()
        };
        let (pools, nodes) = (pools(&settings), objects(NODES));
        let mut without = HashSet::new();
        assert_eq!(plan(&nodes, &pools, &mut without).actions.len(), 2);
        assert_eq!(plan(&nodes, &pools, &mut without).actions.len(), 0);
        assert_eq!(plan(&[], &pools, &mut without).actions.len(), 0);
        assert_eq!(
            plan(&nodes, &pools, &mut without).actions.len(),
            2,
            "others of these names"
        );
    }

    #[test]
    fn without_a_network_nodes_are_left_alone() {
        check(&["10.244.0.0/8", "nonsense"], "", expect![""]);
        assert_eq!(pools(&Settings::default()), []);
    }
}
