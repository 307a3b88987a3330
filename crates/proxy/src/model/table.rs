//! The ports of all Services together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;

use client::Key;
use network::Protocol;

use super::claims::Claims;
use super::{FrontendAddress, ServicePort, Target, keep_order};

/// What every Service has, without what another one has already.
#[derive(Debug, Default)]
pub struct ServiceTable {
    services: HashMap<Key, Vec<ServicePort>>,
    claims: Claims,
}

/// A change of the table: the ports that were so, and those that are so instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub old: Vec<ServicePort>,
    pub new: Vec<ServicePort>,
}

impl ServiceTable {
    /// Makes the given Services' ports what they are now; none for a Service that is gone. Others may change with them:
    /// who waits for what is given back, and who has what turns out to be another Service's own.
    pub fn replace(&mut self, mut services: BTreeMap<Key, Vec<ServicePort>>) -> Step {
        self.claims.extend(&mut services, &self.services);
        for (key, ports) in &mut services {
            let was = self.services.get(key).map(Vec::as_slice).unwrap_or_default();
            keep_order(was, ports);
        }
        let mut step = Step::default();
        for (key, granted) in self.claims.replace(services, &self.services) {
            let was = self.services.remove(&key).unwrap_or_default();
            if granted != was {
                step.old.extend(was);
                step.new.extend(granted.iter().cloned());
            }
            if !granted.is_empty() {
                self.services.insert(key, granted);
            }
        }
        step
    }

    /// The ports of all Services.
    pub fn ports(&self) -> impl Iterator<Item = &ServicePort> {
        self.services.values().flatten()
    }

    /// Where packets of a protocol to that address may be led.
    pub fn endpoints_at(&self, address: FrontendAddress, protocol: Protocol) -> BTreeSet<SocketAddr> {
        let owners = self.claims.owners_of(address, protocol);
        let ports = owners.filter_map(|owner| self.services.get(owner)).flatten();
        let frontends = ports
            .filter(|port| port.protocol == protocol)
            .flat_map(|port| &port.frontends);
        frontends
            .filter(|frontend| frontend.address == address)
            .filter_map(|frontend| match &frontend.target {
                Target::Endpoints(endpoints) => Some(endpoints),
                Target::Reject | Target::Drop => None,
            })
            .flatten()
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests;
