//! Services as traffic sees them: where they can be reached, and what happens to a connection there.
//!
//! Pure: a Service and its EndpointSlices in, [`ServicePort`]s out. All policies are decided here, so that backends
//! only translate. [`ServiceTable`] holds the ports of all Services and decides which of them has an address or port
//! that several ask for; a change of it is a [`Step`], which is what backends are given.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use network::{Cidr, Protocol};

use crate::objects::{EndpointSlice, Hint, Service, ServicePortSpec, addresses};

pub use table::{ServiceTable, Step};

mod claims;
mod table;

/// The time a client sticks to an endpoint when the Service does not say.
const DEFAULT_AFFINITY_S: u32 = 10_800;
/// A backend numbers endpoints; nothing real comes near this.
const MAX_ENDPOINTS: usize = 10_000;
/// Each endpoint of a sticky Service has a chain and a set of its own.
const MAX_STICKY_ENDPOINTS: usize = 1_000;
/// The places where one Service can be reached, and the rules that they take all together. Ports, external addresses and
/// endpoints multiply, and whoever may write a Service may list thousands of each.
const MAX_FRONTENDS: usize = 1_000;
const MAX_TARGETS: usize = 100_000;
/// The blocks that a Service's clients may be restricted to.
const MAX_SOURCE_RANGES: usize = 1_000;

/// One port of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// `namespace/name`, with `:port` if the port has a name.
    pub name: String,
    pub protocol: Protocol,
    /// When the Service was created.
    pub created: String,
    pub frontends: Vec<Frontend>,
    /// How long a client keeps its endpoint after its last connection; without it each connection is on its own.
    pub affinity_s: Option<u32>,
    /// The endpoints of this node, which may reach themselves.
    pub local: BTreeSet<IpAddr>,
}

/// One address and port at which a Service can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frontend {
    pub address: FrontendAddress,
    pub clients: Clients,
    /// The Service's own address, which no other Service can have.
    pub own: bool,
    pub masquerade: Masquerade,
    /// If not empty, only clients in these blocks are let in.
    pub allowed: Vec<Cidr>,
    pub target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FrontendAddress {
    Address(SocketAddr),
    /// A port of every address of the node, of one family.
    NodePort {
        ipv4: bool,
        port: u16,
    },
}

/// Whom a frontend is for. `Outside` goes before `Anyone` at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clients {
    Anyone,
    /// Neither pods nor this node.
    Outside,
}

/// Whose source address is replaced by the node's, so that answers come back this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Masquerade {
    Nobody,
    /// Of clients that are not pods.
    Outsiders,
    Everybody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At least one, in an order that changes as little as possible from one state to the next.
    Endpoints(Vec<SocketAddr>),
    /// Nobody serves: say so.
    Reject,
    /// Others serve, but not here: a load balancer must look elsewhere.
    Drop,
}

/// What a proxy knows of its node and cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    pub node_name: String,
    /// The blocks of all pods and of all Services' own addresses, as far as they are known.
    pub pod_blocks: Vec<Cidr>,
    pub service_blocks: Vec<Cidr>,
    /// The zone of this node; empty if it has none.
    pub zone: String,
    /// The addresses of this node, and those of the others. What is for another node is led to it, and not to endpoints
    /// from here: a node says itself what its addresses are, so it could ask for anybody's.
    pub own_addresses: BTreeSet<IpAddr>,
    pub other_nodes: BTreeSet<IpAddr>,
}

impl Surroundings {
    /// Whether a Service may be reached at an address that somebody else has not given to it. Those of pods and of
    /// Services are theirs, and those of a link or of the machine itself are no Service's.
    fn permits(&self, address: IpAddr) -> bool {
        let blocks = self.pod_blocks.iter().chain(&self.service_blocks);
        !is_special(address) && !blocks.into_iter().any(|block| block.contains(address))
    }
}

/// The ports of a Service, as a proxy with these surroundings treats them.
pub fn service_ports(service: &Service, slices: &[&EndpointSlice], around: &Surroundings) -> Vec<ServicePort> {
    let cluster_ips = cluster_ips(service);
    if cluster_ips.is_empty() {
        return Vec::new();
    }
    let ports = service.spec.ports.iter().filter(|port| port.port != 0);
    let known: Vec<(&ServicePortSpec, Protocol)> = ports
        .filter_map(|port| Some((port, protocol(&port.protocol)?)))
        .take(MAX_FRONTENDS / cluster_ips.len().max(1))
        .collect();
    let places: Vec<_> = known
        .iter()
        .map(|(port, _)| external_places(service, port, &cluster_ips, around))
        .collect();
    // The Service's own addresses come first.
    let room = MAX_FRONTENDS.saturating_sub(known.len() * cluster_ips.len());
    let external = room / known.len().max(1);
    let frontends: usize = places
        .iter()
        .map(|places| places.len().min(external) + cluster_ips.len())
        .sum();
    let targets = (MAX_TARGETS / frontends.max(1)).clamp(1, MAX_ENDPOINTS);
    known
        .into_iter()
        .zip(places)
        .map(|((port, protocol), mut places)| {
            places.truncate(external);
            let candidates = candidates(slices, port, around, targets.min(max_endpoints(service)));
            service_port(service, port, protocol, &cluster_ips, places, &candidates)
        })
        .collect()
}

/// The addresses that a Service names although they are not for it to have.
pub fn foreign_addresses(service: &Service, around: &Surroundings) -> Vec<IpAddr> {
    let own = cluster_ips(service);
    if own.is_empty() {
        return Vec::new();
    }
    let external = external_addresses(service).map(|(ip, _)| ip);
    external
        .filter(|ip| !own.contains(ip) && !around.permits(*ip))
        .collect()
}

fn max_endpoints(service: &Service) -> usize {
    match is_sticky(service) {
        true => MAX_STICKY_ENDPOINTS,
        false => MAX_ENDPOINTS,
    }
}

fn is_sticky(service: &Service) -> bool {
    service.spec.session_affinity == "ClientIP"
}

/// Addresses that lead to whoever asks, to everybody, or nowhere beyond a link.
fn is_special(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
    };
    link_local || address.is_unspecified() || address.is_loopback() || address.is_multicast()
}

/// Orders the endpoints of `new` so that as few as possible stand elsewhere than in `old`.
pub fn keep_order(old: &[ServicePort], new: &mut [ServicePort]) {
    let same = |one: &Frontend, other: &Frontend| (one.address, one.clients) == (other.address, other.clients);
    for port in new {
        let before: Vec<&Frontend> = old
            .iter()
            .filter(|old| old.protocol == port.protocol)
            .flat_map(|old| &old.frontends)
            .collect();
        for frontend in &mut port.frontends {
            let old = before.iter().find(|old| same(old, frontend)).map(|old| &old.target);
            if let (Some(Target::Endpoints(old)), Target::Endpoints(endpoints)) = (old, &mut frontend.target) {
                *endpoints = reordered(old, endpoints);
            }
        }
    }
}

/// The Service's own addresses; none if the proxy has nothing to do with it.
fn cluster_ips(service: &Service) -> Vec<IpAddr> {
    let (spec, labels) = (&service.spec, &service.metadata.labels);
    if spec.kind == "ExternalName" || labels.proxy_name.is_some() || labels.headless.is_some() {
        return Vec::new();
    }
    if spec.cluster_ips.is_empty() {
        return addresses([&spec.cluster_ip]);
    }
    addresses(&spec.cluster_ips)
}

/// An endpoint with all that decides whether it is used.
struct Candidate {
    address: SocketAddr,
    local: bool,
    ready: bool,
    /// About to end, but still answering.
    draining: bool,
    for_node: Hinted,
    for_zone: Hinted,
}

/// Whether an endpoint is meant for somebody, and whether that is us.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hinted {
    Nobody,
    Here,
    Elsewhere,
}

impl Hinted {
    fn at(hints: &[Hint], name: &str) -> Hinted {
        match hints.is_empty() {
            true => Hinted::Nobody,
            false if hints.iter().any(|hint| hint.name == name) => Hinted::Here,
            false => Hinted::Elsewhere,
        }
    }
}

fn candidates(
    slices: &[&EndpointSlice],
    port: &ServicePortSpec,
    around: &Surroundings,
    at_most: usize,
) -> Vec<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for slice in slices {
        let is_port = |offered: &&crate::objects::EndpointPort| {
            offered.name == port.name && protocol(&offered.protocol) == protocol(&port.protocol)
        };
        let number = slice.ports.iter().find(is_port).and_then(|port| port.port);
        let Some(number) = number.filter(|number| *number != 0) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let ip: Option<IpAddr> = endpoint.addresses.first().and_then(|text| text.parse().ok());
            let Some(ip) = ip.filter(|ip| !is_special(*ip)) else {
                continue;
            };
            candidates.push(Candidate {
                address: SocketAddr::new(ip, number),
                local: endpoint.node_name.as_deref() == Some(&around.node_name),
                ready: endpoint.conditions.is_ready(),
                draining: endpoint.conditions.is_serving() && endpoint.conditions.is_terminating(),
                for_node: Hinted::at(&endpoint.hints.for_nodes, &around.node_name),
                for_zone: Hinted::at(&endpoint.hints.for_zones, &around.zone),
            });
        }
    }
    // A pod may stand in two slices while it moves between them; the one that is ready counts.
    candidates.sort_by_key(|candidate| (candidate.address, !candidate.ready));
    candidates.dedup_by_key(|candidate| candidate.address);
    candidates.truncate(at_most);
    candidates
}

/// The ready endpoints, or if there are none those that still answer while they end.
fn usable(candidates: &[Candidate], ipv4: bool, local_only: bool) -> Vec<SocketAddr> {
    let fits = |candidate: &&Candidate| candidate.address.is_ipv4() == ipv4 && (candidate.local || !local_only);
    let those = |wanted: fn(&Candidate) -> bool| -> Vec<&Candidate> {
        let fitting = candidates.iter().filter(fits);
        fitting.filter(|candidate| wanted(candidate)).collect()
    };
    let ready = those(|candidate| candidate.ready);
    let chosen = match ready.is_empty() {
        true => those(|candidate| candidate.draining),
        false if local_only => ready,
        false => nearest(ready),
    };
    chosen.into_iter().map(|candidate| candidate.address).collect()
}

/// Those that are meant for this node or else for its zone, if all are meant for somebody and some for us.
fn nearest(ready: Vec<&Candidate>) -> Vec<&Candidate> {
    for hint in [
        |candidate: &Candidate| candidate.for_node,
        |candidate: &Candidate| candidate.for_zone,
    ] {
        let all = ready.iter().all(|candidate| hint(candidate) != Hinted::Nobody);
        if all && ready.iter().any(|candidate| hint(candidate) == Hinted::Here) {
            let here = ready.into_iter().filter(|candidate| hint(candidate) == Hinted::Here);
            return here.collect();
        }
    }
    ready
}

/// The port at which load balancers ask after a Service, and how many ready endpoints it has on this node.
pub fn health_check(service: &Service, slices: &[&EndpointSlice], node_name: &str) -> Option<(u16, usize)> {
    let spec = &service.spec;
    let is_local = spec.kind == "LoadBalancer" && spec.external_traffic_policy.as_deref() == Some("Local");
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    let here = endpoints.filter(|endpoint| endpoint.node_name.as_deref() == Some(node_name));
    let ready: BTreeSet<&String> = here
        .filter(|endpoint| endpoint.conditions.is_ready())
        .flat_map(|endpoint| endpoint.addresses.first())
        .collect();
    (is_local && spec.health_check_node_port != 0).then_some((spec.health_check_node_port, ready.len()))
}

/// The addresses of a Service's load balancer that are this node's own.
pub fn balanced_here(service: &Service, around: &Surroundings) -> BTreeSet<IpAddr> {
    let balanced = external_addresses(service).filter(|(_, balanced)| *balanced);
    let here = balanced
        .map(|(ip, _)| ip)
        .filter(|ip| around.own_addresses.contains(ip));
    here.collect()
}

fn target(candidates: &[Candidate], ipv4: bool, local_only: bool) -> Target {
    let endpoints = usable(candidates, ipv4, local_only);
    if !endpoints.is_empty() {
        return Target::Endpoints(endpoints);
    }
    match local_only && !usable(candidates, ipv4, false).is_empty() {
        true => Target::Drop,
        false => Target::Reject,
    }
}

fn service_port(
    service: &Service,
    port: &ServicePortSpec,
    protocol: Protocol,
    cluster_ips: &[IpAddr],
    external: Vec<(FrontendAddress, Vec<Cidr>)>,
    candidates: &[Candidate],
) -> ServicePort {
    let spec = &service.spec;
    let suffix = if port.name.is_empty() {
        String::new()
    } else {
        format!(":{}", port.name)
    };
    let mut frontends = Vec::new();
    let internal_local = spec.internal_traffic_policy.as_deref() == Some("Local");
    for &ip in cluster_ips {
        frontends.push(Frontend {
            address: FrontendAddress::Address(SocketAddr::new(ip, port.port)),
            clients: Clients::Anyone,
            own: true,
            masquerade: Masquerade::Outsiders,
            allowed: Vec::new(),
            target: target(candidates, ip.is_ipv4(), internal_local),
        });
    }
    let external_local = spec.external_traffic_policy.as_deref() == Some("Local");
    for (address, allowed) in external {
        frontends.extend(external_frontends(address, allowed, external_local, candidates));
    }
    let affinity = spec.session_affinity_config.as_ref();
    let timeout = affinity.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    ServicePort {
        name: format!("{}/{}{suffix}", service.metadata.namespace, service.metadata.name),
        protocol,
        created: service.metadata.creation_timestamp.clone(),
        frontends,
        affinity_s: is_sticky(service).then(|| timeout.unwrap_or(DEFAULT_AFFINITY_S)),
        local: candidates
            .iter()
            .filter(|candidate| candidate.local)
            .map(|candidate| candidate.address.ip())
            .collect(),
    }
}

/// The addresses at which clients outside of the cluster reach a Service; `true` for those of a load balancer.
fn external_addresses(service: &Service) -> impl Iterator<Item = (IpAddr, bool)> {
    let external = addresses(&service.spec.external_ips).into_iter().map(|ip| (ip, false));
    let ingress = service.status.load_balancer.ingress.iter();
    let direct = ingress.filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
    let balanced = addresses(direct.map(|ingress| &ingress.ip))
        .into_iter()
        .map(|ip| (ip, true));
    external.chain(balanced.filter(|_| service.spec.kind == "LoadBalancer"))
}

/// Where clients outside of the cluster come in, each with the blocks they must come from.
fn external_places(
    service: &Service,
    port: &ServicePortSpec,
    cluster_ips: &[IpAddr],
    around: &Surroundings,
) -> Vec<(FrontendAddress, Vec<Cidr>)> {
    let spec = &service.spec;
    let of_family = |ip: &IpAddr| {
        cluster_ips
            .iter()
            .any(|cluster_ip| cluster_ip.is_ipv4() == ip.is_ipv4())
    };
    let at = |ip: IpAddr| FrontendAddress::Address(SocketAddr::new(ip, port.port));
    let elsewhere = |ip: &IpAddr| around.other_nodes.contains(ip) && !around.own_addresses.contains(ip);
    let permitted = external_addresses(service)
        .filter(|(ip, balanced)| of_family(ip) && around.permits(*ip) && !(*balanced && elsewhere(ip)));
    let restricted = |(ip, balanced): (IpAddr, bool)| match balanced {
        true => (at(ip), source_ranges(service, ip.is_ipv4())),
        false => (at(ip), Vec::new()),
    };
    let mut places: Vec<(FrontendAddress, Vec<Cidr>)> = permitted.take(MAX_FRONTENDS).map(restricted).collect();
    if matches!(spec.kind.as_str(), "NodePort" | "LoadBalancer") && port.node_port != 0 {
        let families: BTreeSet<bool> = cluster_ips.iter().map(IpAddr::is_ipv4).collect();
        let port = port.node_port;
        places.extend(
            families
                .into_iter()
                .map(|ipv4| (FrontendAddress::NodePort { ipv4, port }, Vec::new())),
        );
    }
    // The same address may be listed twice, also as one of the Service's own.
    let mut seen: BTreeSet<FrontendAddress> = cluster_ips.iter().map(|&ip| at(ip)).collect();
    places.retain(|(address, _)| seen.insert(*address));
    places
}

/// If nothing is allowed in a family although the Service restricts its clients, nobody of that family is: that is
/// said by a block without hosts.
fn source_ranges(service: &Service, ipv4: bool) -> Vec<Cidr> {
    let ranges = &service.spec.load_balancer_source_ranges;
    let ranges = &ranges[..ranges.len().min(MAX_SOURCE_RANGES)];
    let parsed: Vec<Cidr> = ranges.iter().filter_map(|text| loose_cidr(text.trim())).collect();
    let of_family: Vec<Cidr> = parsed.iter().copied().filter(|block| block.is_ipv4() == ipv4).collect();
    if ranges.is_empty() || !of_family.is_empty() {
        return of_family;
    }
    let nobody: IpAddr = if ipv4 { [0; 4].into() } else { [0; 16].into() };
    vec![Cidr::containing(nobody, u8::MAX)]
}

/// The API accepts bits after the prefix here, and ignores them.
fn loose_cidr(text: &str) -> Option<Cidr> {
    let (address, prefix) = text.split_once('/')?;
    Some(Cidr::containing(address.parse().ok()?, prefix.parse().ok()?))
}

/// With the policy Local, clients outside see only this node's endpoints and keep their address; pods and this node
/// are treated as with the policy Cluster, so that they need no endpoint beside them.
fn external_frontends(
    address: FrontendAddress,
    allowed: Vec<Cidr>,
    local_only: bool,
    candidates: &[Candidate],
) -> Vec<Frontend> {
    let ipv4 = address.is_ipv4();
    let everyone = Frontend {
        address,
        clients: Clients::Anyone,
        own: false,
        masquerade: if local_only {
            Masquerade::Outsiders
        } else {
            Masquerade::Everybody
        },
        allowed,
        target: target(candidates, ipv4, false),
    };
    if !local_only {
        return vec![everyone];
    }
    let outside = Frontend {
        clients: Clients::Outside,
        masquerade: Masquerade::Nobody,
        target: target(candidates, ipv4, true),
        ..everyone.clone()
    };
    vec![everyone, outside]
}

impl FrontendAddress {
    pub fn is_ipv4(&self) -> bool {
        match self {
            FrontendAddress::Address(address) => address.is_ipv4(),
            FrontendAddress::NodePort { ipv4, .. } => *ipv4,
        }
    }
}

/// Those of `old` that are still in `new` stay where they are; the gaps are filled with new ones, then from the end.
fn reordered(old: &[SocketAddr], new: &[SocketAddr]) -> Vec<SocketAddr> {
    let wanted: BTreeSet<SocketAddr> = new.iter().copied().collect();
    let known: BTreeSet<SocketAddr> = old.iter().copied().collect();
    let mut fresh = new.iter().copied().filter(|endpoint| !known.contains(endpoint));
    let kept = old
        .iter()
        .map(|&endpoint| wanted.contains(&endpoint).then_some(endpoint));
    let mut slots: Vec<Option<SocketAddr>> = kept.map(|slot| slot.or_else(|| fresh.next())).collect();
    slots.extend(fresh.map(Some));
    while let Some(gap) = slots.iter().position(Option::is_none) {
        slots.swap_remove(gap);
    }
    slots.into_iter().flatten().collect()
}

fn protocol(text: &str) -> Option<Protocol> {
    match text {
        "TCP" | "" => Some(Protocol::Tcp),
        "UDP" => Some(Protocol::Udp),
        "SCTP" => Some(Protocol::Sctp),
        _ => None,
    }
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.protocol)?;
        if let Some(seconds) = self.affinity_s {
            write!(f, " sticky {seconds}s")?;
        }
        for frontend in &self.frontends {
            write!(f, "\n  {frontend}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FrontendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrontendAddress::Address(address) => write!(f, "{address}"),
            FrontendAddress::NodePort { ipv4, port } => {
                write!(f, "node port {port} ({})", if *ipv4 { "IPv4" } else { "IPv6" })
            }
        }
    }
}

impl fmt::Display for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.clients == Clients::Outside {
            write!(f, " from outside")?;
        }
        for block in &self.allowed {
            write!(f, " from {block}")?;
        }
        match &self.target {
            Target::Reject => return write!(f, " → reject"),
            Target::Drop => return write!(f, " → drop"),
            Target::Endpoints(endpoints) => {
                let endpoints: Vec<String> = endpoints.iter().map(SocketAddr::to_string).collect();
                write!(f, " → {}", endpoints.join(", "))?;
            }
        }
        match self.masquerade {
            Masquerade::Nobody => Ok(()),
            Masquerade::Outsiders => write!(f, "; outsiders masqueraded"),
            Masquerade::Everybody => write!(f, "; masqueraded"),
        }
    }
}

#[cfg(test)]
mod tests;
