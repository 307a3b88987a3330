//! What may come in by a pod's port of the bridge: frames with the pod's own hardware and network addresses, whatever
//! rights the pod has in its own network. So no pod takes another's address, or the gateway's, be it as the source of
//! packets, in ARP or in neighbour discovery; and none plays router or DHCP server for its neighbours.
//!
//! A port and its addresses are known here before the link exists, so there is no moment at which anything else passes.
//! Ports that are not known are not ours, and their frames are left alone.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use super::BridgeOptions;
use crate::NetworkError;
use crate::nft::matching::{equal, transport_protocol};
use crate::nft::{
    Base, Batch, ChainKind, Data, Element, Expression, Family, Hook, MetaKey, PayloadBase, Register, Set, Socket,
    Table, Type, Verdict, priority,
};
use crate::route::{Mac, octets};

/// A pod's port of the bridge, with all that is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    pub interface: String,
    pub mac: Mac,
    pub ips: Vec<IpAddr>,
}

/// The table of one bridge.
pub fn table(options: &BridgeOptions) -> Table {
    Table::new(Family::Bridge, format!("{}-guard", options.bridge))
}

/// The hardware address of the pod with these addresses: no two pods of a node have the same.
pub fn pod_mac(ips: &[IpAddr]) -> Mac {
    let tail = ips.first().map_or_else(|| vec![0; 4], |&ip| octets(ip));
    let mut mac = [POD_MAC[0], POD_MAC[1], 0, 0, 0, 0];
    mac[2..].copy_from_slice(&tail[tail.len() - 4..]);
    mac
}

/// Whether [`pod_mac`] gives such addresses.
pub fn is_pod_mac(mac: Mac) -> bool {
    mac[..2] == POD_MAC
}

/// The beginning of every pod's hardware address, which are locally administered ones.
const POD_MAC: [u8; 2] = [0x0a, 0x4b];

/// Adds the table and brings its rules to what they should be. Sets keep their elements: pods that are running own
/// them.
pub fn install(batch: &mut Batch, options: &BridgeOptions) {
    let table = table(options);
    batch.add_table(&table, Some("addresses of pods"));
    for set in sets() {
        batch.add_set(&table, &set);
    }
    let base = Base {
        kind: ChainKind::Filter,
        hook: Hook::Prerouting,
        priority: priority::RAW,
    };
    batch.add_chain(&table, FROM_POD, None);
    batch.add_chain(&table, PREROUTING, Some(base));
    for chain in [PREROUTING, FROM_POD] {
        batch.flush_chain(&table, chain);
    }
    let of_pods = vec![
        load_interface(),
        in_set(PORTS, false),
        verdict(Verdict::Goto(FROM_POD.to_owned())),
    ];
    batch.add_rule(&table, PREROUTING, "", &of_pods);
    for (comment, rule) in rules() {
        batch.add_rule(&table, FROM_POD, comment, &rule);
    }
}

/// Lets a pod's own addresses in by its port, and nothing else.
pub fn admit(batch: &mut Batch, options: &BridgeOptions, port: &Port) {
    let table = table(options);
    for (set, elements) in elements(port) {
        batch.add_elements(&table, set, &elements);
    }
}

/// Forgets a port; that it is not known is fine.
pub fn forget(batch: &mut Batch, options: &BridgeOptions, port: &Port) {
    let table = table(options);
    for (set, elements) in elements(port) {
        batch.add_elements(&table, set, &elements);
        batch.remove_elements(&table, set, &elements);
    }
}

/// Forgets all ports for whose interface `gone` holds. Gives the interfaces of the others.
pub fn forget_gone(
    batch: &mut Batch,
    options: &BridgeOptions,
    socket: &Socket,
    gone: impl Fn(&str) -> bool,
) -> Result<BTreeSet<String>, NetworkError> {
    let table = table(options);
    let mut known = BTreeSet::new();
    for set in [PORTS, SOURCES_4, SOURCES_6] {
        let found = socket.elements(&table, set).map_err(|source| NetworkError::Kernel {
            operation: format!("list the elements of {set}"),
            source,
        })?;
        let stale = found.iter().filter(|element| gone(&interface_of(element)));
        batch.remove_elements(&table, set, stale);
        if set != PORTS {
            known.extend(found.iter().map(interface_of).filter(|name| !gone(name)));
        }
    }
    Ok(known)
}

/// Removes everything that [`install`] made.
pub fn remove(batch: &mut Batch, options: &BridgeOptions) {
    let table = table(options);
    batch.add_table(&table, None);
    batch.remove_table(&table);
}

const PREROUTING: &str = "prerouting";
const FROM_POD: &str = "from-pod";
/// The interfaces that lead to pods.
const PORTS: &str = "ports";
/// interface . hardware address . address, for every address of a pod.
const SOURCES_4: &str = "sources-4";
const SOURCES_6: &str = "sources-6";

fn sets() -> [Set; 3] {
    let set = |name: &str, key: &[Type]| Set {
        name: name.to_owned(),
        key: key.to_vec(),
        value: None,
        interval: false,
        dynamic: false,
        size: None,
    };
    let (interface, mac) = (Type::InterfaceName, Type::HardwareAddress);
    [
        set(PORTS, &[interface]),
        set(SOURCES_4, &[interface, mac, Type::Ipv4Address]),
        set(SOURCES_6, &[interface, mac, Type::Ipv6Address]),
    ]
}

/// IPv6 has an address of its own for every link, made of the hardware address.
fn elements(port: &Port) -> [(&'static str, Vec<Element>); 3] {
    let source = |ip: &IpAddr| {
        let key = Data::new().interface(&port.interface).hardware_address(port.mac);
        Element::key(key.address(*ip))
    };
    let of_family = |ipv4: bool| port.ips.iter().filter(move |ip| ip.is_ipv4() == ipv4);
    let link_local = IpAddr::V6(link_local(port.mac));
    [
        (PORTS, vec![Element::key(Data::new().interface(&port.interface))]),
        (SOURCES_4, of_family(true).map(source).collect()),
        (SOURCES_6, of_family(false).chain([&link_local]).map(source).collect()),
    ]
}

/// RFC 4291, appendix A.
fn link_local(mac: Mac) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac;
    let pair = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        pair(a ^ 2, b),
        pair(c, 0xff),
        pair(0xfe, d),
        pair(e, f),
    )
}

fn interface_of(element: &Element) -> String {
    let name = element.key.iter().take(libc::IFNAMSIZ).take_while(|byte| **byte != 0);
    String::from_utf8_lossy(&name.copied().collect::<Vec<u8>>()).into_owned()
}

type Rule = (&'static str, Vec<Expression>);

/// What a pod's frame passes, in this order. The type is read from the frame itself, so that a frame with a VLAN's tag,
/// behind which another type may hide, is none of these.
fn rules() -> Vec<Rule> {
    let accept = || verdict(Verdict::Accept);
    let drop = || verdict(Verdict::Drop);
    let own = |source: Vec<Expression>, set: &str| [source, vec![in_set(set, false), accept()]].concat();
    let ipv4_source = load_source(FRAME_SOURCE, network(12, 4));
    let ipv6_source = || load_source(FRAME_SOURCE, network(8, 16));
    let target = || load_source(FRAME_SOURCE, transport(8, 16));
    let claims_other = [target(), vec![in_set(SOURCES_6, true), drop()]].concat();
    vec![
        ("dhcp server", [of_type(IPV4), from_udp_port(67), vec![drop()]].concat()),
        ("", [of_type(IPV4), own(ipv4_source, SOURCES_4)].concat()),
        (
            "",
            [of_type(ARP), arp_of_ethernet(), arp_senders(), vec![accept()]].concat(),
        ),
        (
            "dhcp server",
            [of_type(IPV6), from_udp_port(547), vec![drop()]].concat(),
        ),
        (
            "router",
            [of_type(IPV6), of_icmp_type(ROUTER_ADVERTISEMENT), vec![drop()]].concat(),
        ),
        ("router", [of_type(IPV6), of_icmp_type(REDIRECT), vec![drop()]].concat()),
        (
            "another's address",
            [of_type(IPV6), of_icmp_type(NEIGHBOUR_ADVERTISEMENT), claims_other].concat(),
        ),
        (
            "is it free",
            [
                of_type(IPV6),
                from_nobody(),
                of_icmp_type(NEIGHBOUR_SOLICITATION),
                own(target(), SOURCES_6),
            ]
            .concat(),
        ),
        ("", [of_type(IPV6), own(ipv6_source(), SOURCES_6)].concat()),
        ("", vec![drop()]),
    ]
}

const IPV4: u16 = libc::ETH_P_IP as u16;
const ARP: u16 = libc::ETH_P_ARP as u16;
const IPV6: u16 = libc::ETH_P_IPV6 as u16;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Where bytes stand in a frame.
type Place = (PayloadBase, u32, u32);

/// The hardware address that sent the frame.
const FRAME_SOURCE: Place = (PayloadBase::Link, 6, 6);

const fn network(offset: u32, length: u32) -> Place {
    (PayloadBase::Network, offset, length)
}

const fn transport(offset: u32, length: u32) -> Place {
    (PayloadBase::Transport, offset, length)
}

fn load((base, offset, length): Place, into: Register) -> Expression {
    Expression::Payload {
        base,
        offset,
        length,
        into,
    }
}

fn is(place: Place, value: &[u8]) -> Vec<Expression> {
    vec![load(place, Register(0)), equal(Register(0), value.to_vec())]
}

fn load_interface() -> Expression {
    Expression::Meta {
        key: MetaKey::InputName,
        into: Register(0),
    }
}

/// Loads the key of the sets of sources: four registers for the interface, two for the hardware address.
fn load_source(mac: Place, address: Place) -> Vec<Expression> {
    vec![load_interface(), load(mac, Register(4)), load(address, Register(6))]
}

fn in_set(set: &str, inverted: bool) -> Expression {
    Expression::InSet {
        set: set.to_owned(),
        key: Register(0),
        inverted,
    }
}

fn verdict(verdict: Verdict) -> Expression {
    Expression::Verdict(verdict)
}

fn of_type(kind: u16) -> Vec<Expression> {
    is((PayloadBase::Link, 12, 2), &kind.to_be_bytes())
}

fn of_icmp_type(kind: u8) -> Vec<Expression> {
    [
        transport_protocol(libc::IPPROTO_ICMPV6 as u8),
        is(transport(0, 1), &[kind]),
    ]
    .concat()
}

fn from_udp_port(port: u16) -> Vec<Expression> {
    [
        transport_protocol(libc::IPPROTO_UDP as u8),
        is(transport(0, 2), &port.to_be_bytes()),
    ]
    .concat()
}

/// The source is the unspecified address, as long as a node does not know whether its own is free.
fn from_nobody() -> Vec<Expression> {
    is(network(8, 16), &[0; 16])
}

/// Ethernet's and IPv4's addresses, of six and four bytes.
fn arp_of_ethernet() -> Vec<Expression> {
    is(network(0, 6), &[0, 1, 8, 0, 6, 4])
}

/// Both the frame and what it says are of this port: others believe the latter.
fn arp_senders() -> Vec<Expression> {
    let by = |mac: Place| [load_source(mac, network(14, 4)), vec![in_set(SOURCES_4, false)]].concat();
    [by(FRAME_SOURCE), by(network(8, 6))].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_follow_from_addresses() {
        let mac = pod_mac(&["10.244.1.7".parse().unwrap(), "fd00::7".parse().unwrap()]);
        assert_eq!(mac, [0x0a, 0x4b, 10, 244, 1, 7]);
        assert!(is_pod_mac(mac));
        assert_eq!(link_local(mac).to_string(), "fe80::84b:aff:fef4:107");
        assert_eq!(pod_mac(&["fd00::1:2".parse().unwrap()]), [0x0a, 0x4b, 0, 1, 0, 2]);
    }
}
