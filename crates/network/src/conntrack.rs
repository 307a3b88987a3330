//! The kernel's table of connections: finding entries and forgetting them, by netlink.
//!
//! A connection is translated as its first packet was. For UDP, which has no end, an entry can outlive the pod that
//! it leads to; whoever changes the rules must remove it.

use std::net::{IpAddr, SocketAddr};

use crate::netlink::{self, Attributes, Message, Writer};
use crate::route::address_from;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// `IPPROTO_…`.
    pub protocol: u8,
    pub source: SocketAddr,
    /// Where the first packet was sent to.
    pub destination: SocketAddr,
    /// Who answers: the destination after translation.
    pub answered_by: SocketAddr,
    /// The entry's key as the kernel gave it.
    key: Vec<u8>,
    id: [u8; 4],
}

#[derive(Debug)]
pub struct Conntrack(netlink::Socket);

impl Conntrack {
    /// Opens the table of the calling thread's namespace.
    pub fn open() -> Result<Conntrack, netlink::Error> {
        netlink::Socket::open(libc::NETLINK_NETFILTER).map(Conntrack)
    }

    /// Forgets everything that one of these addresses is an end of. Whoever takes over an address calls it, or what the
    /// last owner's neighbours keep sending would still belong to connections that were let through to that owner.
    pub fn forget(&self, addresses: &[IpAddr]) -> Result<(), netlink::Error> {
        let is_end = |connection: &Connection| {
            let ends = [connection.source, connection.destination, connection.answered_by];
            ends.iter().any(|end| addresses.contains(&end.ip()))
        };
        self.find(is_end)?
            .iter()
            .try_for_each(|connection| self.remove(connection))
    }

    /// All entries for which `wanted` holds.
    pub fn find(&self, wanted: impl Fn(&Connection) -> bool) -> Result<Vec<Connection>, netlink::Error> {
        let build = |w: &mut Writer| {
            w.raw(&[libc::AF_UNSPEC as u8, 0, 0, 0]);
        };
        self.0.list(GET, build, |message| read(message).filter(&wanted))
    }

    /// Forgets an entry; that it is gone already is fine.
    pub fn remove(&self, connection: &Connection) -> Result<(), netlink::Error> {
        let family = if connection.source.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let removed = self.0.call(
            DELETE,
            0,
            |w| {
                w.raw(&[family as u8, 0, 0, 0])
                    .attribute(ORIGINAL | libc::NLA_F_NESTED as u16, &connection.key)
                    .attribute(ID, &connection.id);
            },
            |_| {},
        );
        match removed {
            Err(error) if error.is_absent() => Ok(()),
            other => other,
        }
    }
}

const GET: u16 = 1 << 8 | 1;
const DELETE: u16 = 1 << 8 | 2;
/// The length of `struct nfgenmsg`.
const HEADER: usize = 4;
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;
const ID: u16 = 12;

fn read(message: &Message<'_>) -> Option<Connection> {
    let attributes = Attributes::after(message, HEADER);
    let original = attributes.nest(ORIGINAL)?;
    let (source, destination) = ends(original)?;
    let (answered_by, _) = ends(attributes.nest(REPLY)?)?;
    Some(Connection {
        protocol: *original.nest(2)?.find(1)?.first()?,
        source,
        destination,
        answered_by,
        key: attributes.find(ORIGINAL)?.to_vec(),
        id: attributes.find(ID)?.try_into().ok()?,
    })
}

/// The source and the destination of one direction. Protocols without ports, such as ICMP, have port 0.
fn ends(tuple: Attributes<'_>) -> Option<(SocketAddr, SocketAddr)> {
    let (addresses, protocol) = (tuple.nest(1)?, tuple.nest(2)?);
    let address =
        |ipv4, ipv6| -> Option<IpAddr> { address_from(addresses.find(ipv4).or_else(|| addresses.find(ipv6))?) };
    let port = |kind| {
        let bytes = protocol.find(kind).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u16::from_be_bytes)
    };
    let source = SocketAddr::new(address(1, 3)?, port(2));
    let destination = SocketAddr::new(address(2, 4)?, port(3));
    Some((source, destination))
}
