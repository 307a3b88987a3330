//! The model's facts as packet rules: one table for each address family, and one for the frames of the bridge.
//!
//! Every step is one transaction that changes elements of sets and nothing else. The rules' shape is told in `layout`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use network::nft::ruleset::{Chain, Ruleset, changes};
use network::nft::{Batch, Data, Element, Socket, Table};
use network::{netlink, nft};

use crate::model::{Direction, Facts, Step};
use layout::{Layout, Names, PORTS, SELF};

mod layout;

/// Raised when sets or maps of the same name change their meaning; a table of another layout is replaced whole.
const LAYOUT_VERSION: u32 = 1;

/// What makes one node's rules differ from another's on the same machine.
#[derive(Clone)]
pub struct NftablesOptions {
    /// The name of the tables; nobody else's.
    pub table: String,
    /// The bridge that this node's pods are at.
    pub bridge: String,
    /// The host's interface to the pod of this node that has an address.
    pub interface_of: InterfaceOf,
}

/// Finds the host's interface to a pod.
pub type InterfaceOf = Arc<dyn Fn(IpAddr) -> Option<String> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum NftablesError {
    #[error("failed to open a netlink socket for nftables: {0}")]
    Open(netlink::Error),

    #[error("failed to read the rules of nftables table {table}: {source}")]
    Read { table: String, source: netlink::Error },

    #[error("failed to change the rules of nftables table {table}: {source}")]
    Change { table: String, source: nft::Error },
}

/// The way to the kernel.
pub struct Nftables {
    socket: Socket,
    families: [Layout; 2],
    frames: Table,
    interface_of: InterfaceOf,
    /// The isolated pods that are in the tables, each with the interface that it is behind.
    members: Members,
}

type Members = BTreeMap<(Direction, IpAddr), Option<String>>;

impl Nftables {
    /// Takes over the rules that an earlier process left; the first [`Nftables::resync`] compares them.
    pub fn open(options: &NftablesOptions) -> Result<Nftables, NftablesError> {
        let [ip, ip6, frames] = layout::tables(&options.table);
        let layout = |ipv4, table| Layout {
            ipv4,
            table,
            bridge: options.bridge.clone(),
        };
        Ok(Nftables {
            socket: Socket::open().map_err(NftablesError::Open)?,
            families: [layout(true, ip), layout(false, ip6)],
            frames,
            interface_of: options.interface_of.clone(),
            members: Members::new(),
        })
    }

    /// Makes a step true, in one transaction. After an error the kernel has what it had, and only
    /// [`Nftables::resync`] helps.
    pub fn apply(&mut self, step: &Step) -> Result<(), NftablesError> {
        let mut members = self.members.clone();
        members.retain(|member, _| !step.old.members.contains_key(member));
        members.extend(self.interfaces(&step.new));
        let mut batch = Batch::new();
        for layout in &self.families {
            let (mut before, mut after) = (elements(layout, &step.old), elements(layout, &step.new));
            before.extend(pairs(layout, &self.members));
            after.extend(pairs(layout, &members));
            batch.append(changes(&layout.table, &before, &after));
        }
        batch.append(changes(&self.frames, &ports(&self.members), &ports(&members)));
        self.commit(batch)?;
        self.members = members;
        Ok(())
    }

    /// Compares all rules with the kernel's and mends what differs.
    pub fn resync(&mut self, facts: &Facts) -> Result<(), NftablesError> {
        let members = self.interfaces(facts);
        let mut batch = Batch::new();
        for layout in &self.families {
            let mut wanted = layout.fixed();
            wanted.extend(elements(layout, facts));
            wanted.extend(pairs(layout, &members));
            batch.append(self.mend(&layout.table, &wanted)?);
        }
        let mut wanted = layout::of_frames();
        wanted.extend(ports(&members));
        batch.append(self.mend(&self.frames, &wanted)?);
        self.commit(batch)?;
        self.members = members;
        Ok(())
    }

    /// The number by which changes of these rules say who made them.
    pub fn port_id(&self) -> u32 {
        self.socket.port_id()
    }

    fn commit(&self, batch: Batch) -> Result<(), NftablesError> {
        batch.commit(&self.socket).map_err(|source| NftablesError::Change {
            table: self.frames.name.clone(),
            source,
        })
    }

    fn mend(&self, table: &Table, wanted: &Ruleset) -> Result<Batch, NftablesError> {
        let error = |source| NftablesError::Read {
            table: table.name.clone(),
            source,
        };
        let comment = format!("network policies, layout {LAYOUT_VERSION}");
        let mut batch = Batch::new();
        let found = self.socket.table_comment(table).map_err(error)?;
        if found.as_ref() == Some(&comment) {
            let found = read(&self.socket, table, wanted).map_err(error)?;
            batch.append(changes(table, &found, wanted));
            return Ok(batch);
        }
        if found.is_some() {
            batch.remove_table(table);
        }
        batch.add_table(table, Some(&comment));
        batch.append(changes(table, &Ruleset::default(), wanted));
        Ok(batch)
    }

    fn interfaces(&self, facts: &Facts) -> Members {
        let members = facts.members.keys();
        members.map(|member| (*member, (self.interface_of)(member.1))).collect()
    }
}

/// Removes the tables of that name, if there are any.
pub fn remove(name: &str) -> Result<(), NftablesError> {
    let socket = Socket::open().map_err(NftablesError::Open)?;
    let mut batch = Batch::new();
    for table in layout::tables(name) {
        batch.add_table(&table, None);
        batch.remove_table(&table);
    }
    batch.commit(&socket).map_err(|source| NftablesError::Change {
        table: name.to_owned(),
        source,
    })
}

/// The elements that facts are in the tables of one address family.
fn elements(layout: &Layout, facts: &Facts) -> Ruleset {
    let mut rules = Ruleset::default();
    let of_family = |address: &IpAddr| address.is_ipv4() == layout.ipv4;
    let number = |number: u32| Data::new().mark(number);
    for ((direction, address), class) in &facts.members {
        if of_family(address) {
            let element = Element::data(Data::new().address(*address), number(class.0));
            rules.add_element(Names::of_direction(*direction).pods, element);
        }
    }
    for ((direction, class, address), grant) in &facts.peers {
        if of_family(address) {
            let element = Element::data(number(class.0).address(*address), number(grant.0));
            rules.add_element(Names::of_direction(*direction).peers, element);
        }
    }
    for ((direction, class, range), grant) in &facts.blocks {
        if range.is_ipv4() == layout.ipv4 {
            let element = Element {
                key_end: Some(number(class.0).address(range.last).bytes()),
                ..Element::data(number(class.0).address(range.first), number(grant.0))
            };
            rules.add_element(Names::of_direction(*direction).blocks, element);
        }
    }
    for (grant, ports) in &facts.grants {
        let mut add = |protocols: (u8, u8), (first, last): (u16, u16)| {
            let key = |protocol, port| number(grant.0).protocol(protocol).port(port);
            let element = Element {
                key_end: Some(key(protocols.1, last).bytes()),
                ..Element::key(key(protocols.0, first))
            };
            rules.add_element(PORTS, element);
        };
        if ports.is_everything() {
            add((0, u8::MAX), (0, u16::MAX));
        }
        for (protocol, first, last) in ports.ranges() {
            let protocol = protocol.number();
            add((protocol, protocol), (first, last));
        }
    }
    rules
}

/// Isolated pods, who may still reach themselves.
fn pairs(layout: &Layout, members: &Members) -> Ruleset {
    let mut rules = Ruleset::default();
    let addresses = members.keys().map(|(_, address)| *address);
    for address in addresses.filter(|address| address.is_ipv4() == layout.ipv4) {
        let both = Data::new().address(address).address(address);
        rules.add_element(SELF, Element::key(both));
    }
    rules
}

/// The interfaces of isolated pods.
fn ports(members: &Members) -> Ruleset {
    let mut rules = Ruleset::default();
    for ((direction, _), interface) in members {
        if let Some(interface) = interface {
            let element = Element::key(Data::new().interface(interface));
            rules.add_element(Names::of_direction(*direction).ports, element);
        }
    }
    rules
}

/// What a table has: chains by name, and the elements of the sets that are ours.
fn read(socket: &Socket, table: &Table, wanted: &Ruleset) -> Result<Ruleset, netlink::Error> {
    let mut found = Ruleset::default();
    for name in socket.chains(table)? {
        found.chains.insert(name, Chain::default());
    }
    for name in socket.sets(table)? {
        let known = wanted.sets.get(&name);
        if known.is_some() {
            for element in socket.elements(table, &name)? {
                found.add_element(&name, element);
            }
        }
        let set = known.cloned().unwrap_or_else(|| layout::set(&name, &[], None));
        found.add_set(set);
    }
    Ok(found)
}
