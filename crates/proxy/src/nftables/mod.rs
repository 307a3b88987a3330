//! The backend on nf_tables: keeps one table for each address family in step with the model.
//!
//! Every step is one transaction that changes only what differs. Start with its [`Backend`] methods; the rules' shape is
//! told in `layout`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use network::nft::ruleset::{Chain, Ruleset, changes};
use network::nft::{Batch, Data, Element, Family, Socket, Table};
use network::{Cidr, Protocol, netlink, nft};

use crate::backend::{Backend, BackendError, Wanted};
use crate::model::{ServicePort, Step};
use fragment::Fragment;
use layout::{Group, HAIRPIN, Layout, OWN_PORTS, PROTECTED};

mod fragment;
mod layout;

/// Raised when sets or maps of the same name change their meaning; a table of another layout is replaced whole.
const LAYOUT_VERSION: u32 = 2;
/// What `--proxy-mode` calls this backend.
pub const MODE: &str = "nftables";

/// What makes one node's rules differ from another's on the same machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftablesOptions {
    /// The name of both tables; nobody else's.
    pub table: String,
    /// The blocks of all pods.
    pub cluster_cidrs: Vec<Cidr>,
    /// The blocks of all Services' own addresses: what is not there is rejected. May be empty.
    pub service_cidrs: Vec<Cidr>,
    /// The bit of packets' marks that this proxy uses.
    pub masquerade_bit: u32,
    /// Ports of this machine that no Service leads away from it: those of the node's own components.
    pub reserved_ports: BTreeSet<(Protocol, u16)>,
}

#[derive(Debug, thiserror::Error)]
pub enum NftablesError {
    #[error("failed to open a netlink socket for nftables: {0}")]
    Open(netlink::Error),

    #[error("failed to read the rules of nftables table {table}: {source}")]
    Read { table: String, source: netlink::Error },

    #[error("failed to change the rules of nftables table {table}: {source}")]
    Change { table: String, source: nft::Error },
}

/// The way to the kernel, and what the rules of all Services have in common.
#[derive(Debug)]
pub struct Nftables {
    socket: Socket,
    /// One for each address family that the cluster uses.
    families: Vec<FamilyState>,
}

#[derive(Debug)]
struct FamilyState {
    layout: Layout,
    /// How many frontends each group has.
    groups: BTreeMap<Group, usize>,
    /// How many ports name each pod.
    hairpins: HashMap<IpAddr, usize>,
}

impl Nftables {
    /// Takes over the rules that an earlier process left; the first [`Backend::resync`] compares them.
    pub fn open(options: &NftablesOptions) -> Result<Nftables, NftablesError> {
        let families = layouts(options).into_iter().map(FamilyState::new);
        Ok(Nftables {
            socket: Socket::open().map_err(NftablesError::Open)?,
            families: families.collect(),
        })
    }

    /// The number by which changes of these rules say who made them.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    fn commit(&self, table: &Table, batch: Batch) -> Result<(), NftablesError> {
        batch.commit(&self.socket).map_err(|source| NftablesError::Change {
            table: table.name.clone(),
            source,
        })
    }

    /// What the kernel has of a table that is ours, in the present layout; and the batch that makes it so.
    fn begin(&self, layout: &Layout, wanted: &Ruleset) -> Result<(Batch, Ruleset), NftablesError> {
        let table = &layout.table;
        let error = |source| NftablesError::Read {
            table: table.name.clone(),
            source,
        };
        let comment = format!("services, layout {LAYOUT_VERSION}");
        let mut batch = Batch::new();
        let found = self.socket.table_comment(table).map_err(error)?;
        if found.as_ref() == Some(&comment) {
            return Ok((batch, read(&self.socket, table, wanted).map_err(error)?));
        }
        if found.is_some() {
            batch.remove_table(table);
        }
        batch.add_table(table, Some(&comment));
        Ok((batch, Ruleset::default()))
    }
}

impl Backend for Nftables {
    fn apply(&mut self, step: &Step) -> Result<(), BackendError> {
        for index in 0..self.families.len() {
            let (before, after) = self.families[index].step(&step.old, &step.new);
            let table = &self.families[index].layout.table;
            self.commit(table, changes(table, &before, &after))?;
        }
        Ok(())
    }

    fn protect(&mut self, old: &BTreeSet<SocketAddr>, new: &BTreeSet<SocketAddr>) -> Result<(), BackendError> {
        for FamilyState { layout, .. } in &self.families {
            let (mut before, mut after) = (Ruleset::default(), Ruleset::default());
            add_protected(layout, &mut before, old);
            add_protected(layout, &mut after, new);
            self.commit(&layout.table, changes(&layout.table, &before, &after))?;
        }
        Ok(())
    }

    fn resync(&mut self, wanted: Wanted<'_>) -> Result<(), BackendError> {
        for family in &mut self.families {
            *family = FamilyState::new(family.layout.clone());
            family.count(wanted.services.ports());
        }
        for family in &self.families {
            let table = &family.layout.table;
            let mut rules = family.all(wanted.services.ports());
            add_protected(&family.layout, &mut rules, wanted.protected);
            let (mut batch, found) = self.begin(&family.layout, &rules)?;
            batch.append(changes(table, &found, &rules));
            self.commit(table, batch)?;
        }
        Ok(())
    }
}

fn add_protected(layout: &Layout, rules: &mut Ruleset, endpoints: &BTreeSet<SocketAddr>) {
    let tcp = Protocol::Tcp.number();
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.is_ipv4() == layout.ipv4) {
        let key = Data::new().address(endpoint.ip()).protocol(tcp).port(endpoint.port());
        rules.add_element(PROTECTED, Element::key(key));
    }
}

/// Removes the tables of that name, if there are any.
pub fn remove(table: &str) -> Result<(), NftablesError> {
    let socket = Socket::open().map_err(NftablesError::Open)?;
    let mut batch = Batch::new();
    for family in [Family::Ip, Family::Ip6] {
        let table = Table::new(family, table);
        batch.add_table(&table, None);
        batch.remove_table(&table);
    }
    batch.commit(&socket).map_err(|source| NftablesError::Change {
        table: table.to_owned(),
        source,
    })
}

impl FamilyState {
    fn new(layout: Layout) -> FamilyState {
        FamilyState {
            layout,
            groups: BTreeMap::new(),
            hairpins: HashMap::new(),
        }
    }

    /// Counts ports in.
    fn count<'a>(&mut self, ports: impl Iterator<Item = &'a ServicePort>) {
        let fragment = self.fragment(ports);
        count(&mut self.groups, &fragment.groups, &[]);
        for ip in fragment.hairpins {
            *self.hairpins.entry(ip).or_default() += 1;
        }
    }

    /// Counts ports out and in. Gives the rules that the step is about, as they were and as they are to be.
    fn step(&mut self, old: &[ServicePort], new: &[ServicePort]) -> (Ruleset, Ruleset) {
        let (old, new) = (self.fragment(old), self.fragment(new));
        let (mut before, mut after) = (old.rules, new.rules);
        let groups = self.groups.clone();
        count(&mut self.groups, &new.groups, &old.groups);
        if !groups.keys().eq(self.groups.keys()) {
            before.extend(self.layout.of_groups(&groups));
            after.extend(self.layout.of_groups(&self.groups));
        }
        let touched: BTreeSet<IpAddr> = old.hairpins.iter().chain(&new.hairpins).copied().collect();
        self.add_hairpins(&mut before, &touched);
        for (ips, step) in [(&new.hairpins, 1), (&old.hairpins, -1)] {
            for ip in ips {
                let uses = self.hairpins.entry(*ip).or_default();
                *uses = uses.saturating_add_signed(step);
            }
        }
        self.hairpins.retain(|_, uses| *uses > 0);
        self.add_hairpins(&mut after, &touched);
        (before, after)
    }

    /// All rules, for these ports.
    fn all<'a>(&self, ports: impl Iterator<Item = &'a ServicePort>) -> Ruleset {
        let mut rules = self.layout.fixed();
        for &(protocol, port) in &self.layout.reserved_ports {
            let key = Data::new().protocol(protocol.number()).port(port);
            rules.add_element(OWN_PORTS, Element::key(key));
        }
        rules.extend(self.layout.of_groups(&self.groups));
        rules.extend(self.fragment(ports).rules);
        self.add_hairpins(&mut rules, &self.hairpins.keys().copied().collect());
        rules
    }

    fn fragment<'a>(&self, ports: impl IntoIterator<Item = &'a ServicePort>) -> Fragment {
        let mut fragment = Fragment::default();
        for port in ports {
            fragment.add(&self.layout, port);
        }
        fragment
    }

    fn add_hairpins(&self, rules: &mut Ruleset, candidates: &BTreeSet<IpAddr>) {
        for &ip in candidates.iter().filter(|ip| self.hairpins.contains_key(ip)) {
            let pair = Data::new().address(ip).address(ip);
            rules.add_element(HAIRPIN, Element::key(pair));
        }
    }
}

fn count(groups: &mut BTreeMap<Group, usize>, more: &[Group], fewer: &[Group]) {
    for group in more {
        *groups.entry(*group).or_default() += 1;
    }
    for group in fewer {
        if let Some(members) = groups.get_mut(group) {
            *members -= 1;
        }
    }
    groups.retain(|_, members| *members > 0);
}

/// A family of which neither pods nor Services have addresses needs no rules; if nothing is known, both get them.
fn layouts(options: &NftablesOptions) -> Vec<Layout> {
    let blocks = || options.cluster_cidrs.iter().chain(&options.service_cidrs);
    let used = |ipv4: &bool| blocks().next().is_none() || blocks().any(|block| block.is_ipv4() == *ipv4);
    let layout = |ipv4: bool| {
        let of_family = |blocks: &[Cidr]| blocks.iter().copied().filter(|block| block.is_ipv4() == ipv4).collect();
        Layout {
            ipv4,
            table: Table::new(if ipv4 { Family::Ip } else { Family::Ip6 }, options.table.clone()),
            cluster_cidrs: of_family(&options.cluster_cidrs),
            service_cidrs: of_family(&options.service_cidrs),
            masquerade_bit: options.masquerade_bit,
            reserved_ports: options.reserved_ports.clone(),
        }
    };
    [true, false].into_iter().filter(used).map(layout).collect()
}

/// What a table has, as far as it has to be known: chains by name, and the elements that are ours to keep.
fn read(socket: &Socket, table: &Table, wanted: &Ruleset) -> Result<Ruleset, netlink::Error> {
    let mut found = Ruleset::default();
    for name in socket.chains(table)? {
        found.chains.insert(name, Chain::default());
    }
    for name in socket.sets(table)? {
        let known = wanted.sets.get(&name);
        if known.is_some_and(|set| !set.dynamic) {
            for element in socket.elements(table, &name)? {
                found.add_element(&name, element);
            }
        }
        let set = known.cloned().unwrap_or_else(|| layout::set(&name, &[], None));
        found.add_set(set);
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
