//! The pod network and the ports of nodes.

mod host_ports;
mod neighbours;
mod node;
mod policies;
mod services;

use crate::cases::Case;

pub const CASES: &[Case] = &[
    host_ports::HOST_PORT_STEALS,
    neighbours::ADDRESS_OF_ANOTHER,
    neighbours::SOURCE_OF_ANOTHER,
    node::LOOPBACK_OF_THE_NODE,
    node::PORTS_OF_THE_NODE,
    services::EXTERNAL_ADDRESS,
    policies::ISOLATED_POD,
];
