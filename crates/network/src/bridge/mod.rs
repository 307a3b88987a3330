//! The built-in pod network: a bridge on the host and one pair of interfaces per pod.
//!
//! A pod's address stands alone (`/32`), and its only way out is the bridge's own address. So every packet passes the
//! host's rules, also between two pods of the node, and Services work whether or not the kernel filters what bridges
//! carry (`bridge-nf-call-iptables`). Where it does, it sends a pod's packets to itself back on the spot, which is
//! why ports are hairpins; where it does not, the host routes them.
//!
//! Addresses are handed out from the node's block by `addresses` and remembered by `journal`. `guard` sees to it that a
//! pod uses its own, `held_ports` that a port of the host is a pod's alone, and `repair` that what others remove comes back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};

use crate::error::During;
use crate::netlink::Namespace;
use crate::nft::{self, Batch, Socket};
use crate::{Cidr, NetworkError, POD_INTERFACE, PodAddresses, PodNetwork, PortMapping, Protocol, SandboxNetwork};
use addresses::gateway;
use guard::Port;
pub use held_ports::HeldPorts;
use journal::Journal;
pub(crate) use links::is_port_name;

mod addresses;
mod guard;
mod held_ports;
mod journal;
mod links;
mod repair;
mod rules;

/// What makes one node's network differ from another's on the same machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// Where addresses are remembered; nobody else's directory.
    pub data_dir: PathBuf,
    /// The bridge's name, at most 15 bytes. Interfaces and packet rules take their names from it.
    pub bridge: String,
    /// The node's blocks, one of each address family at most; may be empty until [`PodNetwork::update_pod_cidrs`].
    pub pod_cidrs: Vec<Cidr>,
    /// The blocks of all pods and Services: pods keep their own address when they talk to these.
    pub cluster_cidrs: Vec<Cidr>,
    /// The interfaces' MTU; when absent, that of the interface the default route goes through.
    pub mtu: Option<u32>,
    /// Ports of the host that no pod may have: those of the node's own components, which may not listen yet when a pod
    /// asks.
    pub reserved_ports: BTreeSet<(Protocol, u16)>,
    /// Whether pods that talk to addresses outside the cluster appear with the node's address.
    pub masquerade: bool,
}

impl BridgeOptions {
    /// The usual network of a machine with one node.
    pub fn new(data_dir: impl Into<PathBuf>) -> BridgeOptions {
        BridgeOptions {
            data_dir: data_dir.into(),
            bridge: "karve0".to_owned(),
            pod_cidrs: Vec::new(),
            cluster_cidrs: Vec::new(),
            mtu: None,
            reserved_ports: BTreeSet::new(),
            masquerade: true,
        }
    }
}

/// A running built-in network. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Bridge(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: RwLock<BridgeOptions>,
    journal: Mutex<Journal>,
    held_ports: HeldPorts,
    /// The sandboxes that are connected and are to stay so, by their id. Those that an earlier process connected are known by
    /// nothing else until [`PodNetwork::reconcile`] says more.
    connected: Mutex<BTreeMap<String, Option<Kept>>>,
    /// Kept open: to close one that removed something waits until no packet can be using it.
    rules: Mutex<Socket>,
}

/// All that is needed to connect a sandbox again. The namespace is held open: its path names a process, whose number may
/// be another's by then.
#[derive(Clone, Debug)]
struct Kept {
    sandbox: SandboxNetwork,
    namespace: Arc<Namespace>,
}

/// Brings up the bridge, the rules and the kernel settings, and reads which addresses are in use.
pub fn open(options: BridgeOptions) -> Result<Bridge, NetworkError> {
    let mut journal = Journal::open(&options.data_dir)?;
    journal.addresses.set_blocks(&options.pod_cidrs)?;
    links::ensure_host(&options)?;
    let socket = rules_socket()?;
    rules::install(&options, &socket)?;
    let connected = journal
        .addresses
        .owners()
        .map(|(id, _)| (id.to_owned(), None))
        .collect();
    Ok(Bridge(Arc::new(Inner {
        options: RwLock::new(options),
        journal: Mutex::new(journal),
        held_ports: HeldPorts::default(),
        connected: Mutex::new(connected),
        rules: Mutex::new(socket),
    })))
}

/// Removes what [`open`] and the calls after it made: the bridge, the pods' interfaces, the rules and the directory.
/// Kernel settings stay, since others may rely on them by now. Succeeds when there is nothing to remove.
pub fn remove(options: &BridgeOptions) -> Result<(), NetworkError> {
    links::remove_host(options)?;
    rules::remove(options, &rules_socket()?)?;
    match std::fs::remove_dir_all(&options.data_dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(NetworkError::File {
            operation: "remove",
            path: options.data_dir.clone(),
            source: error,
        }),
        _ => Ok(()),
    }
}

#[async_trait]
impl PodNetwork for Bridge {
    async fn setup(&self, sandbox: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        let sandbox = sandbox.clone();
        self.blocking(move |inner| inner.setup(&sandbox)).await
    }

    async fn teardown(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        let id = sandbox.id.clone();
        self.blocking(move |inner| inner.disconnect(&id)).await
    }

    async fn status(&self) -> Result<(), NetworkError> {
        self.blocking(|inner| inner.status()).await
    }

    async fn reconcile(&self, live: &[SandboxNetwork]) -> Result<(), NetworkError> {
        let live = live.to_vec();
        self.blocking(move |inner| inner.reconcile(&live)).await
    }

    async fn update_pod_cidrs(&self, pod_cidrs: &[Cidr]) -> Result<(), NetworkError> {
        let pod_cidrs = pod_cidrs.to_vec();
        self.blocking(move |inner| inner.update_pod_cidrs(pod_cidrs)).await
    }
}

impl Bridge {
    /// The host's interface to the sandbox that has an address.
    pub fn interface_of(&self, ip: IpAddr) -> Option<String> {
        let journal = self.0.journal.lock();
        let mut owners = journal.addresses.owners();
        let (id, _) = owners.find(|(_, ips)| ips.contains(&ip))?;
        Some(links::host_interface(&self.0.options.read().bridge, id))
    }

    /// The kernel may take milliseconds for a link, so all work is done off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, NetworkError> + Send + 'static,
    ) -> Result<T, NetworkError> {
        let inner = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|panic| Err(NetworkError::Interrupted(panic.to_string())))
    }
}

impl Inner {
    fn setup(&self, sandbox: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        check_id(&sandbox.id)?;
        let kept = Kept {
            namespace: Arc::new(open_namespace(sandbox)?),
            sandbox: sandbox.clone(),
        };
        let ips = self.assign(&sandbox.id)?;
        let connected = self.connect(kept, &ips);
        if connected.is_err()
            && let Err(error) = self.disconnect(&sandbox.id)
        {
            tracing::warn!(sandbox = sandbox.id, %error, "Failed to clean up after a failed network set-up of a sandbox");
        }
        connected
    }

    fn assign(&self, id: &str) -> Result<Vec<IpAddr>, NetworkError> {
        let mut journal = self.journal.lock();
        if let Some(record) = journal.addresses.assign(id)? {
            journal.commit(&record)?;
        }
        Ok(journal.addresses.of_sandbox(id).unwrap_or_default().to_vec())
    }

    fn connect(&self, kept: Kept, ips: &[IpAddr]) -> Result<PodAddresses, NetworkError> {
        let (sandbox, namespace) = (&kept.sandbox, &kept.namespace);
        let options = self.options.read().clone();
        let gateways: Vec<IpAddr> = ips.iter().map(|&ip| self.gateway_of(ip)).collect();
        let port = new_port(&options, &sandbox.id, ips);
        check_reserved(&options, &sandbox.port_mappings)?;
        self.held_ports.hold(&sandbox.id, ips, &sandbox.port_mappings)?;
        self.admit(&options, &port, &sandbox.port_mappings)?;
        links::connect(&options, sandbox, namespace, &port, &gateways)?;
        crate::mark_connected(sandbox);
        self.connected.lock().insert(sandbox.id.clone(), Some(kept));
        Ok(PodAddresses {
            ips: ips.to_vec(),
            gateways,
            interface: POD_INTERFACE.to_owned(),
        })
    }

    /// A pod that got its address before the node's block changed still leaves through the gateway of the new one.
    fn gateway_of(&self, ip: IpAddr) -> IpAddr {
        let journal = self.journal.lock();
        let block = journal.addresses.cidrs().find(|cidr| cidr.is_ipv4() == ip.is_ipv4());
        block.map_or(ip, gateway)
    }

    /// The interface goes first and the address last, so that it is never given away while it is in use.
    fn disconnect(&self, id: &str) -> Result<(), NetworkError> {
        // From here on nobody makes the interface again.
        self.connected.lock().remove(id);
        let options = self.options.read().clone();
        let ips = self.journal.lock().addresses.of_sandbox(id).map(<[IpAddr]>::to_vec);
        links::disconnect(&options, id, ips.as_deref().unwrap_or_default())?;
        let Some(ips) = ips else { return Ok(()) };
        let closed = self.with_rules(|socket| {
            let mut batch = Batch::new();
            guard::forget(&mut batch, &options, &new_port(&options, id, &ips));
            rules::close_ports(&mut batch, &options, socket, |ip| ips.contains(&ip))?;
            Ok(batch.commit(socket)?)
        });
        unless_absent(closed)?;
        self.held_ports.release(id);
        let mut journal = self.journal.lock();
        if let Some(record) = journal.addresses.release(id) {
            journal.commit(&record)?;
        }
        Ok(())
    }

    fn status(&self) -> Result<(), NetworkError> {
        let options = self.options.read();
        if options.pod_cidrs.is_empty() {
            return Err(NetworkError::NoPodCidr);
        }
        links::check_host(&options)
    }

    fn reconcile(&self, live: &[SandboxNetwork]) -> Result<(), NetworkError> {
        let options = self.options.read().clone();
        let ids: BTreeSet<String> = live.iter().map(|sandbox| sandbox.id.clone()).collect();
        links::remove_strangers(&options, &ids)?;
        let stale: Vec<String> = addresses::stale(&self.journal.lock().addresses, &ids).collect();
        for id in &stale {
            tracing::info!(sandbox = id, "Releasing the addresses of a removed sandbox");
            self.disconnect(id)?;
        }
        live.iter().for_each(|sandbox| self.adopt(sandbox));
        self.with_rules(|socket| {
            self.forget_strangers(&options, socket)?;
            self.hold_ports_again(&options, socket)
        })
    }

    /// Learns how to connect a sandbox again that an earlier process connected. One that has no address of ours, such as
    /// that of a pod in the host's network, is none of our business.
    fn adopt(&self, sandbox: &SandboxNetwork) {
        let Ok(namespace) = open_namespace(sandbox) else {
            return;
        };
        if let Some(known) = self.connected.lock().get_mut(&sandbox.id) {
            known.get_or_insert(Kept {
                sandbox: sandbox.clone(),
                namespace: Arc::new(namespace),
            });
        }
    }

    /// A socket on which something failed may hold answers to what was asked before; the next work gets a new one.
    fn with_rules<T>(&self, work: impl FnOnce(&Socket) -> Result<T, NetworkError>) -> Result<T, NetworkError> {
        let mut socket = self.rules.lock();
        let done = work(&socket);
        if done.is_err() {
            *socket = rules_socket()?;
        }
        done
    }

    /// Takes the rules for what is not there any more away, and makes those of what is there if they are missing.
    fn forget_strangers(&self, options: &BridgeOptions, socket: &Socket) -> Result<(), NetworkError> {
        let owners = self.owners();
        let owned: BTreeSet<IpAddr> = owners.iter().flat_map(|(_, ips)| ips).copied().collect();
        let interface = |id: &str| links::host_interface(&options.bridge, id);
        let interfaces: BTreeSet<String> = owners.iter().map(|(id, _)| interface(id)).collect();
        let mut batch = Batch::new();
        rules::close_ports(&mut batch, options, socket, |ip| !owned.contains(&ip))?;
        let known = guard::forget_gone(&mut batch, options, socket, |name| !interfaces.contains(name))?;
        let missing = owners.iter().filter(|(id, _)| !known.contains(&interface(id)));
        let missing = missing.map(|(id, ips)| (id.as_str(), ips.as_slice()));
        for port in links::take_over(options, missing)? {
            guard::admit(&mut batch, options, &port);
        }
        Ok(batch.commit(socket)?)
    }

    /// Holds the ports of the pods that are running, as far as nobody else has them by now.
    fn hold_ports_again(&self, options: &BridgeOptions, socket: &Socket) -> Result<(), NetworkError> {
        let owners = self.owners();
        let mut batch = Batch::new();
        for (ip, mapping) in rules::opened_ports(options, socket)? {
            let Some((id, ips)) = owners.iter().find(|(_, ips)| ips.contains(&ip)) else {
                continue;
            };
            let mappings = std::slice::from_ref(&mapping);
            let held = check_reserved(options, mappings).and_then(|()| self.held_ports.hold(id, ips, mappings));
            if let Err(error) = held {
                tracing::warn!(sandbox = id, %error, "Host port is in use by another program; it no longer forwards to its pod");
                rules::close_port(&mut batch, options, ip, &mapping);
            }
        }
        Ok(batch.commit(socket)?)
    }

    fn owners(&self) -> Vec<(String, Vec<IpAddr>)> {
        let journal = self.journal.lock();
        let owners = journal.addresses.owners();
        owners.map(|(id, ips)| (id.to_owned(), ips.to_vec())).collect()
    }

    /// Lets a pod's packets in and opens its ports, in one transaction.
    fn admit(&self, options: &BridgeOptions, port: &Port, mappings: &[PortMapping]) -> Result<(), NetworkError> {
        let commit = |socket: &Socket| {
            let mut batch = Batch::new();
            guard::admit(&mut batch, options, port);
            rules::open_ports(&mut batch, options, &port.ips, mappings);
            batch.commit(socket)
        };
        self.with_rules(|socket| match commit(socket) {
            Err(error) if error.is_absent() => {
                tracing::warn!(
                    bridge = options.bridge,
                    "nftables rules of the pod network were removed by another program; restoring them"
                );
                rules::install(options, socket)?;
                self.forget_strangers(options, socket)?;
                Ok(commit(socket)?)
            }
            done => Ok(done?),
        })
    }

    fn update_pod_cidrs(&self, pod_cidrs: Vec<Cidr>) -> Result<(), NetworkError> {
        let mut options = self.options.write();
        if options.pod_cidrs == pod_cidrs {
            return Ok(());
        }
        self.journal.lock().addresses.set_blocks(&pod_cidrs)?;
        let gone = std::mem::replace(&mut options.pod_cidrs, pod_cidrs);
        links::remove_gateways(&options, &gone)?;
        links::ensure_host(&options)?;
        self.with_rules(|socket| rules::install(&options, socket))
    }
}

fn open_namespace(sandbox: &SandboxNetwork) -> Result<Namespace, NetworkError> {
    Namespace::open(&sandbox.netns_path).map_err(|source| NetworkError::OpenNamespace {
        path: sandbox.netns_path.clone(),
        source,
    })
}

/// The port of a pod that is to be connected.
fn new_port(options: &BridgeOptions, id: &str, ips: &[IpAddr]) -> Port {
    Port {
        interface: links::host_interface(&options.bridge, id),
        mac: guard::pod_mac(ips),
        ips: ips.to_vec(),
    }
}

fn check_reserved(options: &BridgeOptions, mappings: &[PortMapping]) -> Result<(), NetworkError> {
    let reserved = |mapping: &&PortMapping| options.reserved_ports.contains(&(mapping.protocol, mapping.host_port));
    match mappings.iter().find(reserved) {
        Some(mapping) => Err(NetworkError::HostPortReserved {
            port: mapping.host_port,
            protocol: mapping.protocol,
        }),
        None => Ok(()),
    }
}

/// Rules that somebody has removed need not be removed again.
fn unless_absent(done: Result<(), NetworkError>) -> Result<(), NetworkError> {
    match done {
        Err(NetworkError::Rules { source }) if nft::Error::is_absent(&source) => Ok(()),
        Err(NetworkError::Kernel { source, .. }) if source.is_absent() => Ok(()),
        other => other,
    }
}

fn rules_socket() -> Result<Socket, NetworkError> {
    Socket::open().during(|| "open the packet rules of the host".to_owned())
}

/// The journal's lines are words, and an id is one of them.
fn check_id(id: &str) -> Result<(), NetworkError> {
    let printable = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
    printable
        .then_some(())
        .ok_or_else(|| NetworkError::SandboxId { id: id.to_owned() })
}
