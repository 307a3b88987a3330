//! The interfaces of the built-in network: the bridge of the host and the pairs that lead to pods.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::BridgeOptions;
use super::addresses::gateway;
use super::guard::{self, Port};
use crate::error::During;
use crate::netlink::Namespace;
use crate::route::{LOOPBACK, Link, Mac, Route, VethPair, octets};
use crate::{Cidr, NetworkError, POD_INTERFACE, SandboxNetwork, sysctl};

/// What our bridge carries as its alias, so that we never take down somebody else's of the same name.
const BRIDGE_ALIAS: &str = "karve pod network";
/// The MTU of a machine without a default route.
const FALLBACK_MTU: u32 = 1500;

/// Brings up the bridge with the gateways' addresses, and lets the kernel route.
pub fn ensure_host(options: &BridgeOptions) -> Result<(), NetworkError> {
    let route = host()?;
    let bridge = ensure_bridge(&route, options)?;
    route
        .set_up(bridge.index)
        .during(|| format!("bring up {}", options.bridge))?;
    for &block in &options.pod_cidrs {
        let address = gateway(block);
        route
            .add_address(bridge.index, address, block.prefix())
            .during(|| format!("give {address}/{} to {}", block.prefix(), options.bridge))?;
    }
    configure_kernel(options)
}

/// Takes the gateways of blocks that are no longer the node's from the bridge.
pub fn remove_gateways(options: &BridgeOptions, gone: &[Cidr]) -> Result<(), NetworkError> {
    let route = host()?;
    let Some(bridge) = find(&route, &options.bridge)? else {
        return Ok(());
    };
    for &block in gone.iter().filter(|block| !options.pod_cidrs.contains(block)) {
        let address = gateway(block);
        route
            .remove_address(bridge.index, address, block.prefix())
            .during(|| format!("take {address} from {}", options.bridge))?;
    }
    Ok(())
}

pub fn check_host(options: &BridgeOptions) -> Result<(), NetworkError> {
    let name = &options.bridge;
    match find(&host()?, name)? {
        Some(bridge) if bridge.up => Ok(()),
        Some(_) => Err(NetworkError::BridgeUnusable {
            name: name.clone(),
            reason: "it is down",
        }),
        None => Err(NetworkError::BridgeUnusable {
            name: name.clone(),
            reason: "it is gone",
        }),
    }
}

/// Makes the pair, and the addresses and routes inside the pod. What is there already is kept.
pub fn connect(
    options: &BridgeOptions,
    sandbox: &SandboxNetwork,
    namespace: &Namespace,
    port: &Port,
    gateways: &[IpAddr],
) -> Result<(), NetworkError> {
    let route = host()?;
    let bridge = match find(&route, &options.bridge)? {
        Some(bridge) => bridge,
        None => {
            tracing::warn!(
                bridge = options.bridge,
                "Bridge was removed by another program; creating it again"
            );
            ensure_host(options)?;
            ensure_bridge(&route, options)?
        }
    };
    let pod = Route::open_in(namespace).during(|| "open the links of the pod".to_owned())?;
    let pair = VethPair {
        name: &port.interface,
        bridge: bridge.index,
        mtu: bridge.mtu,
        peer_name: POD_INTERFACE,
        peer_mac: port.mac,
        peer_namespace: namespace,
    };
    let interface = ensure_pair(&route, &pod, &pair)?;
    let alias = format!("karve pod {}/{}", sandbox.namespace, sandbox.name);
    secure(&route, port, interface.peer, Some(&alias))?;
    for (name, index) in [("lo", LOOPBACK), (POD_INTERFACE, interface.index)] {
        pod.set_up(index).during(|| format!("bring up {name} in the pod"))?;
    }
    for (&ip, &gateway) in port.ips.iter().zip(gateways) {
        configure(&pod, interface.index, ip, gateway)?;
    }
    introduce(&route, &bridge, port)
}

/// Tells the host who has a pod's addresses. Packets that wait for an answer to that were let through when the address was
/// nobody's: they get to the pod now, while no process is in it, and not when the kernel asks again.
fn introduce(route: &Route, bridge: &Link, port: &Port) -> Result<(), NetworkError> {
    for &ip in &port.ips {
        route
            .set_neighbour(bridge.index, ip, port.mac)
            .during(|| format!("tell the host who has {ip}"))?;
    }
    Ok(())
}

/// Removes the pair of a sandbox, and what the host knows of the addresses behind it.
pub fn disconnect(options: &BridgeOptions, id: &str, ips: &[IpAddr]) -> Result<(), NetworkError> {
    let route = host()?;
    remove_link(&route, &host_interface(&options.bridge, id))?;
    let Some(bridge) = find(&route, &options.bridge)? else {
        return Ok(());
    };
    for &ip in ips {
        route
            .remove_neighbour(bridge.index, ip)
            .during(|| format!("forget who has {ip}"))?;
    }
    Ok(())
}

/// What of the ports of sandboxes is not as it should be, by the sandboxes' ids.
#[derive(Debug, Default)]
pub struct Repairs {
    /// Were not ports of the bridge, or down, and are again. They are to be secured.
    pub detached: BTreeSet<String>,
    /// Have no link at all.
    pub missing: BTreeSet<String>,
}

/// Makes the links of sandboxes ports of the bridge again where they are not.
pub fn reattach<'a>(
    options: &BridgeOptions,
    sandboxes: impl Iterator<Item = &'a str>,
) -> Result<Repairs, NetworkError> {
    let route = host()?;
    let links = route.links().during(|| "list links".to_owned())?;
    let links: BTreeMap<&str, &Link> = links.iter().map(|link| (link.name.as_str(), link)).collect();
    let mut repairs = Repairs::default();
    let Some(bridge) = links.get(options.bridge.as_str()) else {
        return Ok(repairs);
    };
    for id in sandboxes {
        let name = host_interface(&options.bridge, id);
        let Some(link) = links.get(name.as_str()) else {
            repairs.missing.insert(id.to_owned());
            continue;
        };
        if link.master == Some(bridge.index) && link.up {
            continue;
        }
        tracing::warn!(
            link = name,
            bridge = options.bridge,
            "Network interface of a pod was detached from the bridge by another program; attaching it again"
        );
        route
            .set_master(&name, bridge.index)
            .during(|| format!("make {name} a port of {}", options.bridge))?;
        repairs.detached.insert(id.to_owned());
    }
    Ok(repairs)
}

/// The bridge's number, which another gets that is made in its place.
pub fn index_of_bridge(options: &BridgeOptions) -> Result<Option<u32>, NetworkError> {
    Ok(find(&host()?, &options.bridge)?.map(|bridge| bridge.index))
}

/// Whether links of that name may lead to pods.
pub fn is_port_name(name: &str) -> bool {
    name.starts_with(PORT_PREFIX)
}

/// Lets the bridge send to a port what is for the pod behind it and nothing else.
fn secure(route: &Route, port: &Port, index: Option<u32>, alias: Option<&str>) -> Result<(), NetworkError> {
    let name = &port.interface;
    route
        .set_port(name, alias)
        .during(|| format!("set up {name} as a port of a pod"))?;
    if let Some(index) = index {
        route
            .set_port_mac(index, port.mac)
            .during(|| format!("tell the bridge who is behind {name}"))?;
    }
    Ok(())
}

/// The ports of sandboxes that are connected already, by their id and addresses. Each is secured as a new one is.
///
/// A pod that was connected by a version which left the choice to the kernel has any hardware address. It is asked for,
/// but a pod may have changed it since: one that is another's, or could be, is not believed.
pub fn take_over<'a>(
    options: &BridgeOptions,
    sandboxes: impl Iterator<Item = (&'a str, &'a [IpAddr])>,
) -> Result<Vec<Port>, NetworkError> {
    let route = host()?;
    let Some(bridge) = find(&route, &options.bridge)? else {
        return Ok(Vec::new());
    };
    let mut taken: BTreeSet<Mac> = [bridge_mac(options)].into();
    taken.extend(Mac::try_from(bridge.mac.as_slice()).ok());
    let mut ports = Vec::new();
    for (id, ips) in sandboxes {
        let interface = host_interface(&options.bridge, id);
        let Some(link) = find(&route, &interface)? else {
            continue;
        };
        let own = guard::pod_mac(ips);
        let found = route
            .peer_mac(&interface)
            .during(|| format!("look for the other end of {interface}"))?;
        let mac = found
            .filter(|mac| !guard::is_pod_mac(*mac) && taken.insert(*mac))
            .unwrap_or(own);
        let port = Port {
            interface,
            mac,
            ips: ips.to_vec(),
        };
        secure(&route, &port, Some(link.index), None)?;
        introduce(&route, &bridge, &port)?;
        ports.push(port);
    }
    Ok(ports)
}

/// Removes the pairs on our bridge that belong to none of the sandboxes.
pub fn remove_strangers(options: &BridgeOptions, live: &BTreeSet<String>) -> Result<(), NetworkError> {
    let route = host()?;
    let Some(bridge) = find(&route, &options.bridge)? else {
        return Ok(());
    };
    let known: BTreeSet<String> = live.iter().map(|id| host_interface(&options.bridge, id)).collect();
    for port in ports(&route, &bridge)? {
        if !known.contains(&port.name) {
            remove_link(&route, &port.name)?;
        }
    }
    Ok(())
}

/// Removes the bridge and the pairs on it.
pub fn remove_host(options: &BridgeOptions) -> Result<(), NetworkError> {
    let route = host()?;
    let Some(bridge) = find(&route, &options.bridge)? else {
        return Ok(());
    };
    check_ours(&bridge)?;
    for port in ports(&route, &bridge)? {
        remove_link(&route, &port.name)?;
    }
    remove_link(&route, &bridge.name)
}

/// The name of the host's end of a sandbox's pair. It follows from the sandbox's id for all versions of this program,
/// so that a pair is found again without being remembered anywhere.
pub fn host_interface(bridge: &str, id: &str) -> String {
    // FNV-1a.
    let hash = [bridge, "/", id]
        .iter()
        .flat_map(|text| text.bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    format!("{PORT_PREFIX}{:012x}", hash >> 16)
}

const PORT_PREFIX: &str = "kv";

fn host() -> Result<Route, NetworkError> {
    Route::open().during(|| "open the links of the host".to_owned())
}

fn find(route: &Route, name: &str) -> Result<Option<Link>, NetworkError> {
    route.link(name).during(|| format!("look for link {name}"))
}

/// The kernel's settings, as `net.…` paths. `NAME` is the bridge's name.
const IPV4_SETTINGS: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    // Ports of the host work for its own `localhost`.
    ("ipv4/conf/NAME/route_localnet", "1"),
    // Pods must not be told of a shorter way than through the host's rules. Others' interfaces are not affected:
    // either of the two settings turns redirects on.
    ("ipv4/conf/all/send_redirects", "0"),
    ("ipv4/conf/NAME/send_redirects", "0"),
];
const IPV6_SETTINGS: &[(&str, &str)] = &[
    ("ipv6/conf/all/forwarding", "1"),
    // Without a second of silence while IPv6 probes whether the bridge's own address is somebody else's.
    ("ipv6/conf/NAME/accept_dad", "0"),
];

fn configure_kernel(options: &BridgeOptions) -> Result<(), NetworkError> {
    let ipv6 = options.pod_cidrs.iter().any(|block| !block.is_ipv4());
    let settings = IPV4_SETTINGS.iter().chain(IPV6_SETTINGS.iter().filter(|_| ipv6));
    for (name, value) in settings {
        sysctl::set(&name.replace("NAME", &options.bridge), value)?;
    }
    Ok(())
}

fn remove_link(route: &Route, name: &str) -> Result<(), NetworkError> {
    route.remove_link(name).during(|| format!("remove link {name}"))
}

fn ensure_bridge(route: &Route, options: &BridgeOptions) -> Result<Link, NetworkError> {
    let name = &options.bridge;
    let error = || format!("create bridge {name}");
    if let Some(bridge) = find(route, name)? {
        check_ours(&bridge)?;
        return Ok(bridge);
    }
    let mtu = match options.mtu {
        Some(mtu) => mtu,
        None => default_mtu(route)?,
    };
    route.add_bridge(name, mtu, bridge_mac(options)).during(error)?;
    route.set_alias(name, BRIDGE_ALIAS).during(error)?;
    find(route, name)?.ok_or_else(|| NetworkError::BridgeUnusable {
        name: name.clone(),
        reason: "it is gone",
    })
}

fn check_ours(link: &Link) -> Result<(), NetworkError> {
    if link.kind == "bridge" && link.alias == BRIDGE_ALIAS {
        return Ok(());
    }
    Err(NetworkError::BridgeUnusable {
        name: link.name.clone(),
        reason: "a link of that name exists that was not made for pods; choose another name or remove it",
    })
}

/// A locally administered address that differs between nodes as their blocks do.
fn bridge_mac(options: &BridgeOptions) -> Mac {
    let address = options.pod_cidrs.first().map(|&block| octets(gateway(block)));
    let tail = address.unwrap_or_else(|| options.bridge.bytes().rev().chain([0; 4]).take(4).collect());
    let mut mac = [0x02, 0x4b, 0, 0, 0, 0];
    mac[2..].copy_from_slice(&tail[tail.len() - 4..]);
    mac
}

fn default_mtu(route: &Route) -> Result<u32, NetworkError> {
    let anywhere = IpAddr::from([192, 0, 2, 1]);
    let link = route
        .link_towards(anywhere)
        .during(|| "look for the default route".to_owned())?;
    Ok(link.map_or(FALLBACK_MTU, |link| link.mtu))
}

/// The pod's end of the pair. A pair that exists already is kept if it ends in this pod.
fn ensure_pair(route: &Route, pod: &Route, pair: &VethPair<'_>) -> Result<Link, NetworkError> {
    let error = || format!("create link {} to the pod", pair.name);
    let made = match route.add_veth(pair) {
        Err(refused) if refused.is_existing() => {
            let connected = find(route, pair.name)?.is_some();
            if let (true, Some(link)) = (connected, find(pod, pair.peer_name)?) {
                return Ok(link);
            }
            remove_link(route, pair.name)?;
            route.add_veth(pair)
        }
        other => other,
    };
    made.during(error)?;
    find(pod, pair.peer_name)?.ok_or_else(|| NetworkError::BridgeUnusable {
        name: pair.name.to_owned(),
        reason: "its other end is not in the pod",
    })
}

fn configure(pod: &Route, interface: u32, ip: IpAddr, gateway: IpAddr) -> Result<(), NetworkError> {
    let whole = Cidr::containing(ip, u8::MAX);
    let next_hop = Cidr::containing(gateway, u8::MAX);
    let everywhere = Cidr::containing(ip, 0);
    pod.add_address(interface, ip, whole.prefix())
        .during(|| format!("give {ip} to the pod"))?;
    pod.set_route(next_hop, interface, None)
        .during(|| format!("route to gateway {gateway} in the pod"))?;
    pod.set_route(everywhere, interface, Some(gateway))
        .during(|| format!("route through gateway {gateway} in the pod"))
}

fn ports(route: &Route, bridge: &Link) -> Result<Vec<Link>, NetworkError> {
    let links = route.links().during(|| "list links".to_owned())?;
    let is_port =
        |link: &Link| link.master == Some(bridge.index) && link.kind == "veth" && link.name.starts_with(PORT_PREFIX);
    Ok(links.into_iter().filter(is_port).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_never_change_and_fit() {
        assert_eq!(host_interface("karve0", "sandbox-1"), "kv9c5db99683c2");
        assert_ne!(
            host_interface("karve1", "sandbox-1"),
            host_interface("karve0", "sandbox-1")
        );
        assert!(host_interface("karve0", &"x".repeat(100)).len() <= 15);
    }
}
