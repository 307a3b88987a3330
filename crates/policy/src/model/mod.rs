//! What policies mean for the pods of this node, kept as they change.
//!
//! Pure: policies, pods and namespaces in, [`Facts`] out. A pod that a policy selects is isolated in the policy's
//! directions, and belongs to a *class* there: all pods that the same policies select. Each class has peers, by their
//! address, and blocks of addresses, and each of them a *grant*: the ports it is let through at. So a packet is judged by
//! three lookups however many policies there are, and a pod that comes or goes changes one fact of each class that it
//! is a peer of.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use client::Key;

use crate::objects::Labels;

pub use facts::{ClassId, Facts, GrantId, Step};
pub use policy::{PodFacts, Policy, PublishedPort, Rule, protocol};
pub use ports::PortSet;
pub use ranges::AddressRange;

use facts::{GRANT_BIT, Ledger};

mod facts;
mod policy;
mod ports;
mod ranges;

/// As seen from the pod that a policy selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    pub const BOTH: [Direction; 2] = [Direction::Ingress, Direction::Egress];
}

/// All that is known, and what follows of it.
#[derive(Debug, Default)]
pub struct Model {
    namespaces: HashMap<String, Labels>,
    pods: HashMap<Key, Arc<PodFacts>>,
    /// The pods of each namespace.
    by_namespace: HashMap<String, BTreeSet<Key>>,
    /// Whoever says to have an address; more than one only while an address changes hands, or if somebody lies.
    by_address: HashMap<IpAddr, BTreeSet<Key>>,
    policies: BTreeMap<Key, Arc<Policy>>,
    policies_by_namespace: HashMap<String, BTreeSet<Key>>,
    classes: HashMap<(Direction, ClassKey), ClassId>,
    class_of: HashMap<(Direction, Key), ClassId>,
    class_state: HashMap<ClassId, Class>,
    next_class: u32,
    ledger: Ledger,
    stale: Stale,
}

/// What has to be looked at again.
#[derive(Debug, Default)]
struct Stale {
    /// Pods of this node whose policies may have changed.
    pods: BTreeSet<Key>,
    /// Addresses that may have become or ceased to be peers.
    addresses: BTreeSet<IpAddr>,
    /// Policies whose rules changed.
    policies: BTreeSet<Key>,
}

/// What all pods of a class have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ClassKey {
    policies: Vec<Key>,
    /// The numbers of the ports that the policies name, as these pods have them. Only what is let in depends on them.
    named_ports: Vec<(network::Protocol, String, u16)>,
}

#[derive(Debug)]
struct Class {
    direction: Direction,
    key: ClassKey,
    members: usize,
}

impl Model {
    /// Takes a namespace's labels, or that it is gone.
    pub fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        if self.namespaces.get(name) == labels.as_ref() {
            return;
        }
        match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels),
            None => self.namespaces.remove(name),
        };
        for key in self.by_namespace.get(name).into_iter().flatten() {
            let addresses = self.pods.get(key).map(|pod| pod.addresses.as_slice());
            self.stale.addresses.extend(addresses.unwrap_or_default());
        }
    }

    /// Takes a pod, or that it is gone.
    pub fn set_pod(&mut self, key: &Key, pod: Option<PodFacts>) {
        let old = self.pods.remove(key);
        if old.as_deref() == pod.as_ref() {
            self.pods.extend(old.map(|old| (key.clone(), old)));
            return;
        }
        for pod in old.iter() {
            self.index_pod(key, pod, false);
        }
        if let Some(pod) = pod {
            self.index_pod(key, &pod, true);
            self.pods.insert(key.clone(), Arc::new(pod));
        }
        self.stale.pods.insert(key.clone());
    }

    /// Takes a policy, or that it is gone.
    pub fn set_policy(&mut self, key: &Key, policy: Option<Policy>) {
        let old = self.policies.remove(key);
        if old.as_deref() == policy.as_ref() {
            self.policies.extend(old.map(|old| (key.clone(), old)));
            return;
        }
        let namespace = key.namespace().to_owned();
        index(&mut self.policies_by_namespace, &namespace, key, policy.is_some());
        self.policies
            .extend(policy.map(|policy| (key.clone(), Arc::new(policy))));
        self.stale.policies.insert(key.clone());
        let pods = self.by_namespace.get(key.namespace()).into_iter().flatten();
        let local = pods.filter(|key| self.pods.get(*key).is_some_and(|pod| pod.local));
        self.stale.pods.extend(local.cloned());
    }

    /// Works out what follows of everything taken since the last call.
    pub fn step(&mut self) -> Step {
        let mut stale = std::mem::take(&mut self.stale);
        let mut changed = BTreeSet::new();
        for key in &stale.pods {
            for direction in Direction::BOTH {
                self.classify(key, direction, &mut changed);
            }
        }
        let touched = |class: &Class| class.key.policies.iter().any(|policy| stale.policies.contains(policy));
        changed.extend(
            self.class_state
                .iter()
                .filter(|(_, class)| touched(class))
                .map(|(id, _)| *id),
        );
        // A class that was new a moment ago may have lost its only pod since.
        changed.retain(|id| self.class_state.contains_key(id));
        changed.iter().for_each(|id| self.fill(*id));
        let others: Vec<ClassId> = self
            .class_state
            .keys()
            .filter(|id| !changed.contains(id))
            .copied()
            .collect();
        for &address in &stale.addresses {
            for &id in &others {
                let server = self.server_of(id);
                self.grant_peer(id, address, server.as_ref());
            }
        }
        let of_pods = stale.pods.iter().filter_map(|key| self.pods.get(key));
        stale.addresses.extend(of_pods.flat_map(|pod| &pod.addresses));
        for &address in &stale.addresses {
            for direction in Direction::BOTH {
                self.ledger
                    .set_member(direction, address, self.class_at(direction, address));
            }
        }
        self.ledger.take_step()
    }

    /// Everything that follows.
    pub fn facts(&self) -> &Facts {
        self.ledger.facts()
    }

    fn index_pod(&mut self, key: &Key, pod: &PodFacts, present: bool) {
        index(&mut self.by_namespace, &pod.namespace, key, present);
        for address in &pod.addresses {
            index(&mut self.by_address, address, key, present);
            self.stale.addresses.insert(*address);
        }
    }

    /// Whoever has an address, as far as this node knows: its own word counts more than what others say.
    fn owners(&self, address: IpAddr) -> Vec<(&Key, &Arc<PodFacts>)> {
        let keys = self.by_address.get(&address).into_iter().flatten();
        let mut owners: Vec<(&Key, &Arc<PodFacts>)> = keys.filter_map(|key| self.pods.get_key_value(key)).collect();
        if owners.iter().any(|(_, pod)| pod.registered) {
            owners.retain(|(_, pod)| pod.registered);
        }
        owners
    }

    /// The class of the pod of this node that has an address. Should several say so, an isolated one counts.
    fn class_at(&self, direction: Direction, address: IpAddr) -> Option<ClassId> {
        let owners = self.owners(address).into_iter().filter(|(_, pod)| pod.local);
        let mut classes = owners.filter_map(|(key, _)| self.class_of.get(&(direction, key.clone())));
        classes.next().copied()
    }

    /// Puts a pod into the class of the policies that select it. A class that is new is added to `fresh`.
    fn classify(&mut self, key: &Key, direction: Direction, fresh: &mut BTreeSet<ClassId>) {
        let local = self.pods.get(key).filter(|pod| pod.local);
        let wanted = local.and_then(|pod| self.class_key(pod, direction));
        let current = self.class_of.get(&(direction, key.clone())).copied();
        if current.map(|id| &self.class_state[&id].key) == wanted.as_ref() {
            return;
        }
        if let Some(wanted) = wanted {
            let id = self.class(direction, wanted, fresh);
            self.class_of.insert((direction, key.clone()), id);
            if let Some(class) = self.class_state.get_mut(&id) {
                class.members += 1;
            }
        } else {
            self.class_of.remove(&(direction, key.clone()));
        }
        if let Some((id, class)) = current.and_then(|id| Some((id, self.class_state.get_mut(&id)?))) {
            class.members -= 1;
            if class.members == 0 {
                self.drop_class(id);
            }
        }
    }

    /// The policies that isolate a pod in a direction, if any do.
    fn class_key(&self, pod: &PodFacts, direction: Direction) -> Option<ClassKey> {
        let in_namespace = self.policies_by_namespace.get(&pod.namespace).into_iter().flatten();
        let selecting = in_namespace.filter_map(|key| Some((key, self.policies.get(key)?)));
        let isolating: Vec<(&Key, &Arc<Policy>)> = selecting
            .filter(|(_, policy)| policy.rules(direction).is_some() && policy.selects(pod))
            .collect();
        if isolating.is_empty() {
            return None;
        }
        let mut rules = isolating
            .iter()
            .flat_map(|(_, policy)| policy.rules(direction).unwrap_or_default());
        let by_name = direction == Direction::Ingress && rules.any(Rule::has_named_ports);
        let named_ports = pod.named_ports.iter().filter(|_| by_name);
        Some(ClassKey {
            policies: isolating.iter().map(|(key, _)| (*key).clone()).collect(),
            named_ports: named_ports
                .map(|((protocol, name), number)| (*protocol, name.clone(), *number))
                .collect(),
        })
    }

    fn class(&mut self, direction: Direction, key: ClassKey, fresh: &mut BTreeSet<ClassId>) -> ClassId {
        if let Some(id) = self.classes.get(&(direction, key.clone())) {
            return *id;
        }
        // Numbers come round after two thousand million classes; those in use are passed over.
        let id = loop {
            self.next_class = self.next_class.wrapping_add(1) & !GRANT_BIT;
            let id = ClassId(self.next_class);
            if !self.class_state.contains_key(&id) {
                break id;
            }
        };
        self.classes.insert((direction, key.clone()), id);
        let members = 0;
        self.class_state.insert(
            id,
            Class {
                direction,
                key,
                members,
            },
        );
        fresh.insert(id);
        id
    }

    fn drop_class(&mut self, id: ClassId) {
        if let Some(class) = self.class_state.remove(&id) {
            self.classes.remove(&(class.direction, class.key));
            self.ledger.drop_class(class.direction, id);
        }
    }

    /// Works out all peers and blocks of a class.
    fn fill(&mut self, id: ClassId) {
        let direction = self.class_state[&id].direction;
        let mut addresses: BTreeSet<IpAddr> = self.ledger.peers_of(direction, id).collect();
        addresses.extend(self.possible_peers(id));
        let server = self.server_of(id);
        for address in addresses {
            self.grant_peer(id, address, server.as_ref());
        }
        let mut ranges = Vec::new();
        for (_, rule) in self.rules_of(id) {
            let ports = rule.ports_of(server.as_ref());
            ranges.extend(rule.ranges().into_iter().map(|range| (range, ports.clone())));
        }
        let blocks = ranges::disjoint(&ranges);
        self.ledger.set_blocks(direction, id, blocks);
    }

    /// The addresses of all pods that rules of a class can be about. Few rules look beyond their own namespace, and a policy
    /// that changes should not cost a look at every pod of the cluster.
    fn possible_peers(&self, id: ClassId) -> Vec<IpAddr> {
        let rules: Vec<(&str, &Rule)> = self.rules_of(id).collect();
        let egress = self.class_state[&id].direction == Direction::Egress;
        let by_name = |rule: &Rule| egress && rule.names_ports_of_addresses();
        if rules.iter().any(|(_, rule)| rule.selects_namespaces() || by_name(rule)) {
            return self.by_address.keys().copied().collect();
        }
        if rules.is_empty() {
            return Vec::new();
        }
        let namespaces: BTreeSet<&str> = rules.iter().map(|(namespace, _)| *namespace).collect();
        let keys = namespaces
            .iter()
            .filter_map(|name| self.by_namespace.get(*name))
            .flatten();
        let own = keys.filter_map(|key| self.pods.get(key));
        // Servers are matched by their address, too.
        let servers = self.pods.values().filter(|pod| !pod.published.is_empty());
        own.chain(servers).flat_map(|pod| &pod.addresses).copied().collect()
    }

    /// Works out what a class lets through to or from one address because of who has it.
    fn grant_peer(&mut self, id: ClassId, address: IpAddr, server: Option<&PodFacts>) {
        let direction = self.class_state[&id].direction;
        let owners = self.owners(address);
        // Nobody gains anything by saying to have another's address: what all who say so may have is let through.
        let granted = owners
            .iter()
            .map(|(_, owner)| self.granted(id, owner, address, server))
            .reduce(|one, other| one.intersection(&other))
            .unwrap_or_default();
        self.ledger.set_peer(direction, id, address, granted);
    }

    fn granted(&self, id: ClassId, peer: &PodFacts, address: IpAddr, server: Option<&PodFacts>) -> PortSet {
        let none = Labels::new();
        let labels = self.namespaces.get(&peer.namespace).unwrap_or(&none);
        let mut granted = PortSet::default();
        for (namespace, rule) in self.rules_of(id) {
            if !peer.published.is_empty() {
                let anyone = rule.matches_pod(namespace, peer, labels) || rule.matches_address(address);
                if anyone && self.class_state[&id].direction == Direction::Egress {
                    granted.unite(&rule.published_ports_of(peer));
                }
            } else if rule.matches_pod(namespace, peer, labels)
                || self.class_state[&id].direction == Direction::Egress
                    && rule.names_ports_of_addresses()
                    && rule.matches_address(address)
            {
                granted.unite(&rule.ports_of(server.or(Some(peer))));
            }
        }
        granted
    }

    /// Who has the ports that rules of the class name, if that is the same for all peers.
    fn server_of(&self, id: ClassId) -> Option<PodFacts> {
        let class = &self.class_state[&id];
        let named_ports = class.key.named_ports.iter();
        (class.direction == Direction::Ingress).then(|| PodFacts {
            named_ports: named_ports
                .map(|(protocol, name, number)| ((*protocol, name.clone()), *number))
                .collect(),
            ..PodFacts::default()
        })
    }

    /// The rules of a class, each with its policy's namespace.
    fn rules_of(&self, id: ClassId) -> impl Iterator<Item = (&str, &Rule)> {
        let class = &self.class_state[&id];
        let policies = class.key.policies.iter().filter_map(|key| self.policies.get(key));
        policies.flat_map(|policy| {
            let rules = policy.rules(class.direction).unwrap_or_default();
            rules.iter().map(|rule| (policy.namespace.as_str(), rule))
        })
    }
}

fn index<K: std::hash::Hash + Eq + Clone>(keys: &mut HashMap<K, BTreeSet<Key>>, by: &K, key: &Key, present: bool) {
    if present {
        keys.entry(by.clone()).or_default().insert(key.clone());
    } else if let Some(found) = keys.get_mut(by) {
        found.remove(key);
        if found.is_empty() {
            keys.remove(by);
        }
    }
}

#[cfg(test)]
mod tests;
