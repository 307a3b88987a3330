//! Load balancers at this node's own addresses. Where a program of the node listens no Service gets the port, and as long
//! as a Service has it no program does: it is held by a socket that never sees a packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use client::Key;
use network::bridge::HeldPorts;
use network::{PortMapping, Protocol};

use crate::model::{Frontend, FrontendAddress, ServicePort};

/// The ports that are held, and by which Services.
#[derive(Default)]
pub struct NodePlaces {
    held: HeldPorts,
    by_service: BTreeMap<Key, BTreeSet<String>>,
    /// Services that did not get all they asked for, and why; each reason is told once.
    refused: BTreeMap<Key, String>,
}

impl NodePlaces {
    /// Takes the frontends from `ports` that are at one of `addresses` where somebody listens, and holds the others. Gives
    /// why something was taken, if that is new.
    pub fn hold(&mut self, key: &Key, ports: &mut [ServicePort], addresses: &BTreeSet<IpAddr>) -> Option<String> {
        let (mut wanted, mut reason) = (BTreeSet::new(), None);
        for port in ports.iter_mut() {
            let protocol = port.protocol;
            port.frontends.retain(|frontend| {
                let Some(mapping) = mapping(frontend, protocol, addresses) else {
                    return true;
                };
                let (id, ip) = (format!("{} {protocol}", frontend.address), mapping.host_ip);
                match self.held.hold(&id, ip.as_slice(), std::slice::from_ref(&mapping)) {
                    Ok(()) => wanted.insert(id),
                    Err(error) => {
                        reason.get_or_insert(format!("{}: {error}", frontend.address));
                        return false;
                    }
                };
                true
            });
        }
        self.replace(key, wanted);
        let told = match &reason {
            Some(reason) => self.refused.insert(key.clone(), reason.clone()),
            None => self.refused.remove(key),
        };
        reason.filter(|reason| told.as_ref() != Some(reason))
    }

    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Services to be looked at again: what is in the way may be gone.
    pub fn refused(&self) -> Vec<Key> {
        self.refused.keys().cloned().collect()
    }

    fn replace(&mut self, key: &Key, wanted: BTreeSet<String>) {
        let before = match wanted.is_empty() {
            true => self.by_service.remove(key),
            false => self.by_service.insert(key.clone(), wanted),
        };
        for id in before.into_iter().flatten() {
            if !self.by_service.values().any(|held| held.contains(&id)) {
                self.held.release(&id);
            }
        }
    }
}

fn mapping(frontend: &Frontend, protocol: Protocol, addresses: &BTreeSet<IpAddr>) -> Option<PortMapping> {
    let FrontendAddress::Address(address) = frontend.address else {
        return None;
    };
    (!frontend.own && addresses.contains(&address.ip())).then(|| PortMapping {
        host_ip: Some(address.ip()),
        host_port: address.port(),
        container_port: address.port(),
        protocol,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    use super::*;
    use crate::model::{Clients, Masquerade, Target};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn ports(port: u16) -> Vec<ServicePort> {
        vec![ServicePort {
            name: "default/web".to_owned(),
            protocol: Protocol::Tcp,
            created: String::new(),
            frontends: vec![Frontend {
                address: FrontendAddress::Address(SocketAddr::new(HERE, port)),
                clients: Clients::Anyone,
                own: false,
                masquerade: Masquerade::Everybody,
                allowed: Vec::new(),
                target: Target::Reject,
            }],
            affinity_s: None,
            local: BTreeSet::new(),
        }]
    }

    #[test]
    fn a_port_is_the_programs_that_listens_or_the_services_that_has_it() {
        let program = TcpListener::bind((HERE, 0)).unwrap();
        let port = program.local_addr().unwrap().port();
        let (web, other) = (Key::new("default", "web"), Key::new("default", "other"));
        let mut places = NodePlaces::default();
        let mut hold = |key: &Key, addresses: &[IpAddr]| {
            let mut ports = ports(port);
            let told = places.hold(key, &mut ports, &addresses.iter().copied().collect());
            (ports[0].frontends.len(), told.is_some(), places.refused().len())
        };
        assert_eq!(hold(&web, &[HERE]), (0, true, 1));
        assert_eq!(hold(&web, &[HERE]), (0, false, 1));
        // At addresses that are not this node's nobody of it can listen.
        assert_eq!(hold(&web, &[]), (1, false, 0));
        drop(program);
        assert_eq!(hold(&web, &[HERE]), (1, false, 0));
        assert_eq!(hold(&other, &[HERE]), (1, false, 0));
        assert!(TcpListener::bind((HERE, port)).is_err());
        assert_eq!(hold(&web, &[]), (1, false, 0));
        assert!(TcpListener::bind((HERE, port)).is_err());
        assert_eq!(hold(&other, &[]), (1, false, 0));
        assert!(TcpListener::bind((HERE, port)).is_ok());
    }
}
