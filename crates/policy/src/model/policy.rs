//! Policies and pods as the model sees them: parsed once, then only compared.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::selector::Selector;
use network::{Cidr, Protocol};

use super::ranges::{AddressRange, without};
use super::{Direction, PortSet};
use crate::objects::{self, Labels, NetworkPolicy, PolicyPeer, PolicyPort, PortReference};

/// A NetworkPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub namespace: String,
    /// The pods of its namespace that it is about.
    pub pods: Selector,
    /// What it lets in; nothing said if it is not about that.
    ingress: Option<Vec<Rule>>,
    egress: Option<Vec<Rule>>,
}

/// What is let through: to or from any of the peers, at any of the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Everybody if absent.
    peers: Option<Vec<Peer>>,
    /// Every protocol and port if absent.
    ports: Option<Vec<PortMatch>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Peer {
    Pods {
        /// The policy's own namespace if absent.
        namespaces: Option<Selector>,
        pods: Selector,
    },
    Block(Vec<AddressRange>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PortMatch {
    Numbers(PortSet),
    Named(Protocol, String),
}

/// A pod, or something that is to be treated as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    pub namespace: String,
    pub labels: Labels,
    pub addresses: Vec<IpAddr>,
    /// It runs here: policies that select it are enforced here.
    pub local: bool,
    /// This node gave it its addresses.
    pub registered: bool,
    pub named_ports: BTreeMap<(Protocol, String), u16>,
    /// The only ports at which it is a peer, where others have other numbers for them: of a server whose Service leads to
    /// a machine's own address. Empty for pods, which have all of their ports to themselves.
    pub published: Vec<PublishedPort>,
}

/// A port of a server that clients know by another number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPort {
    pub protocol: Protocol,
    pub name: String,
    /// What policies say.
    pub known_as: u16,
    /// Where packets go.
    pub port: u16,
}

impl Policy {
    pub fn new(policy: &NetworkPolicy) -> Policy {
        let spec = &policy.spec;
        let has = |kind: &str| spec.policy_types.iter().any(|found| found == kind);
        // The API server fills in the types; a policy that came in another way means what it would have filled in.
        let unsaid = spec.policy_types.is_empty();
        let ingress = spec.ingress.iter().map(|rule| Rule::new(&rule.from, &rule.ports));
        let egress = spec.egress.iter().map(|rule| Rule::new(&rule.to, &rule.ports));
        Policy {
            namespace: policy.metadata.namespace.clone(),
            pods: Selector::from(&spec.pod_selector),
            ingress: (unsaid || has("Ingress")).then(|| ingress.collect()),
            egress: (has("Egress") || unsaid && !spec.egress.is_empty()).then(|| egress.collect()),
        }
    }

    /// What it lets through in a direction, or nothing if it is not about that direction.
    pub fn rules(&self, direction: Direction) -> Option<&[Rule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    pub fn selects(&self, pod: &PodFacts) -> bool {
        pod.namespace == self.namespace && self.pods.matches(&pod.labels)
    }
}

impl Rule {
    fn new(peers: &[PolicyPeer], ports: &[PolicyPort]) -> Rule {
        Rule {
            peers: (!peers.is_empty()).then(|| peers.iter().filter_map(Peer::new).collect()),
            ports: (!ports.is_empty()).then(|| ports.iter().filter_map(PortMatch::new).collect()),
        }
    }

    /// Whether a pod is among the peers because of what it is. `labels` are those of its namespace.
    pub fn matches_pod(&self, own_namespace: &str, pod: &PodFacts, labels: &Labels) -> bool {
        let peers = self.peers.iter().flatten();
        let matches = |peer: &Peer| match peer {
            Peer::Pods { namespaces, pods } => {
                let in_namespace = match namespaces {
                    Some(namespaces) => namespaces.matches(labels),
                    None => pod.namespace == own_namespace,
                };
                in_namespace && pods.matches(&pod.labels)
            }
            Peer::Block(_) => false,
        };
        peers.into_iter().any(matches)
    }

    /// Whether pods of other namespaces than the policy's can be among the peers because of what they are.
    pub fn selects_namespaces(&self) -> bool {
        let peers = self.peers.iter().flatten();
        let by_namespace = |peer: &Peer| {
            matches!(
                peer,
                Peer::Pods {
                    namespaces: Some(_),
                    ..
                }
            )
        };
        peers.into_iter().any(by_namespace)
    }

    /// Whether an address is among the peers, whoever has it.
    pub fn matches_address(&self, address: IpAddr) -> bool {
        self.ranges().iter().any(|range| range.contains(address))
    }

    /// The addresses that are among the peers, whoever has them.
    pub fn ranges(&self) -> Vec<AddressRange> {
        let Some(peers) = &self.peers else {
            return [true, false].map(AddressRange::all).to_vec();
        };
        let ranges = peers.iter().flat_map(|peer| match peer {
            Peer::Block(ranges) => ranges.as_slice(),
            Peer::Pods { .. } => &[],
        });
        ranges.copied().collect()
    }

    pub fn has_named_ports(&self) -> bool {
        let mut ports = self.ports.iter().flatten();
        ports.any(|port| matches!(port, PortMatch::Named(..)))
    }

    /// Whether peers are among those of the rule by their addresses and have ports that it knows by name. What such a name
    /// stands for is up to each of them.
    pub fn names_ports_of_addresses(&self) -> bool {
        self.has_named_ports() && !self.ranges().is_empty()
    }

    /// The ports of a server that are let through. A name that the server does not have is no port.
    pub fn ports_of(&self, server: Option<&PodFacts>) -> PortSet {
        let Some(matches) = &self.ports else {
            return PortSet::everything();
        };
        let mut ports = PortSet::default();
        for port in matches {
            match port {
                PortMatch::Numbers(numbers) => ports.unite(numbers),
                PortMatch::Named(protocol, name) => {
                    let found = server.and_then(|server| server.named_ports.get(&(*protocol, name.clone())));
                    if let Some(&number) = found {
                        ports.unite(&PortSet::range(*protocol, number, number));
                    }
                }
            }
        }
        ports
    }

    /// Those of a server's published ports that are let through, by the numbers that packets have.
    pub fn published_ports_of(&self, server: &PodFacts) -> PortSet {
        let allowed = self.ports_of(None);
        let by_name = |port: &PublishedPort| {
            let named = PortMatch::Named(port.protocol, port.name.clone());
            self.ports.iter().flatten().any(|found| *found == named)
        };
        let mut ports = PortSet::default();
        for port in &server.published {
            let by_number = [port.known_as, port.port].map(|number| allowed.contains(port.protocol, number));
            if by_number.contains(&true) || by_name(port) {
                ports.unite(&PortSet::range(port.protocol, port.port, port.port));
            }
        }
        ports
    }
}

impl Peer {
    /// A block that does not parse matches nothing; the API server lets none in.
    fn new(peer: &PolicyPeer) -> Option<Peer> {
        if let Some(block) = &peer.ip_block {
            let cidr: Cidr = loose_cidr(&block.cidr)?;
            let except: Vec<Cidr> = block.except.iter().filter_map(|text| loose_cidr(text)).collect();
            return Some(Peer::Block(without(cidr, &except)));
        }
        if peer.pod_selector.is_none() && peer.namespace_selector.is_none() {
            return None;
        }
        Some(Peer::Pods {
            namespaces: peer.namespace_selector.as_ref().map(Selector::from),
            pods: peer.pod_selector.as_ref().map(Selector::from).unwrap_or_default(),
        })
    }
}

impl PortMatch {
    fn new(port: &PolicyPort) -> Option<PortMatch> {
        let protocol = protocol(port.protocol.as_deref())?;
        let numbers = |first, last| PortMatch::Numbers(PortSet::range(protocol, first, last));
        Some(match (&port.port, port.end_port) {
            (None, _) => numbers(0, u16::MAX),
            (Some(PortReference::Number(first)), last) => numbers(*first, last.unwrap_or(*first)),
            (Some(PortReference::Name(name)), _) => PortMatch::Named(protocol, name.clone()),
        })
    }
}

impl PodFacts {
    /// `addresses` are those that the node gave it, if it is known here; what its status says otherwise.
    pub fn new(pod: &objects::Pod, node_name: &str, addresses: Option<&[IpAddr]>) -> PodFacts {
        let has_ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        let found = match addresses {
            Some(addresses) => addresses.to_vec(),
            // What has ended has given its addresses back, whatever its status still says.
            None if has_ended => Vec::new(),
            None => pod.addresses(),
        };
        let containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
        let ports = containers.flat_map(|container| &container.ports);
        let named = ports.filter(|port| !port.name.is_empty()).filter_map(|port| {
            let protocol = protocol(port.protocol.as_deref())?;
            Some(((protocol, port.name.clone()), port.container_port))
        });
        PodFacts {
            namespace: pod.metadata.namespace.clone(),
            labels: pod.metadata.labels.clone(),
            // Its addresses are the node's, with which it shares them all.
            addresses: if pod.spec.host_network { Vec::new() } else { found },
            local: pod.spec.node_name == node_name,
            registered: addresses.is_some(),
            named_ports: named.collect(),
            published: Vec::new(),
        }
    }
}

impl objects::Pod {
    fn addresses(&self) -> Vec<IpAddr> {
        let status = &self.status;
        let several = status.pod_ips.iter().map(|ip| &ip.ip);
        let mut addresses: Vec<IpAddr> = several
            .chain([&status.pod_ip])
            .filter_map(|text| text.parse().ok())
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

pub fn protocol(text: Option<&str>) -> Option<Protocol> {
    match text {
        Some("TCP") | None => Some(Protocol::Tcp),
        Some("UDP") => Some(Protocol::Udp),
        Some("SCTP") => Some(Protocol::Sctp),
        Some(_) => None,
    }
}

/// The API accepts bits after the prefix, and ignores them.
fn loose_cidr(text: &str) -> Option<Cidr> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix: u8 = prefix.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= width).then(|| Cidr::containing(address, prefix))
}
