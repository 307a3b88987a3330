//! Ports of the node that a pod wants for itself must be free.

use async_trait::async_trait;

use crate::framework::{Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{HostPort, Pod};

const ANY_ADDRESS: &str = "0.0.0.0";

pub struct NodePorts;

#[async_trait]
impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn pre_filter(&self, pod: &Pod, _nodes: &Nodes) -> PreFilter {
        if pod.demand.host_ports.is_empty() {
            PreFilter::Skip
        } else {
            PreFilter::Check
        }
    }

    fn filter(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let taken = &nodes.host_ports[node];
        let clashes = |wanted: &HostPort| taken.iter().any(|taken| clash(wanted, taken));
        if pod.demand.host_ports.iter().any(clashes) {
            let reason = "node(s) didn't have free ports for the requested pod ports";
            return Err(Rejection::new(self.name(), reason));
        }
        Ok(())
    }
}

fn clash(one: &HostPort, other: &HostPort) -> bool {
    let addresses = one.address == other.address || one.address == ANY_ADDRESS || other.address == ANY_ADDRESS;
    addresses && one.port == other.port && one.protocol == other.protocol
}
