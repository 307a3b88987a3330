//! Repairs what others did to the network: a bridge, port, address or rule that is gone is made again, without a pod
//! having to come or go for it.

use std::net::IpAddr;
use std::time::Duration;

use super::{Bridge, BridgeOptions, Inner, guard, links, rules};
use crate::error::During;
use crate::netlink::{Attributes, Message, Monitor};
use crate::nft;
use crate::route::{ADDRESS_HEADER, LINK_HEADER, ROUTE_HEADER};
use crate::{NetworkError, nft::Batch};

/// Changes come in bursts; what one began is over after this.
const SETTLING: Duration = Duration::from_millis(20);
/// The pause after a repair that failed.
const RETRY: Duration = Duration::from_secs(1);

impl Bridge {
    /// Keeps the network as it should be, until the future is dropped.
    pub async fn keep(&self) -> Result<(), NetworkError> {
        let operation = || "watch the links and packet rules of the host".to_owned();
        let links = Monitor::links().during(operation)?;
        let rules = nft::Monitor::open().during(operation)?;
        // What was broken before anybody listened.
        let mut broken = Some(Broken {
            rules: true,
            told: false,
        });
        loop {
            if let Some(what) = broken.take() {
                tokio::time::sleep(SETTLING).await;
                links.drain().during(operation)?;
                // Only who looks at the rules may forget what others did to them meanwhile.
                if what.rules {
                    rules.drain().during(operation)?;
                }
                if let Err(error) = self.blocking(move |inner| inner.repair(what)).await {
                    tracing::warn!(bridge = self.0.options.read().bridge, %error, "Failed to repair the pod network; retrying");
                    broken = Some(what);
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            }
            let watched = self.blocking(|inner| inner.watched()).await?;
            let tables = watched.tables.each_ref().map(String::as_str);
            broken = tokio::select! {
                changed = links.changed(|message| self.0.is_broken(message, &watched)) => changed.map(|()| Broken { rules: false, told: true }),
                changed = rules.changed_by_others(&tables, watched.port_id) => changed.map(|()| Broken { rules: true, told: true }),
            }
            .during(operation)
            .map(Some)?;
        }
    }
}

/// What is to be looked at beside the links, which are looked at always.
#[derive(Clone, Copy)]
struct Broken {
    rules: bool,
    /// The kernel told of it; otherwise nobody knows whether anything is broken.
    told: bool,
}

/// What tells this network's messages from others'.
struct Watched {
    bridge: String,
    bridge_index: Option<u32>,
    tables: [String; 2],
    /// The socket by which this process changes rules.
    port_id: u32,
}

impl Inner {
    fn watched(&self) -> Result<Watched, NetworkError> {
        let options = self.options.read().clone();
        Ok(Watched {
            bridge_index: links::index_of_bridge(&options)?,
            tables: [rules::table(&options).name, guard::table(&options).name],
            port_id: self.rules.lock().port_id(),
            bridge: options.bridge,
        })
    }

    /// Makes again what is missing. Whatever is there stays as it is.
    fn repair(&self, broken: Broken) -> Result<(), NetworkError> {
        let options = self.options.read().clone();
        if broken.rules {
            if broken.told {
                tracing::warn!(
                    bridge = options.bridge,
                    "Packet rules of the pod network were changed by another program; restoring them"
                );
            }
            self.with_rules(|socket| {
                rules::install(&options, socket)?;
                self.forget_strangers(&options, socket)
            })?;
            self.open_ports_again(&options)?;
        }
        links::ensure_host(&options)?;
        let connected: Vec<String> = self.connected.lock().keys().cloned().collect();
        let mut owners = self.owners();
        owners.retain(|(id, _)| connected.contains(id));
        let ports = links::reattach(&options, connected.iter().map(String::as_str))?;
        let detached = owners.iter().filter(|(id, _)| ports.detached.contains(id));
        links::take_over(&options, detached.map(|(id, ips)| (id.as_str(), ips.as_slice())))?;
        for (id, ips) in owners.iter().filter(|(id, _)| ports.missing.contains(id)) {
            self.connect_again(id, ips)?;
        }
        Ok(())
    }

    /// Makes a pod's pair of interfaces again, which somebody removed.
    fn connect_again(&self, id: &str, ips: &[IpAddr]) -> Result<(), NetworkError> {
        let Some(kept) = self.connected.lock().get(id).cloned().flatten() else {
            return Ok(());
        };
        tracing::warn!(
            pod = format!("{}/{}", kept.sandbox.namespace, kept.sandbox.name),
            "The network interface of a pod was removed by another program; making it again"
        );
        self.connect(kept, ips)?;
        // It may have been disconnected while this was under way.
        if self.journal.lock().addresses.of_sandbox(id).is_none() {
            return self.disconnect(id);
        }
        Ok(())
    }

    fn open_ports_again(&self, options: &BridgeOptions) -> Result<(), NetworkError> {
        let mut batch = Batch::new();
        for (id, mappings) in self.held_ports.mappings() {
            let ips = self.journal.lock().addresses.of_sandbox(&id).map(<[IpAddr]>::to_vec);
            rules::open_ports(&mut batch, options, &ips.unwrap_or_default(), &mappings);
        }
        self.with_rules(|socket| Ok(batch.commit(socket)?))
    }

    /// Whether a message may say that the bridge, one of its ports, or an address or route of it is gone. What this
    /// process does itself is mostly not among it.
    fn is_broken(&self, message: &Message<'_>, watched: &Watched) -> bool {
        let link = Attributes::after(message, LINK_HEADER);
        let name = link.text(libc::IFLA_IFNAME).unwrap_or_default();
        let of_bridge = |index: Option<u32>| index.is_some() && index == watched.bridge_index;
        match message.kind {
            libc::RTM_DELLINK => name == watched.bridge || self.is_port(name, &watched.bridge),
            libc::RTM_NEWLINK if name == watched.bridge => !is_up(message),
            libc::RTM_NEWLINK => {
                let in_place = link.u32(libc::IFLA_MASTER) == watched.bridge_index && is_up(message);
                !in_place && self.is_port(name, &watched.bridge)
            }
            libc::RTM_DELADDR => of_bridge(index_of_address(message)),
            libc::RTM_DELROUTE => of_bridge(Attributes::after(message, ROUTE_HEADER).u32(libc::RTA_OIF)),
            _ => false,
        }
    }

    /// Whether a link leads to a pod that is connected and is to stay so.
    fn is_port(&self, name: &str, bridge: &str) -> bool {
        let connected = self.connected.lock();
        links::is_port_name(name) && connected.keys().any(|id| links::host_interface(bridge, id) == name)
    }
}

/// The flags of a link are in its fixed header.
fn is_up(message: &Message<'_>) -> bool {
    u32_at(message, 8).is_some_and(|flags| flags & libc::IFF_UP as u32 != 0)
}

fn index_of_address(message: &Message<'_>) -> Option<u32> {
    u32_at(message, ADDRESS_HEADER - 4)
}

fn u32_at(message: &Message<'_>, at: usize) -> Option<u32> {
    let bytes = message.body.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_ne_bytes)
}
