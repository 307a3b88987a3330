//! The cluster's names, by version 1.1.0 of Kubernetes' DNS specification. Pure: a question and caches in, records out.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use client::Cache;

use crate::objects::{Endpoint, EndpointSlice, Service};
use crate::wire::{Data, Record, kind};

/// How long clients may remember an answer; upstream's default.
const TTL_S: u32 = 5;
const SCHEMA_VERSION: &str = "1.1.0";

/// What the zone is made of.
#[derive(Clone)]
pub struct Zone {
    /// The cluster's domain, such as `cluster.local`.
    pub domain: String,
    pub services: Arc<Cache<Service>>,
    pub slices: Arc<Cache<EndpointSlice>>,
}

/// What is known about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name is not in the zone.
    Elsewhere,
    /// There is no such name.
    NoName,
    /// The name exists; what was asked for may not.
    Records {
        answers: Vec<Record>,
        /// Addresses of the names in the answers.
        additional: Vec<Record>,
    },
    /// The name stands for another, outside of the zone.
    Alias { record: Record, target: String },
}

const BY_SERVICE: &str = "service";
const BY_ADDRESS: &str = "address";

impl Zone {
    pub fn new(domain: &str, services: Arc<Cache<Service>>, slices: Arc<Cache<EndpointSlice>>) -> Zone {
        services.add_index(BY_ADDRESS, |service: &Service| {
            service.addresses().iter().map(IpAddr::to_string).collect()
        });
        slices.add_index(BY_SERVICE, |slice: &EndpointSlice| {
            slice.service().map(|key| key.to_string()).into_iter().collect()
        });
        slices.add_index(BY_ADDRESS, |slice: &EndpointSlice| {
            let addresses = slice.endpoints.iter().filter_map(Endpoint::address);
            addresses.map(|address| address.to_string()).collect()
        });
        Zone {
            domain: domain.trim_matches('.').to_ascii_lowercase(),
            services,
            slices,
        }
    }

    /// What the zone has of one type under a name in lower case.
    pub fn answer(&self, name: &str, wanted: u16) -> Answer {
        if let Some(ip) = reverse_address(name) {
            return self.reverse(name, ip, wanted);
        }
        let Some(labels) = self.labels(name) else {
            return Answer::Elsewhere;
        };
        let lookup = Lookup { name, wanted };
        match labels.as_slice() {
            [] => lookup.all(vec![
                self.start_of_authority().data,
                Data::Ns(format!("ns.dns.{}", self.domain)),
            ]),
            ["dns-version"] => lookup.all(vec![Data::Txt(SCHEMA_VERSION.to_owned())]),
            ["svc"] | ["pod"] => lookup.all(Vec::new()),
            [namespace, "svc" | "pod"] => match self.services.list(namespace).is_empty() {
                true => Answer::NoName,
                false => lookup.all(Vec::new()),
            },
            [address, _namespace, "pod"] => match dashed_address(address) {
                Some(ip) => lookup.all(vec![address_data(ip)]),
                None => Answer::NoName,
            },
            [service, namespace, "svc"] => self.service(&lookup, namespace, service),
            [protocol @ ("_tcp" | "_udp" | "_sctp"), service, namespace, "svc"] => {
                self.ports(&lookup, namespace, service, None, protocol)
            }
            [host, service, namespace, "svc"] => self.endpoint(&lookup, namespace, service, host),
            [port, protocol, service, namespace, "svc"] => {
                self.ports(&lookup, namespace, service, Some(port), protocol)
            }
            _ => Answer::NoName,
        }
    }

    /// The record that goes with every denial.
    pub fn start_of_authority(&self) -> Record {
        Record {
            name: self.domain.clone(),
            ttl_s: TTL_S,
            data: Data::Soa {
                server: format!("ns.dns.{}", self.domain),
                contact: format!("hostmaster.{}", self.domain),
                serial: self.services.len() as u32,
            },
        }
    }

    /// The labels before the domain, or nothing for names of others.
    fn labels<'a>(&self, name: &'a str) -> Option<Vec<&'a str>> {
        let rest = name.strip_suffix(&self.domain)?;
        if rest.is_empty() {
            return Some(Vec::new());
        }
        Some(rest.strip_suffix('.')?.split('.').collect())
    }

    fn service(&self, lookup: &Lookup<'_>, namespace: &str, name: &str) -> Answer {
        let Some(service) = self.services.get(namespace, name) else {
            return Answer::NoName;
        };
        if let Some(target) = service.external_name() {
            return lookup.alias(target, self);
        }
        let own = service.addresses();
        if lookup.wanted == kind::SRV {
            return self.ports(lookup, namespace, name, None, "");
        }
        let addresses = if own.is_empty() {
            self.ready_addresses(namespace, name)
        } else {
            own
        };
        lookup.all(addresses.into_iter().map(address_data).collect())
    }

    /// A pod of a Service, by its hostname or by its address with dashes.
    fn endpoint(&self, lookup: &Lookup<'_>, namespace: &str, service: &str, host: &str) -> Answer {
        let mut addresses = Vec::new();
        for slice in self.slices_of(namespace, service) {
            let named = slice
                .endpoints
                .iter()
                .filter(|endpoint| endpoint.is_ready() && endpoint.label() == host);
            addresses.extend(named.filter_map(Endpoint::address));
        }
        if addresses.is_empty() {
            return Answer::NoName;
        }
        addresses.sort();
        addresses.dedup();
        lookup.all(addresses.into_iter().map(address_data).collect())
    }

    /// The ports of a Service: all of them, or those of a name and protocol given as `_http` and `_tcp`.
    fn ports(&self, lookup: &Lookup<'_>, namespace: &str, name: &str, port: Option<&str>, protocol: &str) -> Answer {
        let Some(service) = self.services.get(namespace, name) else {
            return Answer::NoName;
        };
        let wanted = |offered: &crate::objects::Port| {
            let named = port.is_none_or(|port| port.strip_prefix('_') == Some(&offered.name.to_ascii_lowercase()));
            let spoken = if offered.protocol.is_empty() {
                "tcp"
            } else {
                &offered.protocol
            };
            named && (protocol.is_empty() || protocol.strip_prefix('_') == Some(&spoken.to_ascii_lowercase()))
        };
        let full_name = format!("{name}.{namespace}.svc.{}", self.domain);
        let mut found: Vec<(String, u16, IpAddr)> = Vec::new();
        let own = service.addresses();
        if own.is_empty() {
            for slice in self.slices_of(namespace, name) {
                let numbers: Vec<u16> = slice
                    .ports
                    .iter()
                    .filter(|port| wanted(port))
                    .filter_map(|port| port.port)
                    .collect();
                for endpoint in slice.endpoints.iter().filter(|endpoint| endpoint.is_ready()) {
                    let target = format!("{}.{full_name}", endpoint.label());
                    let pairs = numbers
                        .iter()
                        .filter_map(|&number| Some((target.clone(), number, endpoint.address()?)));
                    found.extend(pairs);
                }
            }
        } else {
            let numbers = service
                .spec
                .ports
                .iter()
                .filter(|port| wanted(port))
                .filter_map(|port| port.port);
            for number in numbers {
                found.extend(own.iter().map(|&ip| (full_name.clone(), number, ip)));
            }
        }
        match (found.is_empty(), port.is_some()) {
            (true, true) => Answer::NoName,
            _ => lookup.services(found),
        }
    }

    /// The name that an address has: its Service, or a pod's below a headless Service.
    fn reverse(&self, name: &str, ip: IpAddr, wanted: u16) -> Answer {
        let address = ip.to_string();
        let services = self.services.by(BY_ADDRESS, &address);
        let mut names: Vec<String> = services
            .iter()
            .map(|service| {
                format!(
                    "{}.{}.svc.{}",
                    service.metadata.name, service.metadata.namespace, self.domain
                )
            })
            .collect();
        for slice in self.slices.by(BY_ADDRESS, &address) {
            let Some(key) = slice.service() else { continue };
            let headless = self
                .services
                .get_key(key.as_str())
                .is_some_and(|service| service.addresses().is_empty());
            let here = slice.endpoints.iter().filter(|endpoint| endpoint.address() == Some(ip));
            for endpoint in here.filter(|endpoint| endpoint.is_ready() && headless) {
                names.push(format!(
                    "{}.{}.{}.svc.{}",
                    endpoint.label(),
                    key.name(),
                    key.namespace(),
                    self.domain
                ));
            }
        }
        names.sort();
        names.dedup();
        match names.is_empty() {
            true => Answer::Elsewhere,
            false => Lookup { name, wanted }.all(names.into_iter().map(Data::Ptr).collect()),
        }
    }

    fn slices_of(&self, namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>> {
        self.slices.by(BY_SERVICE, &format!("{namespace}/{service}"))
    }

    fn ready_addresses(&self, namespace: &str, service: &str) -> Vec<IpAddr> {
        let slices = self.slices_of(namespace, service);
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        let mut addresses: Vec<IpAddr> = endpoints
            .filter(|endpoint| endpoint.is_ready())
            .filter_map(Endpoint::address)
            .collect();
        addresses.sort();
        addresses.dedup();
        addresses
    }
}

/// One question about one name.
struct Lookup<'a> {
    name: &'a str,
    wanted: u16,
}

impl Lookup<'_> {
    /// Those of all the name's records that were asked for.
    fn all(&self, data: Vec<Data>) -> Answer {
        let asked = |data: &Data| self.wanted == kind::ANY || data.kind() == self.wanted;
        Answer::Records {
            answers: data
                .into_iter()
                .filter(asked)
                .map(|data| record(self.name, data))
                .collect(),
            additional: Vec::new(),
        }
    }

    /// Ports with their targets, and the targets' addresses beside them.
    fn services(&self, found: Vec<(String, u16, IpAddr)>) -> Answer {
        if self.wanted != kind::SRV && self.wanted != kind::ANY {
            return self.all(Vec::new());
        }
        let mut ports: Vec<(&str, u16)> = found.iter().map(|(target, port, _)| (target.as_str(), *port)).collect();
        ports.sort();
        ports.dedup();
        let weight = (100 / ports.len().max(1)).max(1) as u16;
        let answers = ports.into_iter().map(|(target, port)| {
            let target = target.to_owned();
            record(self.name, Data::Srv { port, weight, target })
        });
        let mut additional: Vec<Record> = Vec::new();
        for (target, _, ip) in &found {
            let address = record(target, address_data(*ip));
            if !additional.contains(&address) {
                additional.push(address);
            }
        }
        Answer::Records {
            answers: answers.collect(),
            additional,
        }
    }

    /// An alias within the zone is followed at once; others have to be asked for.
    fn alias(&self, target: String, zone: &Zone) -> Answer {
        let record = record(self.name, Data::Cname(target.clone()));
        if self.wanted == kind::CNAME || self.wanted == kind::ANY {
            return Answer::Records {
                answers: vec![record],
                additional: Vec::new(),
            };
        }
        // An alias of an alias is not followed, so that two Services that name each other do no harm.
        let points_on = zone.labels(&target).is_some_and(|labels| match labels.as_slice() {
            [service, namespace, "svc"] => {
                let service = zone.services.get(namespace, service);
                service.is_some_and(|service| service.external_name().is_some())
            }
            _ => false,
        });
        let within = if points_on {
            Answer::NoName
        } else {
            zone.answer(&target, self.wanted)
        };
        match within {
            Answer::Elsewhere => Answer::Alias { record, target },
            Answer::Records { answers, additional } => Answer::Records {
                answers: [vec![record], answers].concat(),
                additional,
            },
            Answer::NoName | Answer::Alias { .. } => Answer::Records {
                answers: vec![record],
                additional: Vec::new(),
            },
        }
    }
}

fn record(name: &str, data: Data) -> Record {
    Record {
        name: name.to_owned(),
        ttl_s: TTL_S,
        data,
    }
}

fn address_data(ip: IpAddr) -> Data {
    match ip {
        IpAddr::V4(ip) => Data::A(ip),
        IpAddr::V6(ip) => Data::Aaaa(ip),
    }
}

/// `10-244-0-5`, or `fd00--5`.
fn dashed_address(label: &str) -> Option<IpAddr> {
    let ipv4 = label.replace('-', ".").parse().ok();
    ipv4.or_else(|| label.replace('-', ":").parse().ok())
}

/// `5.0.244.10.in-addr.arpa`, or 32 digits and `ip6.arpa`.
fn reverse_address(name: &str) -> Option<IpAddr> {
    if let Some(rest) = name.strip_suffix(".in-addr.arpa") {
        let forward: Vec<&str> = rest.split('.').rev().collect();
        return forward.join(".").parse().ok();
    }
    let digits: Vec<&str> = name.strip_suffix(".ip6.arpa")?.split('.').rev().collect();
    if digits.len() != 32 || digits.iter().any(|digit| digit.len() != 1) {
        return None;
    }
    u128::from_str_radix(&digits.concat(), 16)
        .ok()
        .map(|bits| Ipv6Addr::from_bits(bits).into())
}

#[cfg(test)]
mod tests;
