//! The part of the rules that one port of a Service adds.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use network::nft::matching::{Side, address_registers, bounds, equal, load_address};
use network::nft::ruleset::Ruleset;
use network::nft::{Data, Element, Expression, Register, Set, Verdict};
use network::{Cidr, Protocol};

use super::layout::{ALLOWED, Action, Group, Layout, RESTRICTED, View, set, verdict};
use crate::model::{Clients, Frontend, FrontendAddress, ServicePort, Target};

/// What one or more ports add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Elements, and the chains and sets of sticky Services.
    pub rules: Ruleset,
    /// One for each frontend.
    pub groups: Vec<Group>,
    /// Pods that may reach themselves; several Services may name the same.
    pub hairpins: Vec<IpAddr>,
}

/// A frontend's destination as rules look it up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Destination {
    view: View,
    key: Vec<u8>,
}

/// Where packets to the frontend are looked up.
fn destination(protocol: Protocol, frontend: &Frontend) -> Destination {
    let (view, data) = match (frontend.address, frontend.clients) {
        (FrontendAddress::Address(address), Clients::Anyone) => (View::Cluster, Data::new().address(address.ip())),
        (FrontendAddress::Address(address), Clients::Outside) => {
            (View::ClusterOutside, Data::new().address(address.ip()))
        }
        (FrontendAddress::NodePort { .. }, Clients::Anyone) => (View::Node, Data::new()),
        (FrontendAddress::NodePort { .. }, Clients::Outside) => (View::NodeOutside, Data::new()),
    };
    let port = match frontend.address {
        FrontendAddress::Address(address) => address.port(),
        FrontendAddress::NodePort { port, .. } => port,
    };
    let key = data.protocol(protocol.number()).port(port).bytes();
    Destination { view, key }
}

impl Fragment {
    pub fn add(&mut self, layout: &Layout, port: &ServicePort) {
        let of_family = |frontend: &&Frontend| frontend.address.is_ipv4() == layout.ipv4;
        for frontend in port.frontends.iter().filter(of_family) {
            self.add_frontend(layout, port, frontend);
        }
        self.hairpins
            .extend(port.local.iter().filter(|ip| ip.is_ipv4() == layout.ipv4));
    }

    fn add_frontend(&mut self, layout: &Layout, port: &ServicePort, frontend: &Frontend) {
        let at = destination(port.protocol, frontend);
        let action = match (&frontend.target, port.affinity_s) {
            (Target::Reject, _) => Action::Reject,
            (Target::Drop, _) => Action::Drop,
            (Target::Endpoints(_), Some(_)) => Action::Sticky,
            (Target::Endpoints(endpoints), None) => Action::Pick {
                count: endpoints.len() as u32,
                masquerade: frontend.masquerade,
            },
        };
        let group = Group { view: at.view, action };
        let mut member = element(at.key.clone()).comment(port.name.clone());
        if let (Target::Endpoints(endpoints), Some(timeout_s)) = (&frontend.target, port.affinity_s) {
            let chain = sticky_name(port.protocol, frontend);
            member.value = Some(network::nft::Value::Verdict(Verdict::Goto(chain.clone())));
            self.add_sticky(layout, frontend, &chain, endpoints, timeout_s);
        } else if let Target::Endpoints(endpoints) = &frontend.target {
            self.add_endpoints(&at, endpoints);
        }
        self.rules.add_element(&group.name(), member);
        self.groups.push(group);
        self.add_restrictions(&at, &frontend.allowed);
    }

    fn add_endpoints(&mut self, at: &Destination, endpoints: &[SocketAddr]) {
        for (number, endpoint) in (0u32..).zip(endpoints) {
            let key = [&at.key[..], &number.to_ne_bytes()].concat();
            let value = Data::new().address(endpoint.ip()).port(endpoint.port()).bytes();
            let element = Element {
                value: Some(network::nft::Value::Data(value)),
                ..element(key)
            };
            self.rules.add_element(at.view.endpoints(), element);
        }
    }

    fn add_restrictions(&mut self, at: &Destination, allowed: &[Cidr]) {
        if allowed.is_empty() {
            return;
        }
        self.rules.add_element(RESTRICTED, element(at.key.clone()));
        for block in outermost(allowed) {
            let (first, last) = bounds(block);
            let with = |client: IpAddr| [&at.key[..], &Data::new().address(client).bytes()].concat();
            let range = Element {
                key_end: Some(with(last)),
                ..element(with(first))
            };
            self.rules.add_element(ALLOWED, range);
        }
    }

    /// A chain that leads a known client to its endpoint and others to a random one; and for each endpoint a chain
    /// that leads there, and the set of its clients.
    fn add_sticky(
        &mut self,
        layout: &Layout,
        frontend: &Frontend,
        chain: &str,
        endpoints: &[SocketAddr],
        timeout_s: u32,
    ) {
        let client = Register(0);
        let load_client = || load_address(Side::Source, layout.ipv4, client);
        let names: Vec<String> = endpoints
            .iter()
            .map(|endpoint| format!("{chain}-{}", plain(*endpoint)))
            .collect();
        let mut rules: Vec<Vec<Expression>> = layout.mark(frontend.masquerade).into_iter().collect();
        for name in &names {
            let known = Expression::InSet {
                set: name.clone(),
                key: client,
                inverted: false,
            };
            rules.push(vec![load_client(), known, verdict(Verdict::Goto(name.clone()))]);
        }
        for (left, name) in (1..=names.len() as u32).rev().zip(&names) {
            let random = Expression::Random {
                modulus: left,
                into: Register(0),
            };
            let chosen = equal(Register(0), vec![0; 4]);
            rules.push(vec![random, chosen, verdict(Verdict::Goto(name.clone()))]);
        }
        self.rules.add_chain(chain, None, rules);
        for (name, &endpoint) in names.iter().zip(endpoints) {
            let remember = Expression::Remember {
                set: name.clone(),
                key: client,
                timeout_ms: u64::from(timeout_s) * 1000,
            };
            let rules = vec![vec![load_client(), remember], lead_to(layout, endpoint)];
            self.rules.add_chain(name.clone(), None, rules);
            self.rules.add_set(Set {
                dynamic: true,
                size: Some(MAX_CLIENTS),
                ..set(name, &[layout.address()], None)
            });
        }
    }
}

/// Clients of an endpoint that are remembered at most: anybody may send packets in any number of names. A client that
/// does not fit is led to a random endpoint, as without affinity.
const MAX_CLIENTS: u32 = 65_535;

fn lead_to(layout: &Layout, endpoint: SocketAddr) -> Vec<Expression> {
    let start = Register(0);
    vec![
        Expression::Immediate {
            value: Data::new().address(endpoint.ip()).bytes(),
            into: start,
        },
        Expression::Immediate {
            value: endpoint.port().to_be_bytes().to_vec(),
            into: start.plus(address_registers(layout.ipv4)),
        },
        layout.to_endpoint(start),
    ]
}

fn element(key: Vec<u8>) -> Element {
    Element {
        key,
        key_end: None,
        value: None,
        comment: None,
    }
}

fn sticky_name(protocol: Protocol, frontend: &Frontend) -> String {
    let protocol = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    let place = match frontend.address {
        FrontendAddress::Address(address) => plain(address),
        FrontendAddress::NodePort { port, .. } => format!("node-{port}"),
    };
    let clients = match frontend.clients {
        Clients::Anyone => "",
        Clients::Outside => "-outside",
    };
    format!("sticky-{place}-{protocol}{clients}")
}

/// An address as part of a name that `nft` would also accept: colons are for its own grammar.
fn plain(address: SocketAddr) -> String {
    format!("{}-{}", address.ip(), address.port()).replace(':', "_")
}

/// Without the blocks that lie in others: the kernel refuses ranges that overlap. Two blocks never overlap in part, so
/// that in the order of their first addresses a block follows the one it lies in.
pub fn outermost(blocks: &[Cidr]) -> Vec<Cidr> {
    let sorted: BTreeSet<Cidr> = blocks.iter().copied().collect();
    let mut outermost: Vec<Cidr> = Vec::new();
    for block in sorted {
        if !outermost.last().is_some_and(|last| last.contains(block.address())) {
            outermost.push(block);
        }
    }
    outermost
}
