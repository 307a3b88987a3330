//! Ports of the machine that pods hold. Two pods cannot hold the same one, whoever put them on this node.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::pod::Pod;

/// What every pod holds, by UID.
#[derive(Default)]
pub struct HostPorts(Mutex<BTreeMap<String, Vec<HostPort>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort {
    /// Empty for all addresses of the machine.
    address: String,
    protocol: String,
    port: u16,
}

impl HostPorts {
    /// Takes a pod's ports; `false` when another pod holds one of them. A pod that runs already keeps what it has.
    pub fn claim(&self, pod: &Pod, runs_already: bool) -> bool {
        let wanted = ports_of(pod);
        let uid = &pod.metadata.uid;
        let mut held = self.0.lock();
        let free = |wanted: &HostPort| {
            let others = held.iter().filter(|(other, _)| *other != uid);
            !others.flat_map(|(_, ports)| ports).any(|port| port.clashes(wanted))
        };
        if !runs_already && !wanted.iter().all(free) {
            return false;
        }
        if !wanted.is_empty() {
            held.insert(uid.clone(), wanted);
        }
        true
    }

    pub fn release(&self, uid: &str) {
        self.0.lock().remove(uid);
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
        assert!(ports.claim(&pod("a", "", "TCP", 80), false));
        assert!(
            ports.claim(&pod("a", "", "TCP", 80), false),
            "its own ports are no obstacle"
        );
        assert!(
            !ports.claim(&pod("b", "127.0.0.1", "TCP", 80), false),
            "all addresses include this one"
        );
        assert!(ports.claim(&pod("c", "", "UDP", 80), false));
        assert!(ports.claim(&pod("d", "", "TCP", 81), false));
        ports.release("a");
        assert!(ports.claim(&pod("b", "127.0.0.1", "TCP", 80), false));
        assert!(ports.claim(&pod("e", "127.0.0.2", "TCP", 80), false), "another address");
        assert!(!ports.claim(&pod("f", "0.0.0.0", "TCP", 80), false));
        assert!(
            ports.claim(&pod("f", "0.0.0.0", "TCP", 80), true),
            "it was there before the kubelet"
        );
    }
}
