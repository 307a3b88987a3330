//! Cluster IPs and node ports: claimed in the same transaction that writes their Service, so that several API servers
//! on one store never give out the same one twice.

mod cluster_ip;
mod node_port;

use std::net::Ipv4Addr;
use std::sync::Arc;

use api::{Error, FieldError, Fields, Path, Problems, Resource, Value};
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
    /// The networks that addresses are given out of: the server's own, and those of ServiceCIDRs that are ready.
    fn networks(&self, snapshot: &dyn Snapshot) -> Vec<ServiceNetwork> {
        let mut networks = vec![self.network];
        let prefix = format!("{}/servicecidrs/", self.root);
        for entry in snapshot.range(&prefix, &prefix) {
            let range: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
            let conditions = range["status"].list("conditions").iter();
            let mut ready = conditions.filter(|condition| condition.text("type") == "Ready");
            let is_ready = ready.any(|condition| condition.text("status") == "True");
            if !is_ready || range["metadata"].has("deletionTimestamp") {
                continue;
            }
            let cidrs = range["spec"].list("cidrs").iter().filter_map(Value::as_str);
            networks.extend(cidrs.filter_map(ServiceNetwork::parse_added));
        }
        networks.sort_by_key(|network| *network != self.network);
        networks.dedup();
        networks
    }

    /// Whether anything is given out to objects of a resource.
    pub fn concerns(resource: &Resource) -> bool {
        resource.storage == "services/specs"
    }

    /// What no Service can be given, which is told before anything else that may be wrong with it.
    pub fn check(&self, resource: &Resource, value: &Value) -> Result<(), Error> {
        if !Services::concerns(resource) || value["spec"]["type"] == "ExternalName" {
            return Ok(());
        }
        let mut problems = api::kinds::service::address_problems(&value["spec"]);
        if problems.is_empty() {
            problems = family_problems(&value["spec"]);
        }
        if problems.is_empty() {
            problems = node_port::repeated(&value["spec"]);
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Error::invalid(resource, value["metadata"].text("name"), problems)),
        }
    }

    /// Gives a Service the addresses and ports it wants. Other resources claim nothing. In a dry run nobody minds what
    /// others have.
    pub fn claim(
        &self,
        resource: &Resource,
        value: &mut Value,
        old: Option<&Value>,
        snapshot: &dyn Snapshot,
        dry_run: bool,
    ) -> Result<Claims, Error> {
        let mut claims = Claims::default();
        if Services::concerns(resource) {
            self.claim_cluster_ip(resource, value, old, snapshot, dry_run, &mut claims)?;
            self.claim_node_ports(resource, value, old, snapshot, dry_run, &mut claims)?;
        }
        Ok(claims)
    }

    /// Gives back what a Service had.
    pub fn release(&self, resource: &Resource, value: &Value, snapshot: &dyn Snapshot) -> Claims {
        let mut claims = Claims::default();
        if Services::concerns(resource) {
            self.release_cluster_ip(value, &mut claims);
            self.release_node_ports(value, snapshot, &mut claims);
        }
        claims
    }
}

/// There are addresses of version 4 alone. A headless service without a selector takes whatever endpoints it is given.
fn family_problems(spec: &Value) -> Vec<FieldError> {
    if spec.text("clusterIP") == "None" && spec.entries("selector").next().is_none() {
        return Vec::new();
    }
    let mut problems = Problems::default();
    let path = Path::new("spec");
    let several = |list: &str| spec.list(list).len() > 1 && spec.text("ipFamilyPolicy") == "SingleStack";
    for (list, what) in [("ipFamilies", "IP families"), ("clusterIPs", "cluster IPs")] {
        if several(list) {
            let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            problems.invalid(&path, "ipFamilyPolicy", "SingleStack", detail);
            return problems.into_vec();
        }
    }
    for (index, family) in spec.list("ipFamilies").iter().enumerate() {
        if family == "IPv6" {
            let place = path.child("ipFamilies").index(index);
            problems.invalid(&place, "", family.clone(), "not configured on this cluster");
        }
    }
    if spec.text("ipFamilyPolicy") == "RequireDualStack" {
        let detail = "this cluster is not configured for dual-stack services";
        problems.invalid(&path, "ipFamilyPolicy", "RequireDualStack", detail);
    }
    problems.into_vec()
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

    /// A network that an administrator adds, which may be of any size with addresses to give out.
    fn parse_added(text: &str) -> Option<ServiceNetwork> {
        let (base, length) = text.split_once('/')?;
        let base: Ipv4Addr = base.parse().ok()?;
        let prefix_length: u8 = length.parse().ok().filter(|length| (1..=30).contains(length))?;
        Some(ServiceNetwork { base, prefix_length })
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
