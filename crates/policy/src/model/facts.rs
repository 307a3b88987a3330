//! What packets are judged by, and how it changes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::{AddressRange, Direction, PortSet};

/// Pods that the same policies select in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// The number of a set of ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u32);

/// Everything that is looked up for a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The isolated pods of this node. Whoever is not here may do anything.
    pub members: BTreeMap<(Direction, IpAddr), ClassId>,
    /// What pods may have with a class, by their address.
    pub peers: BTreeMap<(Direction, ClassId, IpAddr), GrantId>,
    /// What anybody may have with a class, by their address. Ranges of a class do not overlap.
    pub blocks: BTreeMap<(Direction, ClassId, AddressRange), GrantId>,
    pub grants: BTreeMap<GrantId, PortSet>,
}

/// A change: the facts that were so, and those that are so instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub old: Facts,
    pub new: Facts,
}

impl Step {
    pub fn is_empty(&self) -> bool {
        self.old == self.new
    }
}

impl Facts {
    /// Whether a packet of a new connection passes, as the kernel judges it.
    pub fn allows(&self, from: IpAddr, to: IpAddr, protocol: network::Protocol, port: u16) -> bool {
        let passes = |direction, pod: IpAddr, peer: IpAddr| {
            let Some(&class) = self.members.get(&(direction, pod)) else {
                return true;
            };
            let block = self
                .blocks
                .iter()
                .find(|((of, id, range), _)| (*of, *id) == (direction, class) && range.contains(peer));
            let grants = [self.peers.get(&(direction, class, peer)), block.map(|(_, grant)| grant)];
            let ports = grants.into_iter().flatten().filter_map(|grant| self.grants.get(grant));
            ports.into_iter().any(|ports| ports.contains(protocol, port))
        };
        from == to || passes(Direction::Egress, from, to) && passes(Direction::Ingress, to, from)
    }
}

/// Numbers of grants have it, and those of classes do not: neither is ever taken for the other.
pub const GRANT_BIT: u32 = 1 << 31;

/// The facts, and what they were when the last step was taken.
#[derive(Debug, Default)]
pub struct Ledger {
    facts: Facts,
    before: Before,
    /// The number of each set of ports, and how many facts have it.
    grants: HashMap<PortSet, (GrantId, usize)>,
    next_grant: u32,
}

/// What was so before the step, of whatever was touched since.
#[derive(Debug, Default)]
struct Before {
    members: BTreeMap<(Direction, IpAddr), Option<ClassId>>,
    peers: BTreeMap<(Direction, ClassId, IpAddr), Option<GrantId>>,
    blocks: BTreeMap<(Direction, ClassId, AddressRange), Option<GrantId>>,
    grants: BTreeMap<GrantId, Option<PortSet>>,
}

impl Ledger {
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn set_member(&mut self, direction: Direction, address: IpAddr, class: Option<ClassId>) {
        change(
            &mut self.facts.members,
            &mut self.before.members,
            (direction, address),
            class,
        );
    }

    /// An empty set of ports is no peer.
    pub fn set_peer(&mut self, direction: Direction, class: ClassId, address: IpAddr, ports: PortSet) {
        let grant = self.take_grant(ports);
        let key = (direction, class, address);
        let old = change(&mut self.facts.peers, &mut self.before.peers, key, grant);
        self.give_back(old);
    }

    pub fn peers_of(&self, direction: Direction, class: ClassId) -> impl Iterator<Item = IpAddr> {
        let lowest = IpAddr::from([0; 4]);
        let from = (direction, class, lowest);
        let of_class = move |(of, id, _): &(Direction, ClassId, IpAddr)| (*of, *id) == (direction, class);
        self.facts
            .peers
            .range(from..)
            .map(|(key, _)| *key)
            .take_while(of_class)
            .map(|(_, _, address)| address)
    }

    pub fn set_blocks(&mut self, direction: Direction, class: ClassId, blocks: BTreeMap<AddressRange, PortSet>) {
        for range in self.blocks_of(direction, class) {
            if !blocks.contains_key(&range) {
                self.set_block(direction, class, range, PortSet::default());
            }
        }
        for (range, ports) in blocks {
            self.set_block(direction, class, range, ports);
        }
    }

    /// Forgets all that a class has.
    pub fn drop_class(&mut self, direction: Direction, class: ClassId) {
        let peers: Vec<IpAddr> = self.peers_of(direction, class).collect();
        for address in peers {
            self.set_peer(direction, class, address, PortSet::default());
        }
        self.set_blocks(direction, class, BTreeMap::new());
    }

    /// What has changed since the last call.
    pub fn take_step(&mut self) -> Step {
        let before = std::mem::take(&mut self.before);
        let mut step = Step::default();
        let (old, new, now) = (&mut step.old, &mut step.new, &self.facts);
        sort_out(before.members, &now.members, &mut old.members, &mut new.members);
        sort_out(before.peers, &now.peers, &mut old.peers, &mut new.peers);
        sort_out(before.blocks, &now.blocks, &mut old.blocks, &mut new.blocks);
        sort_out(before.grants, &now.grants, &mut old.grants, &mut new.grants);
        step
    }

    fn blocks_of(&self, direction: Direction, class: ClassId) -> Vec<AddressRange> {
        let lowest = IpAddr::from([0; 4]);
        let first = AddressRange {
            first: lowest,
            last: lowest,
        };
        let of_class = move |(of, id, _): &(Direction, ClassId, AddressRange)| (*of, *id) == (direction, class);
        let from = (direction, class, first);
        let found = self.facts.blocks.range(from..).map(|(key, _)| *key);
        found.take_while(of_class).map(|(_, _, range)| range).collect()
    }

    fn set_block(&mut self, direction: Direction, class: ClassId, range: AddressRange, ports: PortSet) {
        let grant = self.take_grant(ports);
        let key = (direction, class, range);
        let old = change(&mut self.facts.blocks, &mut self.before.blocks, key, grant);
        self.give_back(old);
    }

    /// The number of a set of ports that one more fact has.
    fn take_grant(&mut self, ports: PortSet) -> Option<GrantId> {
        if ports.is_empty() {
            return None;
        }
        if let Some((id, uses)) = self.grants.get_mut(&ports) {
            *uses += 1;
            return Some(*id);
        }
        let id = loop {
            self.next_grant = self.next_grant.wrapping_add(1);
            let id = GrantId(self.next_grant | GRANT_BIT);
            if !self.facts.grants.contains_key(&id) {
                break id;
            }
        };
        self.grants.insert(ports.clone(), (id, 1));
        change(&mut self.facts.grants, &mut self.before.grants, id, Some(ports));
        Some(id)
    }

    fn give_back(&mut self, grant: Option<GrantId>) {
        let Some(ports) = grant.and_then(|id| self.facts.grants.get(&id)) else {
            return;
        };
        let Some((id, uses)) = self.grants.get_mut(ports) else {
            return;
        };
        *uses -= 1;
        let id = *id;
        if *uses == 0 {
            self.grants.remove(&ports.clone());
            change(&mut self.facts.grants, &mut self.before.grants, id, None);
        }
    }
}

/// Changes one fact, and notes what it was if it has not been touched before. Gives what it was.
fn change<K: Ord + Clone, V: Clone + PartialEq>(
    facts: &mut BTreeMap<K, V>,
    before: &mut BTreeMap<K, Option<V>>,
    key: K,
    value: Option<V>,
) -> Option<V> {
    let old = facts.get(&key).cloned();
    if old != value {
        before.entry(key.clone()).or_insert_with(|| old.clone());
        match value {
            Some(value) => facts.insert(key, value),
            None => facts.remove(&key),
        };
    }
    old
}

fn sort_out<K: Ord + Clone, V: Clone + PartialEq>(
    before: BTreeMap<K, Option<V>>,
    now: &BTreeMap<K, V>,
    old: &mut BTreeMap<K, V>,
    new: &mut BTreeMap<K, V>,
) {
    for (key, was) in before {
        let is = now.get(&key).cloned();
        if was != is {
            old.extend(was.map(|was| (key.clone(), was)));
            new.extend(is.map(|is| (key, is)));
        }
    }
}
