//! Ports of the host that pods have, held by sockets for as long as the pods live: a port on which a program of the host
//! listens is not a pod's to take, and no program gets one that packets are led away from.
//!
//! The sockets never see a packet, for the rules lead all of them to the pod. They are this process's: when it ends
//! rules go on working, and the next one takes the ports again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{NetworkError, PortMapping, Protocol};

/// The sockets of each sandbox.
#[derive(Debug, Default)]
pub struct HeldPorts(Mutex<BTreeMap<String, Vec<Held>>>);

#[derive(Debug)]
struct Held {
    mapping: PortMapping,
    place: HostPort,
    _socket: Option<OwnedFd>,
}

/// A port at one address of the host, or at all of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostPort {
    protocol: Protocol,
    address: SocketAddr,
}

impl HeldPorts {
    /// Takes the ports of a sandbox whose pod has these addresses. Holding them already is fine.
    pub fn hold(&self, id: &str, ips: &[IpAddr], mappings: &[PortMapping]) -> Result<(), NetworkError> {
        for mapping in mappings.iter().filter(|mapping| mapping.host_port != 0) {
            if let Some(place) = place(mapping, ips) {
                self.hold_one(id, place, mapping)?;
            }
        }
        Ok(())
    }

    pub fn release(&self, id: &str) {
        self.0.lock().remove(id);
    }

    /// What each sandbox has.
    pub fn mappings(&self) -> Vec<(String, Vec<PortMapping>)> {
        let sandboxes = self.0.lock();
        let mappings = |held: &Vec<Held>| held.iter().map(|held| held.mapping.clone()).collect();
        sandboxes
            .iter()
            .map(|(id, held)| (id.clone(), mappings(held)))
            .collect()
    }

    fn hold_one(&self, id: &str, place: HostPort, mapping: &PortMapping) -> Result<(), NetworkError> {
        let mut sandboxes = self.0.lock();
        let known = |held: &Held| held.place == place;
        if sandboxes.get(id).is_some_and(|held| held.iter().any(known)) {
            return Ok(());
        }
        let socket = open_patiently(place)?;
        let held = Held {
            mapping: mapping.clone(),
            place,
            _socket: socket,
        };
        sandboxes.entry(id.to_owned()).or_default().push(held);
        Ok(())
    }
}

/// Where a mapping's packets come in, if the pod has an address of that family.
fn place(mapping: &PortMapping, ips: &[IpAddr]) -> Option<HostPort> {
    let address = match mapping.host_ip.filter(|address| !address.is_unspecified()) {
        Some(address) => ips
            .iter()
            .any(|ip| ip.is_ipv4() == address.is_ipv4())
            .then_some(address)?,
        // A socket at the unspecified address of IPv6 holds the port of IPv4 too.
        None if ips.iter().any(IpAddr::is_ipv6) => Ipv6Addr::UNSPECIFIED.into(),
        None => Ipv4Addr::UNSPECIFIED.into(),
    };
    Some(HostPort {
        protocol: mapping.protocol,
        address: SocketAddr::new(address, mapping.host_port),
    })
}

/// A socket that was closed lives on for a moment in a child that has not become another program yet.
const CLOSING: Duration = Duration::from_millis(5);
const TRIES: usize = 4;

/// Takes a port, unless somebody keeps listening on it.
fn open_patiently(place: HostPort) -> Result<Option<OwnedFd>, NetworkError> {
    for _ in 1..TRIES {
        match open(place) {
            Err(NetworkError::HostPortInUse { .. }) => std::thread::sleep(CLOSING),
            done => return done,
        }
    }
    open(place)
}

/// Takes a port, or gives nothing where there is nothing to take it from: somebody is connected from it, but nobody
/// listens, which is no obstacle.
fn open(place: HostPort) -> Result<Option<OwnedFd>, NetworkError> {
    let opened = match place.protocol {
        Protocol::Tcp => TcpListener::bind(place.address).map(OwnedFd::from),
        Protocol::Udp => UdpSocket::bind(place.address).map(OwnedFd::from),
        // Opening such a socket would load the kernel's module for the sake of the first pod.
        Protocol::Sctp => Err(io::ErrorKind::AddrInUse.into()),
    };
    match opened {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match is_listened_on(place) {
            true => Err(in_use(place)),
            false => Ok(None),
        },
        // Packets for an address that is not the host's are not led anywhere.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(None),
        Err(source) => Err(NetworkError::HoldPort {
            port: place.address.port(),
            protocol: place.protocol,
            source,
        }),
        Ok(socket) => Ok(Some(socket)),
    }
}

fn in_use(place: HostPort) -> NetworkError {
    NetworkError::HostPortInUse {
        port: place.address.port(),
        protocol: place.protocol,
    }
}

/// Whether a socket of the host waits for whoever comes to the port. One that is connected to somebody does not.
fn is_listened_on(place: HostPort) -> bool {
    let tables: &[&str] = match place.protocol {
        Protocol::Tcp => &["tcp", "tcp6"],
        Protocol::Udp => &["udp", "udp6"],
        Protocol::Sctp => &["sctp/eps"],
    };
    tables.iter().any(|table| {
        // Without the protocol there is no table, and nobody who listens.
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        text.lines().skip(1).any(|line| listens(line, place))
    })
}

fn listens(line: &str, place: HostPort) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    if place.protocol == Protocol::Sctp {
        let number = |column: usize| fields.get(column).and_then(|text| text.parse::<u16>().ok());
        return number(SCTP_STATE) == Some(SCTP_LISTENING) && number(SCTP_PORT) == Some(place.address.port());
    }
    let (Some(local), Some(state)) = (fields.get(1), fields.get(3)) else {
        return false;
    };
    let waiting = match place.protocol {
        Protocol::Tcp => LISTEN,
        _ => UNCONNECTED,
    };
    *state == waiting && parse_local(local).is_some_and(|local| overlap(local, place.address))
}

/// The states of sockets, as `/proc/net/tcp` and `/proc/net/udp` write them.
const LISTEN: &str = "0A";
const UNCONNECTED: &str = "07";
/// The columns of the state and the port in the table of SCTP's endpoints.
const SCTP_STATE: usize = 3;
const SCTP_PORT: usize = 5;
const SCTP_LISTENING: u16 = 10;

/// `0100007F:1F90`: the words of the address in the host's byte order, and the port.
fn parse_local(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words = (0..address.len() / 8).map(|word| u32::from_str_radix(address.get(word * 8..word * 8 + 8)?, 16).ok());
    let bytes: Vec<u8> = words
        .collect::<Option<Vec<u32>>>()?
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
    Some(SocketAddr::new(crate::route::address_from(&bytes)?, port))
}

/// Whether the same packet may be for both. An unspecified address of IPv6 stands for IPv4's as well.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (first, second) = (one.ip().to_canonical(), other.ip().to_canonical());
    let all_of = |ip: IpAddr, other: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || other.is_ipv4());
    one.port() == other.port() && (first == second || all_of(first, second) || all_of(second, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(one: &str, other: &str) -> bool {
        let (one, other) = (one.parse().unwrap(), other.parse().unwrap());
        assert_eq!(overlap(one, other), overlap(other, one));
        overlap(one, other)
    }

    #[test]
    fn addresses_overlap_as_sockets_do() {
        assert!(overlaps("0.0.0.0:80", "127.0.0.1:80"));
        assert!(overlaps("[::]:80", "127.0.0.1:80"));
        assert!(overlaps("[::]:80", "0.0.0.0:80"));
        assert!(overlaps("[::ffff:127.0.0.1]:80", "127.0.0.1:80"));
        assert!(!overlaps("0.0.0.0:80", "0.0.0.0:81"));
        assert!(!overlaps("127.0.0.2:80", "127.0.0.1:80"));
        assert!(!overlaps("0.0.0.0:80", "[::1]:80"));
    }

    #[test]
    fn the_kernels_tables_are_read() {
        let place = |protocol, address: &str| HostPort {
            protocol,
            address: address.parse().unwrap(),
        };
        let listening = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1";
        assert!(listens(listening, place(Protocol::Tcp, "0.0.0.0:8080")));
        assert!(!listens(listening, place(Protocol::Tcp, "192.0.2.1:8080")));
        assert!(!listens(
            &listening.replace(" 0A ", " 01 "),
            place(Protocol::Tcp, "0.0.0.0:8080")
        ));
        let six = "   0: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 07 0 0 0 0 0 1 1";
        assert!(listens(six, place(Protocol::Udp, "[::]:53")));
        assert!(!listens(six, place(Protocol::Udp, "0.0.0.0:53")));
        let sctp = " ffff8d0b 1234 2 10 3 9999 0 1234 0.0.0.0";
        assert!(listens(sctp, place(Protocol::Sctp, "0.0.0.0:9999")));
        for torn in ["", "x", "0: y:z 0 0A", "0: 01:1F90 0 0A"] {
            assert!(!listens(torn, place(Protocol::Tcp, "0.0.0.0:8080")));
        }
    }
}
