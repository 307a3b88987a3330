//! The packet rules of the built-in network: masquerading, ports of the host, and two safeguards. What pods' frames
//! may say is `guard`'s.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{BridgeOptions, guard};
use crate::nft::matching::{
    Side, address_in, address_local, address_registers, equal, family, interface, load_address, load_protocol_and_port,
    transport_protocol,
};
use crate::nft::{
    Base, Batch, ChainKind, Comparison, Data, Element, Expression, Family, Hook, MetaKey, Nat, PayloadBase, Register,
    Set, Socket, Table, Type, Value, ValueType, Verdict, priority,
};
use crate::route::address_from;
use crate::{Cidr, NetworkError, PortMapping, Protocol};

/// The table of one bridge.
pub fn table(options: &BridgeOptions) -> Table {
    Table::new(Family::Inet, format!("{}-network", options.bridge))
}

/// Brings chains and rules to what the options ask for. Maps keep their elements: pods that are running own them.
pub fn install(options: &BridgeOptions, socket: &Socket) -> Result<(), NetworkError> {
    let table = table(options);
    let mut batch = Batch::new();
    batch.add_table(&table, Some("pod network"));
    for name in strangers(&table, socket)? {
        batch.flush_chain(&table, &name);
        batch.remove_chain(&table, &name);
    }
    for ipv4 in [true, false] {
        for set in sets(ipv4) {
            batch.add_set(&table, &set);
        }
    }
    for (name, base) in CHAINS {
        batch.add_chain(&table, name, *base);
    }
    for (name, _) in CHAINS {
        batch.flush_chain(&table, name);
    }
    for (chain, comment, expressions) in rules(options) {
        batch.add_rule(&table, chain, comment, &expressions);
    }
    guard::install(&mut batch, options);
    batch.commit(socket)?;
    Ok(())
}

/// The chains of an earlier version that go by other names now.
fn strangers(table: &Table, socket: &Socket) -> Result<Vec<String>, NetworkError> {
    let mut chains = socket.chains(table).map_err(|source| NetworkError::Kernel {
        operation: format!("list the chains of {}", table.name),
        source,
    })?;
    chains.retain(|name| !CHAINS.iter().any(|(known, _)| known == name));
    Ok(chains)
}

/// Leads ports of the host to a pod.
pub fn open_ports(batch: &mut Batch, options: &BridgeOptions, ips: &[IpAddr], mappings: &[PortMapping]) {
    let table = table(options);
    for &ip in ips {
        let names = Names::of_family(ip.is_ipv4());
        let mappings = mappings.iter().filter(|mapping| mapping.host_port != 0);
        let mut any = false;
        for mapping in mappings {
            if let Some((map, element)) = port_element(mapping, ip) {
                batch.add_elements(&table, map, [&element]);
                any = true;
            }
        }
        if any {
            let hairpin = Element::key(Data::new().address(ip).address(ip));
            batch.add_elements(&table, names.hairpin, [&hairpin]);
        }
    }
}

/// Closes all ports of the host that lead to addresses for which `gone` holds.
pub fn close_ports(
    batch: &mut Batch,
    options: &BridgeOptions,
    socket: &Socket,
    gone: impl Fn(IpAddr) -> bool,
) -> Result<(), NetworkError> {
    let table = table(options);
    for ipv4 in [true, false] {
        let names = Names::of_family(ipv4);
        for set in [names.ports, names.address_ports, names.hairpin] {
            let elements = list(&table, socket, set)?;
            let stale = elements
                .iter()
                .filter(|element| leads_to(element, ipv4).is_some_and(&gone));
            batch.remove_elements(&table, set, stale);
        }
    }
    Ok(())
}

/// Every port of the host that leads to a pod, with the pod's address.
pub fn opened_ports(options: &BridgeOptions, socket: &Socket) -> Result<Vec<(IpAddr, PortMapping)>, NetworkError> {
    let table = table(options);
    let mut opened = Vec::new();
    for ipv4 in [true, false] {
        let names = Names::of_family(ipv4);
        for set in [names.ports, names.address_ports] {
            let elements = list(&table, socket, set)?;
            let has_address = set == names.address_ports;
            opened.extend(
                elements
                    .iter()
                    .filter_map(|element| read_port(element, ipv4, has_address)),
            );
        }
    }
    Ok(opened)
}

/// Closes one port of the host that leads to a pod.
pub fn close_port(batch: &mut Batch, options: &BridgeOptions, ip: IpAddr, mapping: &PortMapping) {
    if let Some((map, element)) = port_element(mapping, ip) {
        batch.remove_elements(&table(options), map, [&element]);
    }
}

fn list(table: &Table, socket: &Socket, set: &str) -> Result<Vec<Element>, NetworkError> {
    socket.elements(table, set).map_err(|source| NetworkError::Kernel {
        operation: format!("list the elements of {set}"),
        source,
    })
}

/// Removes everything that [`install`] made.
pub fn remove(options: &BridgeOptions, socket: &Socket) -> Result<(), NetworkError> {
    let table = table(options);
    let mut batch = Batch::new();
    batch.add_table(&table, None);
    batch.remove_table(&table);
    guard::remove(&mut batch, options);
    batch.commit(socket)?;
    Ok(())
}

/// The sets of one address family.
struct Names {
    /// protocol . port → pod address . port, on all addresses of the host.
    ports: &'static str,
    /// address . protocol . port → pod address . port.
    address_ports: &'static str,
    /// pod address . the same address: a pod that reaches itself through a port of the host.
    hairpin: &'static str,
}

impl Names {
    fn of_family(ipv4: bool) -> Names {
        if ipv4 {
            Names {
                ports: "host-ports-4",
                address_ports: "host-address-ports-4",
                hairpin: "hairpin-4",
            }
        } else {
            Names {
                ports: "host-ports-6",
                address_ports: "host-address-ports-6",
                hairpin: "hairpin-6",
            }
        }
    }
}

const NAT: ChainKind = ChainKind::Nat;

const CHAINS: &[(&str, Option<Base>)] = &[
    ("host-ports", None),
    ("leaving", None),
    ("guard-input", base(ChainKind::Filter, Hook::Prerouting, priority::RAW)),
    ("guard-output", base(ChainKind::Filter, Hook::Output, priority::FILTER)),
    // A node port of a Service is that Service's, whatever pods ask for: the proxy's rules come first.
    ("ports-prerouting", base(NAT, Hook::Prerouting, priority::AFTER_DSTNAT)),
    ("ports-output", base(NAT, Hook::Output, priority::AFTER_DSTNAT)),
    ("nat-postrouting", base(NAT, Hook::Postrouting, priority::SRCNAT)),
];

const fn base(kind: ChainKind, hook: Hook, priority: i32) -> Option<Base> {
    Some(Base { kind, hook, priority })
}

fn sets(ipv4: bool) -> [Set; 3] {
    let names = Names::of_family(ipv4);
    let address = if ipv4 { Type::Ipv4Address } else { Type::Ipv6Address };
    let target = || Some(ValueType::Data(vec![address, Type::Port]));
    let set = |name: &str, key: &[Type], value| Set {
        name: name.to_owned(),
        key: key.to_vec(),
        value,
        interval: false,
        dynamic: false,
        size: None,
    };
    [
        set(names.ports, &[Type::Protocol, Type::Port], target()),
        set(names.address_ports, &[address, Type::Protocol, Type::Port], target()),
        set(names.hairpin, &[address, address], None),
    ]
}

type Rule = (&'static str, &'static str, Vec<Expression>);

fn rules(options: &BridgeOptions) -> Vec<Rule> {
    let mut rules = guards(options);
    let jump = |chain: &str| Expression::Verdict(Verdict::Jump(chain.to_owned()));
    for chain in ["ports-prerouting", "ports-output"] {
        let local = address_local(Side::Destination, Comparison::Equal);
        rules.push((chain, "", [local, vec![jump("host-ports")]].concat()));
    }
    for ipv4 in [true, false] {
        rules.extend(host_ports(ipv4));
    }
    rules.push((
        "nat-postrouting",
        "localhost to a port of the host",
        local_source(options),
    ));
    if options.masquerade {
        let blocks: BTreeSet<bool> = options.pod_cidrs.iter().map(Cidr::is_ipv4).collect();
        for &cidr in &options.pod_cidrs {
            let from = address_in(Side::Source, cidr, Comparison::Equal);
            let leaving = [family(cidr.is_ipv4()), from, vec![jump("leaving")]].concat();
            rules.push(("nat-postrouting", "", leaving));
        }
        rules.extend(blocks.iter().flat_map(|&ipv4| leaving(options, ipv4)));
    }
    rules
}

/// Pods may not reach what listens on the host's loopback only, although `route_localnet` would let them; and no pod
/// is told to take a shorter way than through the host's rules. For IPv4 a kernel setting sees to that.
fn guards(options: &BridgeOptions) -> Vec<Rule> {
    let bridge = |key| interface(key, &options.bridge);
    let loopback = Cidr::containing(IpAddr::from([127, 0, 0, 0]), 8);
    let to_loopback = address_in(Side::Destination, loopback, Comparison::Equal);
    let input = [
        bridge(MetaKey::InputName),
        family(true),
        to_loopback,
        vec![drop_packet()],
    ];
    let is_redirect = vec![
        Expression::Payload {
            base: PayloadBase::Transport,
            offset: 0,
            length: 1,
            into: Register(0),
        },
        equal(Register(0), vec![ICMPV6_REDIRECT]),
    ];
    let icmp = transport_protocol(libc::IPPROTO_ICMPV6 as u8);
    let output = [
        bridge(MetaKey::OutputName),
        family(false),
        icmp,
        is_redirect,
        vec![drop_packet()],
    ];
    vec![
        ("guard-input", "pods to localhost", input.concat()),
        ("guard-output", "redirects", output.concat()),
    ]
}

const ICMPV6_REDIRECT: u8 = 137;

fn drop_packet() -> Expression {
    Expression::Verdict(Verdict::Drop)
}

/// Packets to one of the host's addresses: the ports of that address, then those of all addresses; and the
/// masquerading of a pod that reached itself so.
fn host_ports(ipv4: bool) -> Vec<Rule> {
    let names = Names::of_family(ipv4);
    let width = address_registers(ipv4);
    let (start, target) = (Register(0), Register(8));
    let destination = |map: &str| {
        vec![
            Expression::FromMap {
                map: map.to_owned(),
                key: start,
                into: target,
            },
            Expression::Destination(Nat {
                family: if ipv4 { Family::Ip } else { Family::Ip6 },
                address: target,
                port: target.plus(width),
            }),
        ]
    };
    let address = vec![load_address(Side::Destination, ipv4, start)];
    let by_address = [
        family(ipv4),
        address,
        load_protocol_and_port(start.plus(width)),
        destination(names.address_ports),
    ];
    let by_port = [family(ipv4), load_protocol_and_port(start), destination(names.ports)];
    let hairpin = vec![
        load_address(Side::Source, ipv4, start),
        load_address(Side::Destination, ipv4, start.plus(width)),
        Expression::InSet {
            set: names.hairpin.to_owned(),
            key: start,
            inverted: false,
        },
        Expression::Masquerade,
    ];
    vec![
        ("host-ports", "", by_address.concat()),
        ("host-ports", "", by_port.concat()),
        ("nat-postrouting", "a pod to itself", [family(ipv4), hairpin].concat()),
    ]
}

fn local_source(options: &BridgeOptions) -> Vec<Expression> {
    let loopback = Cidr::containing(IpAddr::from([127, 0, 0, 0]), 8);
    [
        interface(MetaKey::OutputName, &options.bridge),
        family(true),
        address_in(Side::Source, loopback, Comparison::Equal),
        vec![Expression::Masquerade],
    ]
    .concat()
}

/// Packets of pods: those that stay in the cluster or go to many keep their source.
fn leaving(options: &BridgeOptions, ipv4: bool) -> Vec<Rule> {
    let multicast = if ipv4 {
        Cidr::containing(IpAddr::from([224, 0, 0, 0]), 4)
    } else {
        Cidr::containing(IpAddr::from([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8)
    };
    let inside = options.cluster_cidrs.iter().chain(&options.pod_cidrs).copied();
    let inside: BTreeSet<Cidr> = inside.filter(|cidr| cidr.is_ipv4() == ipv4).collect();
    let stay = inside.into_iter().chain([multicast]).map(|cidr| {
        let to = address_in(Side::Destination, cidr, Comparison::Equal);
        let give_back = vec![Expression::Verdict(Verdict::Return)];
        ("leaving", "", [family(ipv4), to, give_back].concat())
    });
    let masquerade = [family(ipv4), vec![Expression::Masquerade]].concat();
    stay.chain([("leaving", "", masquerade)]).collect()
}

/// The map and the element for one mapping, unless it is for the other address family.
fn port_element(mapping: &PortMapping, ip: IpAddr) -> Option<(&'static str, Element)> {
    let names = Names::of_family(ip.is_ipv4());
    let protocol = mapping.protocol.number();
    let target = Data::new().address(ip).port(mapping.container_port);
    let key = match mapping.host_ip.filter(|address| !address.is_unspecified()) {
        Some(host) if host.is_ipv4() != ip.is_ipv4() => return None,
        Some(host) => Data::new().address(host).protocol(protocol).port(mapping.host_port),
        None => {
            let key = Data::new().protocol(protocol).port(mapping.host_port);
            return Some((names.ports, Element::data(key, target)));
        }
    };
    Some((names.address_ports, Element::data(key, target)))
}

/// The reverse of [`port_element`].
fn read_port(element: &Element, ipv4: bool, has_address: bool) -> Option<(IpAddr, PortMapping)> {
    let width = if ipv4 { 4 } else { 16 };
    let address_width = if has_address { width } else { 0 };
    let (address, rest) = element.key.split_at_checked(address_width)?;
    let port_at = |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let Some(Value::Data(target)) = &element.value else {
        return None;
    };
    let mapping = PortMapping {
        host_ip: address_from(address),
        host_port: port_at(rest, 4)?,
        container_port: port_at(target, width)?,
        protocol: match i32::from(*rest.first()?) {
            libc::IPPROTO_TCP => Protocol::Tcp,
            libc::IPPROTO_UDP => Protocol::Udp,
            libc::IPPROTO_SCTP => Protocol::Sctp,
            _ => return None,
        },
    };
    Some((address_from(target.get(..width)?)?, mapping))
}

/// The pod that an element of any of the sets is about.
fn leads_to(element: &Element, ipv4: bool) -> Option<IpAddr> {
    let length = if ipv4 { 4 } else { 16 };
    let bytes = match &element.value {
        Some(Value::Data(data)) => data,
        _ => &element.key,
    };
    address_from(bytes.get(..length)?)
}
