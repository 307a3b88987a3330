//! Ports of the machine that pods hold. Two pods cannot hold the same one, whoever put them on this node, and none can
//! hold one of the node's own components: packets would be led to the pod before they are heard by anybody here.

use std::collections::{BTreeMap, BTreeSet};

use network::Protocol;
use parking_lot::Mutex;

use crate::pod::Pod;

#[derive(Default)]
pub struct HostPorts {
    reserved: BTreeSet<(Protocol, u16)>,
    /// What every pod holds, by UID.
    held: Mutex<BTreeMap<String, Vec<HostPort>>>,
}

/// Why a pod does not get its ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PortsRefused {
    #[error("Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")]
    Taken,
    #[error(
        "Predicate NodePorts failed: host port {0} is reserved for the node's own components; choose another hostPort"
    )]
    Reserved(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort {
    /// Empty for all addresses of the machine.
    address: String,
    protocol: String,
    port: u16,
}

impl HostPorts {
    pub fn new(reserved: BTreeSet<(Protocol, u16)>) -> HostPorts {
        HostPorts {
            reserved,
            held: Mutex::default(),
        }
    }

    /// Takes a pod's ports, unless another pod holds one of them or the node needs it. A pod that runs already keeps
    /// what it has.
    pub fn claim(&self, pod: &Pod, runs_already: bool) -> Result<(), PortsRefused> {
        let wanted = ports_of(pod);
        let uid = &pod.metadata.uid;
        if !runs_already && let Some(port) = self.reserved_port(pod, &wanted) {
            return Err(PortsRefused::Reserved(format!("{}/{}", port.port, port.protocol)));
        }
        let mut held = self.held.lock();
        let free = |wanted: &HostPort| {
            let others = held.iter().filter(|(other, _)| *other != uid);
            !others.flat_map(|(_, ports)| ports).any(|port| port.clashes(wanted))
        };
        if !runs_already && !wanted.iter().all(free) {
            return Err(PortsRefused::Taken);
        }
        if !wanted.is_empty() {
            held.insert(uid.clone(), wanted);
        }
        Ok(())
    }

    pub fn release(&self, uid: &str) {
        self.held.lock().remove(uid);
    }

    /// The kernel gives a pod in the host's network only ports that are free.
    fn reserved_port<'a>(&self, pod: &Pod, wanted: &'a [HostPort]) -> Option<&'a HostPort> {
        let is_reserved = |wanted: &&HostPort| {
            let same =
                |&(protocol, port): &(Protocol, u16)| wanted.port == port && wanted.protocol == protocol.to_string();
            self.reserved.iter().any(same)
        };
        wanted.iter().find(is_reserved).filter(|_| !pod.spec.host_network)
    }
}

impl HostPort {
    fn clashes(&self, other: &HostPort) -> bool {
        let same_address = self.address.is_empty() || other.address.is_empty() || self.address == other.address;
        same_address && self.protocol == other.protocol && self.port == other.port
    }
}

fn ports_of(pod: &Pod) -> Vec<HostPort> {
    let ports = pod.all_containers().flat_map(|(_, container)| &container.ports);
    let held = |port: &crate::pod::ContainerPort| HostPort {
        address: match port.host_ip.as_str() {
            "0.0.0.0" | "::" => String::new(),
            address => address.to_owned(),
        },
        protocol: match port.protocol.as_str() {
            "" => "TCP".to_owned(),
            protocol => protocol.to_owned(),
        },
        port: port.host_port,
    };
    ports.filter(|port| port.host_port > 0).map(held).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, address: &str, protocol: &str, port: u16) -> Pod {
        let port = json!({ "containerPort": 80, "hostPort": port, "hostIP": address, "protocol": protocol });
        let object = json!({
            "metadata": { "uid": uid, "name": uid }, "spec": { "containers": [{ "name": "c", "ports": [port] }] },
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_port_is_held_by_one_pod_until_it_is_released() {
        let ports = HostPorts::default();
        let claim =
            |uid: &str, address: &str, protocol: &str, port| ports.claim(&pod(uid, address, protocol, port), false);
        assert_eq!(claim("a", "", "TCP", 80), Ok(()));
        assert_eq!(claim("a", "", "TCP", 80), Ok(()), "its own ports are no obstacle");
        assert_eq!(
            claim("b", "127.0.0.1", "TCP", 80),
            Err(PortsRefused::Taken),
            "all addresses include this one"
        );
        assert_eq!(claim("c", "", "UDP", 80), Ok(()));
        assert_eq!(claim("d", "", "TCP", 81), Ok(()));
        ports.release("a");
        assert_eq!(claim("b", "127.0.0.1", "TCP", 80), Ok(()));
        assert_eq!(claim("e", "127.0.0.2", "TCP", 80), Ok(()), "another address");
        assert_eq!(claim("f", "0.0.0.0", "TCP", 80), Err(PortsRefused::Taken));
        assert_eq!(
            ports.claim(&pod("f", "0.0.0.0", "TCP", 80), true),
            Ok(()),
            "it was there before the kubelet"
        );
    }

    #[test]
    fn the_nodes_own_ports_are_no_pods() {
        let ports = HostPorts::new([(Protocol::Tcp, 10250), (Protocol::Udp, 10053)].into());
        let claim = |address: &str, protocol: &str, port| ports.claim(&pod("a", address, protocol, port), false);
        let refused = claim("", "TCP", 10250).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "Predicate NodePorts failed: host port 10250/TCP is reserved for the node's own components; choose another \
             hostPort"
        );
        for (address, protocol, port) in [("127.0.0.1", "TCP", 10250), ("", "", 10250), ("", "UDP", 10053)] {
            assert!(
                matches!(claim(address, protocol, port), Err(PortsRefused::Reserved(_))),
                "{port}"
            );
        }
        assert_eq!(claim("", "UDP", 10250), Ok(()));
        assert_eq!(claim("", "TCP", 10251), Ok(()));
        let mut on_host = pod("b", "", "TCP", 10250);
        on_host.spec.host_network = true;
        assert_eq!(ports.claim(&on_host, false), Ok(()), "the kernel says no itself");
        assert_eq!(
            ports.claim(&pod("c", "", "TCP", 10250), true),
            Ok(()),
            "it was there before the kubelet"
        );
    }
}
