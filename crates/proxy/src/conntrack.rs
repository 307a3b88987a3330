//! Forgetting UDP connections that lead to endpoints a Service no longer has.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

use network::conntrack::{Connection, Conntrack};
use network::{Protocol, netlink};

use crate::model::{Place, ServicePort, Target};

/// Where UDP packets to each place may go now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Udp(HashMap<Place, HashSet<SocketAddr>>);

impl Udp {
    /// The places of Services before and after a change, with what they lead to after it.
    pub fn of(old: &[ServicePort], new: &[ServicePort]) -> Udp {
        let mut places = Udp::default();
        for port in old.iter().chain(new).filter(|port| port.protocol == Protocol::Udp) {
            for frontend in &port.frontends {
                places.0.entry(frontend.place).or_default();
            }
        }
        for port in new.iter().filter(|port| port.protocol == Protocol::Udp) {
            for frontend in &port.frontends {
                if let (Target::Endpoints(endpoints), Some(targets)) =
                    (&frontend.target, places.0.get_mut(&frontend.place))
                {
                    targets.extend(endpoints);
                }
            }
        }
        places
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
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
        let node_port = Place::NodePort {
            ipv4: to.is_ipv4(),
            port: to.port(),
        };
        // A port of the node counts only for what was translated: others may listen on that port of other machines.
        let translated = connection.answered_by != to;
        let at_address = self.0.get(&Place::Address(to));
        let targets = at_address.or_else(|| self.0.get(&node_port).filter(|_| translated));
        let udp = i32::from(connection.protocol) == libc::IPPROTO_UDP;
        udp && targets.is_some_and(|targets| !targets.contains(&connection.answered_by))
    }
}
