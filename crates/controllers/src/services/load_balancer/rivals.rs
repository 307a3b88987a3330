//! Who else asks for an address and port.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use client::{Cache, Key, Object};

use super::is_ours;
use crate::services::service::Service;

/// Files Services that have external addresses under each of their ports.
const BY_PORT: &str = "external-port";

/// A protocol and a port.
pub type Port = (String, u16);

/// What this controller decided for a Service since it started.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub addresses: Vec<IpAddr>,
    /// The ports that it has these addresses for.
    pub ports: Vec<Port>,
}

pub fn index(services: &Cache<Service>) {
    services.add_index(BY_PORT, |service| match is_candidate(service) {
        true => ports(service).map(|port| name(&port)).collect(),
        false => Vec::new(),
    });
}

/// The other Services that ask for one of a Service's ports at some address.
pub fn of(services: &Cache<Service>, service: &Service) -> Vec<Arc<Service>> {
    let asking = ports(service).flat_map(|port| services.by(BY_PORT, &name(&port)));
    let others: BTreeMap<Key, Arc<Service>> = asking
        .filter(|other| other.key() != service.key())
        .map(|other| (other.key(), other))
        .collect();
    others.into_values().collect()
}

/// The Service that has one of these ports at an address before `service` does.
pub fn owner<'a>(
    service: &Service,
    address: IpAddr,
    rivals: &'a [Arc<Service>],
    given: &HashMap<Key, Given>,
) -> Option<(&'a Arc<Service>, Port)> {
    let precedes = |rival: &Service, port: &Port| {
        let is_shared = ports(rival).any(|other| other == *port);
        is_shared && order(rival, address, Some(port), given) < order(service, address, Some(port), given)
    };
    rivals
        .iter()
        .filter(|rival| asks_for(rival, address))
        .find_map(|rival| Some((rival, ports(service).find(|port| precedes(rival, port))?)))
}

/// All other Services that have external addresses.
pub fn all(services: &Cache<Service>, service: &Service) -> Vec<Arc<Service>> {
    let mut all = services.all();
    all.retain(|other| is_candidate(other) && other.key() != service.key());
    all
}

pub fn ports(service: &Service) -> impl Iterator<Item = Port> {
    service.spec.ports.iter().map(|port| {
        let protocol = if port.protocol.is_empty() {
            "TCP"
        } else {
            &port.protocol
        };
        (protocol.to_owned(), port.port)
    })
}

/// The Service that has a whole address before `service` does.
pub fn holder<'a>(
    service: &Service,
    address: IpAddr,
    rivals: &'a [Arc<Service>],
    given: &HashMap<Key, Given>,
) -> Option<&'a Arc<Service>> {
    let own = order(service, address, None, given);
    let claimed = |rival: &&Arc<Service>| title(rival, address, None, given) != Title::None;
    let mut holders = rivals.iter().filter(claimed);
    holders.find(|rival| order(rival, address, None, given) < own)
}

/// By what right a Service has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Title {
    /// This controller gave it the address, for the port in question.
    Given,
    /// Its status says so, and this controller has not decided about it since it started. Users may be able to write the
    /// status, so it counts for nothing else.
    Inherited,
    /// It names the address in `externalIPs`, which proxies obey unless another has it.
    Named,
    None,
}

/// By title first, and older ones before younger ones: nothing that a user writes gives precedence over those who were
/// given an address.
fn order<'a>(
    service: &'a Service,
    address: IpAddr,
    port: Option<&Port>,
    given: &HashMap<Key, Given>,
) -> (Title, &'a str, Key) {
    let created = service.metadata.creation_timestamp.as_deref().unwrap_or_default();
    (title(service, address, port, given), created, service.key())
}

/// With a port: that port of the address; without one: the whole address.
fn title(service: &Service, address: IpAddr, port: Option<&Port>, given: &HashMap<Key, Given>) -> Title {
    let is_given = |given: &Given| {
        let has_port = port.is_none_or(|port| given.ports.contains(port));
        has_port && given.addresses.contains(&address)
    };
    match given.get(&service.key()) {
        Some(given) if is_given(given) => Title::Given,
        None if service.status.load_balancer.has(address) => Title::Inherited,
        _ if names(service, address) => Title::Named,
        _ => Title::None,
    }
}

/// A Service that names its addresses itself has no others.
fn asks_for(service: &Service, address: IpAddr) -> bool {
    is_ours(service) && !service.metadata.is_deleting() || names(service, address)
}

fn names(service: &Service, address: IpAddr) -> bool {
    let mut named = service.spec.external_ips.iter();
    named.any(|text| text.parse() == Ok(address))
}

fn is_candidate(service: &Service) -> bool {
    is_ours(service) || !service.spec.external_ips.is_empty()
}

fn name((protocol, port): &Port) -> String {
    format!("{protocol}/{port}")
}
