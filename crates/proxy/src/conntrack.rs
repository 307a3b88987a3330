//! Forgetting UDP connections that lead to endpoints a Service no longer has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use network::conntrack::{Connection, Conntrack};
use network::{Protocol, netlink};

use crate::model::{FrontendAddress, ServiceTable};

/// Where UDP packets to some places may go now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UdpTargets(BTreeMap<FrontendAddress, BTreeSet<SocketAddr>>);

impl UdpTargets {
    pub fn new(addresses: &BTreeSet<FrontendAddress>, services: &ServiceTable) -> UdpTargets {
        let targets = addresses
            .iter()
            .map(|&address| (address, services.endpoints_at(address, Protocol::Udp)));
        UdpTargets(targets.collect())
    }

    /// Forgets all connections to these places that lead elsewhere than they should. Gives how many.
    pub fn clean(&self) -> Result<usize, netlink::Error> {
        let table = Conntrack::open()?;
        let stale = table.find(|connection| self.is_stale(connection))?;
        for connection in &stale {
            table.remove(connection)?;
        }
        Ok(stale.len())
    }

    fn is_stale(&self, connection: &Connection) -> bool {
        let to = connection.destination;
        let node_port = FrontendAddress::NodePort {
            ipv4: to.is_ipv4(),
            port: to.port(),
        };
        // A port of the node counts only for what was translated: others may listen on that port of other machines.
        let translated = connection.answered_by != to;
        let at_address = self.0.get(&FrontendAddress::Address(to));
        let targets = at_address.or_else(|| self.0.get(&node_port).filter(|_| translated));
        let udp = i32::from(connection.protocol) == libc::IPPROTO_UDP;
        udp && targets.is_some_and(|targets| !targets.contains(&connection.answered_by))
    }
}

impl fmt::Display for UdpTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (address, targets)) in self.0.iter().enumerate() {
            write!(f, "{}{address} →", if index == 0 { "" } else { ", " })?;
            for target in targets {
                write!(f, " {target}")?;
            }
        }
        Ok(())
    }
}
