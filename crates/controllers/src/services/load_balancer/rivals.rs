//! Who else asks for an address and port.

use std::cmp::Reverse;
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
    given: &HashMap<Key, Vec<IpAddr>>,
) -> Option<(&'a Arc<Service>, Port)> {
    let shared = |rival: &Service| ports(service).find(|port| ports(rival).any(|other| other == *port));
    let own = order(service, address, given);
    rivals
        .iter()
        .filter(|rival| asks_for(rival, address) && order(rival, address, given) < own)
        .find_map(|rival| Some((rival, shared(rival)?)))
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
    given: &HashMap<Key, Vec<IpAddr>>,
) -> Option<&'a Arc<Service>> {
    let own = order(service, address, given);
    let mut holders = rivals.iter().filter(|rival| has(rival, address, given));
    holders.find(|rival| order(rival, address, given) < own)
}

/// Whoever has an address comes before those who do not, and older ones before younger ones.
fn order<'a>(
    service: &'a Service,
    address: IpAddr,
    given: &HashMap<Key, Vec<IpAddr>>,
) -> (Reverse<bool>, &'a str, Key) {
    let created = service.metadata.creation_timestamp.as_deref().unwrap_or_default();
    (Reverse(has(service, address, given)), created, service.key())
}

fn has(service: &Service, address: IpAddr, given: &HashMap<Key, Vec<IpAddr>>) -> bool {
    names(service, address)
        || service.status.load_balancer.has(address)
        || given.get(&service.key()).is_some_and(|given| given.contains(&address))
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
