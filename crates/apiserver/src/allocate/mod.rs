//! Cluster IPs and node ports: claimed in the same transaction that writes their Service, so that several API servers
//! on one store never give out the same one twice.

mod cluster_ip;
mod node_port;

use std::net::Ipv4Addr;
use std::sync::Arc;

use api::{Error, Resource, Value};
use bytes::Bytes;
use store::{Compare, Snapshot, Transaction, Write};

/// Further conditions and writes of a transaction.
#[derive(Default)]
pub struct Claims {
    compares: Vec<Compare>,
    writes: Vec<Write>,
}

/// An IPv4 network of service addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceNetwork {
    pub base: Ipv4Addr,
    pub prefix_length: u8,
}

/// What is given out to Services.
#[derive(Clone, Debug)]
pub struct Services {
    pub network: ServiceNetwork,
    /// First and last port.
    pub node_ports: (u16, u16),
    /// The root of all keys in the store.
    pub root: String,
}

impl Claims {
    pub fn add_to(self, transaction: &mut Transaction) {
        transaction.compares.extend(self.compares);
        transaction.writes.extend(self.writes);
    }

    fn put_new(&mut self, key: String, value: Bytes) {
        let key: Arc<str> = key.into();
        self.compares.push(Compare::Absent { key: key.clone() });
        self.writes.push(Write::Put { key, value, ttl: None });
    }
}

impl Services {
    /// Gives a Service the addresses and ports it wants. Other resources claim nothing.
    pub fn claim(
        &self,
        resource: &Resource,
        value: &mut Value,
        old: Option<&Value>,
        snapshot: &dyn Snapshot,
    ) -> Result<Claims, Error> {
        let mut claims = Claims::default();
        if resource.storage == "services/specs" {
            self.claim_cluster_ip(resource, value, old, snapshot, &mut claims)?;
            self.claim_node_ports(resource, value, old, snapshot, &mut claims)?;
        }
        Ok(claims)
    }

    /// Gives back what a Service had.
    pub fn release(&self, resource: &Resource, value: &Value, snapshot: &dyn Snapshot) -> Claims {
        let mut claims = Claims::default();
        if resource.storage == "services/specs" {
            self.release_cluster_ip(value, &mut claims);
            self.release_node_ports(value, snapshot, &mut claims);
        }
        claims
    }
}

impl ServiceNetwork {
    /// Parses `10.96.0.0/12`; networks smaller than eight addresses or larger than /12 are refused.
    pub fn parse(text: &str) -> Option<ServiceNetwork> {
        let (base, length) = text.split_once('/')?;
        let base: Ipv4Addr = base.parse().ok()?;
        let prefix_length: u8 = length.parse().ok().filter(|length| (12..=29).contains(length))?;
        let mask = u32::MAX << (32 - prefix_length);
        Some(ServiceNetwork {
            base: Ipv4Addr::from(u32::from(base) & mask),
            prefix_length,
        })
    }

    /// How many addresses can be given out: neither the network's own nor its broadcast address.
    pub fn size(self) -> u32 {
        (1 << (32 - self.prefix_length)) - 2
    }

    /// The address at `offset`, counted from 1.
    pub fn address(self, offset: u32) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.base) + offset)
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        let offset = u32::from(address).wrapping_sub(u32::from(self.base));
        (1..=self.size()).contains(&offset)
    }
}

/// A random number to start a search from; collisions are found by the transaction.
fn random(below: u32) -> u32 {
    (uuid::Uuid::new_v4().as_u128() % u128::from(below.max(1))) as u32
}
