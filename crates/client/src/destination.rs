//! Where connections may lead when others than the cluster's administrators say where.
//!
//! The API server connects to what Nodes, Pods, EndpointSlices and DNS answers name. Those are written by nodes and
//! users, who must not reach by it what only the server's own machine reaches, nor the server itself.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Who says which address a connection leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An address that an administrator wrote down, as in the URL of a webhook.
    Literal,
    /// What a name resolves to that an administrator wrote down.
    Name,
    /// An object of the cluster: a Node, a Pod, an EndpointSlice, or the external name of a Service.
    Object,
}

/// Why a connection is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    #[error("address not allowed: {address} is {kind}")]
    Special { address: IpAddr, kind: &'static str },
    #[error("address not allowed: {0} belongs to Services")]
    Service(IpAddr),
    #[error("address not allowed: an API server listens at {0}")]
    ApiServer(SocketAddr),
    /// The one reason that a proof of identity outweighs: pods on the host's network are reached by such addresses.
    #[error("address not allowed: {0} belongs to the API server's own machine")]
    OwnMachine(IpAddr),
}

/// What a server knows of addresses that nobody else may lead it to.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    /// Where this server is reached.
    pub server: Option<SocketAddr>,
    /// The addresses of Services: the first one and the length of their common prefix.
    pub services: Option<(Ipv4Addr, u8)>,
}

impl Destinations {
    /// Whether a connection to `address` may be made. `servers` are where other API servers are reached.
    pub fn check(&self, address: SocketAddr, origin: Origin, servers: &[SocketAddr]) -> Result<(), DestinationError> {
        if origin == Origin::Literal {
            return Ok(());
        }
        let address = SocketAddr::new(canonical(address.ip()), address.port());
        let ip = address.ip();
        if let Some(kind) = special_kind(ip) {
            return Err(DestinationError::Special { address: ip, kind });
        }
        if servers.iter().chain(&self.server).any(|server| *server == address) {
            return Err(DestinationError::ApiServer(address));
        }
        let is_server_port = self.server.is_some_and(|server| server.port() == address.port());
        if origin == Origin::Object && self.is_service(ip) {
            return Err(DestinationError::Service(ip));
        }
        // Asked last, because the kernel has to list its addresses for it.
        let is_own = (origin == Origin::Object || is_server_port) && is_own_machine(ip);
        match (is_own, is_server_port, origin) {
            (true, true, _) => Err(DestinationError::ApiServer(address)),
            (true, false, Origin::Object) => Err(DestinationError::OwnMachine(ip)),
            _ => Ok(()),
        }
    }

    fn is_service(&self, address: IpAddr) -> bool {
        let (IpAddr::V4(address), Some((first, length))) = (address, self.services) else {
            return false;
        };
        let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
        address.to_bits() & mask == first.to_bits() & mask
    }
}

/// The addresses of a host, which is a name or an address already. They are checked and connected to as they are here:
/// asked a second time, a name may resolve to something else.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    match found.is_empty() {
        true => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("no addresses for host {host:?}"),
        )),
        false => Ok(found),
    }
}

/// An IPv4 address that is written inside of an IPv6 one leads where the IPv4 address leads.
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => embedded_ipv4(address).map_or(IpAddr::V6(address), IpAddr::V4),
    }
}

/// What is special about an address that no pod and no node can have, if anything.
pub fn special_kind(address: IpAddr) -> Option<&'static str> {
    match canonical(address) {
        IpAddr::V4(address) if address.octets()[0] == 0 => Some("an unspecified address"),
        IpAddr::V4(address) if address.is_loopback() => Some("a loopback address"),
        IpAddr::V4(address) if address.is_link_local() => Some("a link-local address"),
        IpAddr::V4(address) if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(address) if address.is_broadcast() => Some("a broadcast address"),
        IpAddr::V4(_) => None,
        IpAddr::V6(address) if address.is_unspecified() => Some("an unspecified address"),
        IpAddr::V6(address) if address.is_loopback() => Some("a loopback address"),
        IpAddr::V6(address) if address.is_unicast_link_local() => Some("a link-local address"),
        IpAddr::V6(address) if address.is_multicast() => Some("a multicast address"),
        IpAddr::V6(_) => None,
    }
}

/// Mapped (::ffff:0:0/96), compatible (::/96), translated (64:ff9b::/96) and 6to4 (2002::/16) addresses.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(from(high, low)),
        [0x2002, high, low, ..] => Some(from(high, low)),
        _ => None,
    }
}

/// Whether a link of this machine has the address. What cannot be found out is taken for the machine's own.
fn is_own_machine(address: IpAddr) -> bool {
    let Ok(links) = nix::ifaddrs::getifaddrs() else {
        return true;
    };
    links.filter_map(|link| link.address).any(|found| {
        let v4 = found.as_sockaddr_in().map(|found| IpAddr::V4(found.ip()));
        let v6 = found.as_sockaddr_in6().map(|found| IpAddr::V6(found.ip()));
        v4.or(v6) == Some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 203.0.113.0/24 and 2001:db8::/32 are for documentation: this machine should have no address of them.
    fn destinations() -> Destinations {
        Destinations {
            server: Some("203.0.113.1:6443".parse().unwrap()),
            services: Some((Ipv4Addr::new(10, 96, 0, 0), 16)),
        }
    }

    fn check(address: &str, origin: Origin) -> Result<(), DestinationError> {
        let others = ["203.0.113.2:6443".parse().unwrap()];
        destinations().check(address.parse().unwrap(), origin, &others)
    }

    #[test]
    fn objects_and_names_lead_to_no_special_address_however_it_is_written() {
        for address in [
            "0.0.0.0:80",
            "0.0.0.1:80",
            "127.0.0.1:80",
            "127.99.0.1:80",
            "169.254.169.254:80",
            "224.0.0.1:80",
            "239.1.1.1:80",
            "255.255.255.255:80",
            "[::]:80",
            "[::1]:80",
            "[fe80::1]:80",
            "[ff02::1]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:0.0.0.0]:80",
            "[::ffff:169.254.169.254]:80",
            "[::127.0.0.1]:80",
            "[64:ff9b::127.0.0.1]:80",
            "[2002:7f00:1::]:80",
        ] {
            for origin in [Origin::Object, Origin::Name] {
                let refused = check(address, origin);
                assert!(
                    matches!(refused, Err(DestinationError::Special { .. })),
                    "{address} {origin:?} {refused:?}"
                );
            }
            assert_eq!(check(address, Origin::Literal), Ok(()), "an administrator may");
        }
    }

    #[test]
    fn nobody_is_led_to_an_api_server() {
        for address in ["203.0.113.1:6443", "203.0.113.2:6443", "[::ffff:203.0.113.1]:6443"] {
            for origin in [Origin::Object, Origin::Name] {
                let refused = check(address, origin);
                assert!(
                    matches!(refused, Err(DestinationError::ApiServer(_))),
                    "{address} {refused:?}"
                );
            }
        }
        assert_eq!(check("203.0.113.1:10250", Origin::Object), Ok(()));
    }

    #[test]
    fn objects_do_not_lead_to_services() {
        for address in ["10.96.0.1:443", "10.96.255.255:1", "[::ffff:10.96.0.1]:443"] {
            assert!(
                matches!(check(address, Origin::Object), Err(DestinationError::Service(_))),
                "{address}"
            );
            assert_eq!(check(address, Origin::Name), Ok(()));
        }
        assert_eq!(check("10.97.0.1:443", Origin::Object), Ok(()));
    }

    #[test]
    fn other_addresses_are_fine() {
        for address in ["198.51.100.7:80", "[2001:db8::7]:80", "198.51.100.1:6443"] {
            assert_eq!(check(address, Origin::Object), Ok(()), "{address}");
        }
    }

    /// The address of the default route, if this machine has one, is its own in every way of writing.
    #[test]
    fn the_machines_own_addresses_are_told_apart() {
        let links = nix::ifaddrs::getifaddrs().unwrap();
        let mut own = links.filter_map(|link| Some(link.address?.as_sockaddr_in()?.ip()));
        let Some(own) = own.find(|address| special_kind(IpAddr::V4(*address)).is_none()) else {
            return;
        };
        for (port, to_server) in [(10250, false), (6443, true)] {
            for ip in [IpAddr::V4(own), IpAddr::V6(own.to_ipv6_mapped())] {
                let refused = destinations().check(SocketAddr::new(ip, port), Origin::Object, &[]);
                match to_server {
                    true => assert!(matches!(refused, Err(DestinationError::ApiServer(_))), "{refused:?}"),
                    false => assert!(matches!(refused, Err(DestinationError::OwnMachine(_))), "{refused:?}"),
                }
            }
        }
    }

    #[tokio::test]
    async fn what_only_a_resolver_takes_for_an_address_is_resolved_before_it_is_checked() {
        for host in ["127.1", "localhost", "0x7f.0.0.1", "2130706433"] {
            let Ok(found) = resolve(host, 80).await else { continue };
            for address in found {
                assert!(destinations().check(address, Origin::Object, &[]).is_err(), "{host}");
            }
        }
    }
}
