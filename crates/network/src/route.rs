//! Links, addresses and routes, by rtnetlink.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use crate::Cidr;
use crate::netlink::{Attributes, Error, Message, Namespace, Socket, Writer};

/// Changes and reads the links, addresses and routes of one network namespace.
#[derive(Debug)]
pub struct Route(Socket);

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// What kind of virtual device it is, such as `veth` or `bridge`; empty for others.
    pub kind: String,
    pub mtu: u32,
    pub up: bool,
    /// The bridge it is a port of.
    pub master: Option<u32>,
    pub mac: Vec<u8>,
    /// The index of the other end of a pair, in that end's namespace.
    pub peer: Option<u32>,
    /// A text that people or programs attached; empty when there is none.
    pub alias: String,
}

/// A route of ours to pods of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayRoute {
    pub block: Cidr,
    pub gateway: IpAddr,
    pub link: u32,
}

/// A pair of interfaces: one here, enslaved to a bridge, one in a pod.
#[derive(Debug)]
pub struct VethPair<'a> {
    pub name: &'a str,
    pub bridge: u32,
    pub mtu: u32,
    pub peer_name: &'a str,
    pub peer_mac: Mac,
    pub peer_namespace: &'a Namespace,
}

/// The hardware address of an interface.
pub type Mac = [u8; 6];

/// The loopback interface has the same index in every namespace.
pub const LOOPBACK: u32 = 1;

impl Route {
    pub fn open() -> Result<Route, Error> {
        Socket::open(libc::NETLINK_ROUTE).map(Route)
    }

    pub fn open_in(namespace: &Namespace) -> Result<Route, Error> {
        Socket::open_in(namespace, libc::NETLINK_ROUTE).map(Route)
    }

    /// The link of that name, if there is one.
    pub fn link(&self, name: &str) -> Result<Option<Link>, Error> {
        let mut found = None;
        self.ask_link(name, |message| found = read_link(message))?;
        Ok(found)
    }

    /// Gives what the kernel says about a link to `read`, or nothing when there is none of that name.
    fn ask_link(&self, name: &str, read: impl FnMut(&Message<'_>)) -> Result<(), Error> {
        let build = |w: &mut Writer| {
            w.raw(&link_header(0, 0, 0)).text(libc::IFLA_IFNAME, name);
        };
        ignore_absent(self.0.call(libc::RTM_GETLINK, 0, build, read))
    }

    pub fn links(&self) -> Result<Vec<Link>, Error> {
        let build = |w: &mut Writer| {
            w.raw(&link_header(0, 0, 0));
        };
        self.0.list(libc::RTM_GETLINK, build, read_link)
    }

    /// Creates a bridge that is up and keeps the given hardware address whatever ports come and go.
    pub fn add_bridge(&self, name: &str, mtu: u32, mac: Mac) -> Result<(), Error> {
        self.change(libc::RTM_NEWLINK, CREATE, |w| {
            w.raw(&link_header(0, UP, UP))
                .text(libc::IFLA_IFNAME, name)
                .u32(libc::IFLA_MTU, mtu)
                .attribute(libc::IFLA_ADDRESS, &mac)
                .nest(libc::IFLA_LINKINFO, |w| {
                    w.text(libc::IFLA_INFO_KIND, "bridge");
                });
        })
    }

    /// Creates a pair, the near end up, the far end directly in its own namespace: moving it there afterwards would
    /// wait for the kernel's grace periods.
    pub fn add_veth(&self, pair: &VethPair<'_>) -> Result<(), Error> {
        let namespace = pair.peer_namespace.as_fd().as_raw_fd() as u32;
        self.change(libc::RTM_NEWLINK, CREATE, |w| {
            w.raw(&link_header(0, UP, UP))
                .text(libc::IFLA_IFNAME, pair.name)
                .u32(libc::IFLA_MTU, pair.mtu)
                .u32(libc::IFLA_MASTER, pair.bridge)
                .nest(libc::IFLA_LINKINFO, |w| {
                    w.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, |w| {
                        w.nest(VETH_INFO_PEER, |w| {
                            w.raw(&link_header(0, 0, 0))
                                .text(libc::IFLA_IFNAME, pair.peer_name)
                                .u32(libc::IFLA_MTU, pair.mtu)
                                .attribute(libc::IFLA_ADDRESS, &pair.peer_mac)
                                .u32(libc::IFLA_NET_NS_FD, namespace);
                        });
                    });
                });
        })
    }

    /// Makes a bridge's port one behind which only known hardware addresses are: the bridge may send a packet back to
    /// the port it came from, but learns no addresses there and sends nothing there that is for others.
    /// `alias`, if any, tells people whose port it is.
    pub fn set_port(&self, name: &str, alias: Option<&str>) -> Result<(), Error> {
        self.change(libc::RTM_NEWLINK, 0, |w| {
            w.raw(&link_header(0, 0, 0)).text(libc::IFLA_IFNAME, name);
            if let Some(alias) = alias {
                w.attribute(libc::IFLA_IFALIAS, alias.as_bytes());
            }
            w.nest(libc::IFLA_LINKINFO, |w| {
                w.text(IFLA_INFO_SLAVE_KIND, "bridge").nest(IFLA_INFO_SLAVE_DATA, |w| {
                    w.attribute(IFLA_BRPORT_MODE, &[1])
                        .attribute(IFLA_BRPORT_LEARNING, &[0])
                        .attribute(IFLA_BRPORT_UNICAST_FLOOD, &[0]);
                });
            });
        })
    }

    /// Tells a bridge which hardware address is behind one of its ports; that it knows is fine.
    pub fn set_port_mac(&self, port: u32, mac: Mac) -> Result<(), Error> {
        let mut header = [0; NEIGHBOUR_HEADER];
        header[0] = libc::AF_BRIDGE as u8;
        header[4..8].copy_from_slice(&port.to_ne_bytes());
        header[8..10].copy_from_slice(&libc::NUD_NOARP.to_ne_bytes());
        header[10] = libc::NTF_MASTER;
        self.change(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, |w| {
            w.raw(&header).attribute(libc::NDA_LLADDR, &mac);
        })
    }

    /// Tells the kernel which hardware address a neighbour on a link has, so that it never asks. What waits for the answer
    /// is sent at once.
    pub fn set_neighbour(&self, index: u32, ip: IpAddr, mac: Mac) -> Result<(), Error> {
        let header = neighbour_header(ip, index, libc::NUD_PERMANENT);
        self.change(libc::RTM_NEWNEIGH, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, |w| {
            w.raw(&header)
                .attribute(libc::NDA_DST, &octets(ip))
                .attribute(libc::NDA_LLADDR, &mac);
        })
    }

    /// Forgets a neighbour on a link; one that is not known is fine.
    pub fn remove_neighbour(&self, index: u32, ip: IpAddr) -> Result<(), Error> {
        let header = neighbour_header(ip, index, 0);
        ignore_absent(self.change(libc::RTM_DELNEIGH, 0, |w| {
            w.raw(&header).attribute(libc::NDA_DST, &octets(ip));
        }))
    }

    /// Makes a link a port of a bridge, and brings it up; one that is gone is fine.
    pub fn set_master(&self, name: &str, bridge: u32) -> Result<(), Error> {
        ignore_absent(self.change(libc::RTM_NEWLINK, 0, |w| {
            w.raw(&link_header(0, UP, UP))
                .text(libc::IFLA_IFNAME, name)
                .u32(libc::IFLA_MASTER, bridge);
        }))
    }

    /// The hardware address of the other end of a pair, in whatever namespace that is.
    pub fn peer_mac(&self, name: &str) -> Result<Option<Mac>, Error> {
        let mut peer = None;
        self.ask_link(name, |message| {
            let attributes = Attributes::after(message, LINK_HEADER);
            peer = attributes.u32(libc::IFLA_LINK).zip(attributes.u32(IFLA_LINK_NETNSID));
        })?;
        let Some((index, namespace)) = peer else {
            return Ok(None);
        };
        let mut mac = None;
        let asked = self.0.call(
            libc::RTM_GETLINK,
            0,
            |w| {
                w.raw(&link_header(index, 0, 0)).u32(IFLA_TARGET_NETNSID, namespace);
            },
            |message| mac = read_link(message).and_then(|link| link.mac.try_into().ok()),
        );
        ignore_absent(asked).map(|()| mac)
    }

    /// Attaches a text to a link.
    pub fn set_alias(&self, name: &str, alias: &str) -> Result<(), Error> {
        self.change(libc::RTM_NEWLINK, 0, |w| {
            w.raw(&link_header(0, 0, 0))
                .text(libc::IFLA_IFNAME, name)
                .attribute(libc::IFLA_IFALIAS, alias.as_bytes());
        })
    }

    pub fn set_up(&self, index: u32) -> Result<(), Error> {
        self.change(libc::RTM_NEWLINK, 0, |w| {
            w.raw(&link_header(index, UP, UP));
        })
    }

    /// Removes a link; absent is fine.
    pub fn remove_link(&self, name: &str) -> Result<(), Error> {
        ignore_absent(self.change(libc::RTM_DELLINK, 0, |w| {
            w.raw(&link_header(0, 0, 0)).text(libc::IFLA_IFNAME, name);
        }))
    }

    /// Gives a link an address; having it already is fine. IPv6 addresses are usable at once, without probing
    /// whether somebody else has them: we hand them out.
    pub fn add_address(&self, index: u32, address: IpAddr, prefix: u8) -> Result<(), Error> {
        let added = self.change(libc::RTM_NEWADDR, CREATE, |w| {
            w.raw(&address_header(address, prefix, index))
                .attribute(libc::IFA_LOCAL, &octets(address))
                .attribute(libc::IFA_ADDRESS, &octets(address))
                .u32(libc::IFA_FLAGS, libc::IFA_F_NODAD);
        });
        match added {
            Err(error) if error.is_existing() => Ok(()),
            other => other,
        }
    }

    /// Takes an address from a link; not having it is fine.
    pub fn remove_address(&self, index: u32, address: IpAddr, prefix: u8) -> Result<(), Error> {
        ignore_absent(self.change(libc::RTM_DELADDR, 0, |w| {
            w.raw(&address_header(address, prefix, index))
                .attribute(libc::IFA_LOCAL, &octets(address));
        }))
    }

    /// The addresses of a link with their prefix lengths, without those the kernel makes itself (link-local).
    pub fn addresses(&self, index: u32) -> Result<Vec<(IpAddr, u8)>, Error> {
        let build = |w: &mut Writer| {
            w.raw(&[0; ADDRESS_HEADER]);
        };
        self.0
            .list(libc::RTM_GETADDR, build, |message| read_address(message, index))
    }

    /// Leads `block` to a link: through `gateway`, or to neighbours on the link itself.
    pub fn set_route(&self, block: Cidr, index: u32, gateway: Option<IpAddr>) -> Result<(), Error> {
        let scope = if gateway.is_some() {
            libc::RT_SCOPE_UNIVERSE
        } else {
            libc::RT_SCOPE_LINK
        };
        self.replace_route(route_header(block, scope), block, index, gateway)
    }

    /// Leads `block`, pods of another node, through `gateway`. The route is marked as ours.
    pub fn set_gateway_route(&self, block: Cidr, index: u32, gateway: IpAddr) -> Result<(), Error> {
        let mut header = route_header(block, libc::RT_SCOPE_UNIVERSE);
        header[ROUTE_PROTOCOL] = OUR_PROTOCOL;
        self.replace_route(header, block, index, Some(gateway))
    }

    /// The routes that [`Route::set_gateway_route`] made.
    pub fn gateway_routes(&self) -> Result<Vec<GatewayRoute>, Error> {
        let build = |w: &mut Writer| {
            w.raw(&[0; ROUTE_HEADER]);
        };
        self.0.list(libc::RTM_GETROUTE, build, read_gateway_route)
    }

    fn replace_route(
        &self,
        header: [u8; ROUTE_HEADER],
        block: Cidr,
        index: u32,
        gateway: Option<IpAddr>,
    ) -> Result<(), Error> {
        self.change(libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE, |w| {
            w.raw(&header)
                .attribute(libc::RTA_DST, &octets(block.address()))
                .u32(libc::RTA_OIF, index);
            if let Some(gateway) = gateway {
                w.attribute(libc::RTA_GATEWAY, &octets(gateway));
            }
        })
    }

    /// Removes the route to `block` through a link, whoever made it; absent is fine.
    pub fn remove_route(&self, block: Cidr, index: u32) -> Result<(), Error> {
        let mut header = route_header(block, libc::RT_SCOPE_NOWHERE);
        header[ROUTE_PROTOCOL] = libc::RTPROT_UNSPEC;
        ignore_absent(self.change(libc::RTM_DELROUTE, 0, |w| {
            w.raw(&header)
                .attribute(libc::RTA_DST, &octets(block.address()))
                .u32(libc::RTA_OIF, index);
        }))
    }

    /// The link that packets to `destination` would leave by, if any would.
    pub fn link_towards(&self, destination: IpAddr) -> Result<Option<Link>, Error> {
        let mut index = None;
        let host = Cidr::containing(destination, u8::MAX);
        let asked = self.0.call(
            libc::RTM_GETROUTE,
            0,
            |w| {
                w.raw(&route_header(host, libc::RT_SCOPE_UNIVERSE))
                    .attribute(libc::RTA_DST, &octets(destination));
            },
            |message| index = Attributes::after(message, ROUTE_HEADER).u32(libc::RTA_OIF),
        );
        match asked {
            Ok(()) => Ok(self.links()?.into_iter().find(|link| Some(link.index) == index)),
            Err(error) if error.errno == libc::ENETUNREACH => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn change(&self, kind: u16, flags: i32, build: impl FnOnce(&mut Writer)) -> Result<(), Error> {
        self.0.call(kind, flags, build, |_| {})
    }
}

const UP: u32 = libc::IFF_UP as u32;
const CREATE: i32 = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_BRPORT_MODE: u16 = 4;
const IFLA_BRPORT_LEARNING: u16 = 8;
const IFLA_BRPORT_UNICAST_FLOOD: u16 = 9;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_TARGET_NETNSID: u16 = 46;
/// The lengths of `struct ifinfomsg`, `struct ndmsg`, `struct ifaddrmsg` and `struct rtmsg`.
pub(crate) const LINK_HEADER: usize = 16;
const NEIGHBOUR_HEADER: usize = 12;
pub(crate) const ADDRESS_HEADER: usize = 8;
pub(crate) const ROUTE_HEADER: usize = 12;
/// Where `struct rtmsg` says who made a route, and what stands there for us; below 64 are the kernel's and known daemons'.
const ROUTE_PROTOCOL: usize = 5;
const OUR_PROTOCOL: u8 = b'K';

fn link_header(index: u32, flags: u32, change: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

fn address_header(address: IpAddr, prefix: u8, index: u32) -> [u8; ADDRESS_HEADER] {
    let mut header = [0; ADDRESS_HEADER];
    header[0] = family(address);
    header[1] = prefix;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header
}

fn route_header(block: Cidr, scope: u8) -> [u8; ROUTE_HEADER] {
    let mut header = [0; ROUTE_HEADER];
    header[0] = family(block.address());
    header[1] = block.prefix();
    header[4] = libc::RT_TABLE_MAIN;
    header[5] = libc::RTPROT_BOOT;
    header[6] = scope;
    header[7] = libc::RTN_UNICAST;
    header
}

fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// An address as it stands in packets.
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The reverse of [`octets`].
pub fn address_from(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
        _ => None,
    }
}

fn read_link(message: &Message<'_>) -> Option<Link> {
    if message.kind != libc::RTM_NEWLINK || message.body.len() < LINK_HEADER {
        return None;
    }
    let attributes = Attributes::after(message, LINK_HEADER);
    let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| message.body[at + byte]));
    let info = attributes.nest(libc::IFLA_LINKINFO);
    Some(Link {
        index: number(4),
        name: attributes.text(libc::IFLA_IFNAME)?.to_owned(),
        kind: info
            .and_then(|info| info.text(libc::IFLA_INFO_KIND))
            .unwrap_or_default()
            .to_owned(),
        mtu: attributes.u32(libc::IFLA_MTU).unwrap_or(0),
        up: number(8) & UP != 0,
        master: attributes.u32(libc::IFLA_MASTER),
        mac: attributes.find(libc::IFLA_ADDRESS).unwrap_or(&[]).to_vec(),
        peer: attributes.u32(libc::IFLA_LINK),
        alias: attributes.text(libc::IFLA_IFALIAS).unwrap_or_default().to_owned(),
    })
}

fn read_address(message: &Message<'_>, index: u32) -> Option<(IpAddr, u8)> {
    let header = message.body.get(..ADDRESS_HEADER)?;
    let of_link = u32::from_ne_bytes(header[4..8].try_into().ok()?) == index;
    if message.kind != libc::RTM_NEWADDR || !of_link || header[3] == libc::RT_SCOPE_LINK {
        return None;
    }
    let attributes = Attributes::after(message, ADDRESS_HEADER);
    let octets = attributes
        .find(libc::IFA_LOCAL)
        .or(attributes.find(libc::IFA_ADDRESS))?;
    Some((address_from(octets)?, header[1]))
}

fn read_gateway_route(message: &Message<'_>) -> Option<GatewayRoute> {
    let header = message.body.get(..ROUTE_HEADER)?;
    if message.kind != libc::RTM_NEWROUTE || header[ROUTE_PROTOCOL] != OUR_PROTOCOL {
        return None;
    }
    let attributes = Attributes::after(message, ROUTE_HEADER);
    let address = address_from(attributes.find(libc::RTA_DST)?)?;
    Some(GatewayRoute {
        block: Cidr::containing(address, header[1]),
        gateway: address_from(attributes.find(libc::RTA_GATEWAY)?)?,
        link: attributes.u32(libc::RTA_OIF)?,
    })
}

fn neighbour_header(ip: IpAddr, index: u32, state: u16) -> [u8; NEIGHBOUR_HEADER] {
    let family = if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut header = [0; NEIGHBOUR_HEADER];
    header[0] = family as u8;
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..10].copy_from_slice(&state.to_ne_bytes());
    header
}

fn ignore_absent(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(error) if error.is_absent() => Ok(()),
        other => other,
    }
}
