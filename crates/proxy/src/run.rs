//! Following the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{ObjectMeta, kinds};
use client::{Backoff, Cache, Client, EventRecorder, EventType, Informers, Key, ObjectReference, Selection};
use network::route_monitor::RouteMonitor;
use network::{Cidr, Protocol, nft};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::apply::Applied;
use crate::backend::BackendError;
use crate::connection_timeouts::raise_close_wait;
use crate::health::{self, Health, HealthChecks};
use crate::metrics::ProxyMetrics;
use crate::model::{ServicePort, Surroundings, balanced_here, foreign_addresses, health_check, service_ports};
use crate::nftables::{self, Nftables, NftablesOptions};
use crate::node_addresses::NodePlaces;
use crate::objects::{EndpointSlice, Node, Service};
use crate::reachable;

/// What a node's proxy has to know.
#[derive(Clone)]
pub struct ProxyOptions {
    pub client: Client,
    /// The name of this node's Node: endpoints with this name are local.
    pub node_name: String,
    /// The blocks of all pods.
    pub cluster_cidrs: Vec<Cidr>,
    /// The blocks of all Services' own addresses; may be empty if they are not known.
    pub service_cidrs: Vec<Cidr>,
    /// Ports of this machine that the node's own components listen on; no Service leads away from them.
    pub reserved_ports: BTreeSet<(Protocol, u16)>,
    /// Where API servers answer; no Service leads away from there.
    pub api_servers: BTreeSet<SocketAddr>,
    /// The port of kubelets: no Service leads away from it at the address of any node.
    pub kubelet_port: u16,
    /// The name of the tables of packet rules; nobody else's.
    pub table: String,
    /// Where `/healthz` and `/livez` are answered, if at all.
    pub healthz_address: Option<SocketAddr>,
    /// Where `/metrics` and `/proxyMode` are answered, to everybody who can connect, if at all.
    pub metrics_address: Option<SocketAddr>,
    /// Connections that one side has closed are remembered at least this long; zero leaves the machine's setting.
    pub close_wait_timeout: Duration,
    /// Set to true once the rules hold every Service that the first list returned.
    pub ready: watch::Sender<bool>,
}

/// The name of the tables on a machine with one node.
pub const DEFAULT_TABLE: &str = "karve-proxy";
/// The same bit as upstream's, so that an administrator has one bit to keep free.
const MASQUERADE_BIT: u32 = 0x4000;
/// The rules are compared with the kernel's this often, in case somebody else changed them.
const RESYNC: Duration = Duration::from_secs(600);
/// Changes that others make come in bursts; what one began is over after this.
const SETTLING: Duration = Duration::from_millis(20);
/// The pauses after the kernel refused rules.
const RETRY: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
/// Objects that are none of a proxy's business.
const SELECTOR: &str = "!service.kubernetes.io/headless,!service.kubernetes.io/service-proxy-name";
const BY_SERVICE: &str = "service";
/// A port of this node on which somebody listened is tried again after this.
const TRY_PORTS_AGAIN: Duration = Duration::from_secs(10);
/// Addresses of a Service that are told at once.
const MAX_TOLD: usize = 8;

impl ProxyOptions {
    pub fn new(client: Client, node_name: impl Into<String>) -> ProxyOptions {
        ProxyOptions {
            client,
            node_name: node_name.into(),
            cluster_cidrs: Vec::new(),
            service_cidrs: Vec::new(),
            reserved_ports: BTreeSet::new(),
            api_servers: BTreeSet::new(),
            kubelet_port: 10250,
            table: DEFAULT_TABLE.to_owned(),
            healthz_address: None,
            metrics_address: None,
            close_wait_timeout: Duration::from_secs(3600),
            ready: watch::Sender::new(false),
        }
    }
}

/// Removes the rules of a proxy with these options, and the route it may have made. Fine if there are none.
pub fn remove(table: &str, service_cidrs: &[Cidr]) -> Result<(), BackendError> {
    nftables::remove(table)?;
    reachable::remove(service_cidrs).map_err(BackendError::Route)
}

/// Keeps the rules of this network namespace in step with the API server's Services, until the future is dropped.
/// The rules stay: traffic goes on while no proxy runs, and the next one takes them over.
pub async fn run(options: ProxyOptions) -> Result<(), BackendError> {
    let (health, metrics) = (Health::default(), Arc::new(ProxyMetrics::default()));
    tokio::select! {
        ended = follow(&options, &health, &metrics) => ended,
        ended = keep_reachable(&options.service_cidrs) => ended,
        ended = serve_health(options.healthz_address, health.clone(), metrics.clone()) => ended,
        ended = serve_status(options.metrics_address, metrics.clone()) => ended,
    }
}

async fn serve_health(
    address: Option<SocketAddr>,
    health: Health,
    metrics: Arc<ProxyMetrics>,
) -> Result<(), BackendError> {
    if let Some(listener) = listen(address, "/healthz").await {
        health::serve(listener, health, metrics).await;
    }
    std::future::pending().await
}

async fn serve_status(address: Option<SocketAddr>, metrics: Arc<ProxyMetrics>) -> Result<(), BackendError> {
    if let Some(listener) = listen(address, "/metrics").await {
        health::serve_status(listener, nftables::MODE, metrics).await;
    }
    std::future::pending().await
}

/// Several proxies on one machine cannot all have the same port; one that has none works as well.
async fn listen(address: Option<SocketAddr>, path: &str) -> Option<TcpListener> {
    let address = address?;
    let bound = TcpListener::bind(address).await;
    bound
        .inspect_err(|error| tracing::warn!(%address, %error, path, "Failed to serve the proxy's status"))
        .ok()
}

/// A route that somebody removes, or that goes with a link, is made again.
async fn keep_reachable(blocks: &[Cidr]) -> Result<(), BackendError> {
    let monitor = RouteMonitor::open().map_err(BackendError::Watch)?;
    loop {
        ensure_reachable(blocks).await;
        monitor.disturbed().await.map_err(BackendError::Watch)?;
    }
}

async fn follow(options: &ProxyOptions, health: &Health, metrics: &Arc<ProxyMetrics>) -> Result<(), BackendError> {
    let mut proxy = Proxy::new(options, health, metrics)?;
    raise_close_wait(options.close_wait_timeout);
    proxy.services.synced().await;
    proxy.slices.synced().await;
    proxy.nodes.synced().await;
    let monitor = nft::Monitor::open().map_err(BackendError::Watch)?;
    let tables = [options.table.as_str()];
    let (mut failures, mut due) = (0, Instant::now());
    loop {
        let retry_at = (failures > 0).then(|| Instant::now() + RETRY.wait(failures - 1));
        let wake_at = retry_at.unwrap_or(due);
        tokio::select! {
            () = proxy.changed.woken.notified(), if failures == 0 => {}
            disturbed = monitor.changed_by_others(&tables, proxy.port_id), if failures == 0 => {
                disturbed.map_err(BackendError::Watch)?;
                tracing::warn!(
                    table = options.table,
                    "Packet rules of Services were changed by another program; restoring them"
                );
                tokio::time::sleep(SETTLING).await;
                monitor.drain().map_err(BackendError::Watch)?;
                due = Instant::now();
            }
            () = tokio::time::sleep(TRY_PORTS_AGAIN), if proxy.places.has_refused() => proxy.try_ports_again(),
            () = tokio::time::sleep_until(wake_at) => {}
        }
        health.queued();
        metrics.queued();
        let resync = due <= Instant::now() || failures > 0;
        if resync {
            ensure_reachable(&options.service_cidrs).await;
            due = Instant::now() + RESYNC;
        }
        let begun = Instant::now();
        let done = proxy.step(resync).await;
        metrics.synced(resync, begun.elapsed(), done.is_ok());
        // Connections that could not be forgotten are a matter of the old rules; the new ones hold.
        if matches!(done, Ok(()) | Err(BackendError::Conntrack(_))) {
            options.ready.send_replace(true);
        }
        match done {
            Ok(()) => {
                failures = 0;
                health.updated();
            }
            Err(error) => {
                failures += 1;
                tracing::error!(%error, "Failed to bring packet rules up to date; retrying");
            }
        }
    }
}

/// Services that changed since they were last applied.
#[derive(Default)]
struct Changed {
    keys: Mutex<BTreeSet<Key>>,
    nodes: AtomicBool,
    woken: Notify,
    metrics: Arc<ProxyMetrics>,
}

impl Changed {
    fn add(&self, key: Key) {
        self.keys.lock().insert(key);
        self.woken.notify_one();
    }

    fn nodes_changed(&self) {
        self.nodes.store(true, Ordering::Relaxed);
        self.woken.notify_one();
    }

    fn follow_services(self: &Arc<Self>, services: &Cache<Service>, around: &Surroundings) {
        let (sink, guarded) = (self.clone(), around.clone());
        services.on_change(move |old, new| {
            sink.metrics.services().came();
            if let Some(service) = new.or(old) {
                sink.add(client::Object::key(service.as_ref()));
            }
            if let Some(service) = new {
                tell_foreign_addresses(service, &guarded);
            }
        });
    }

    fn follow_slices(self: &Arc<Self>, slices: &Cache<EndpointSlice>) {
        let sink = self.clone();
        slices.on_change(move |old, new| {
            sink.metrics.endpoints().came();
            for slice in [old, new].into_iter().flatten() {
                if let Some(service) = slice.service() {
                    sink.add(service);
                }
            }
        });
    }

    fn follow_nodes(self: &Arc<Self>, nodes: &Cache<Node>) {
        let sink = self.clone();
        nodes.on_change(move |old, new| {
            let facts = |node: Option<&Arc<Node>>| {
                node.map(|node| {
                    (
                        node.internal_addresses(),
                        node.metadata.labels.zone.clone(),
                        node.is_leaving(),
                    )
                })
            };
            if facts(old) != facts(new) {
                sink.nodes_changed();
            }
        });
    }
}

struct Proxy {
    around: Surroundings,
    api_servers: BTreeSet<SocketAddr>,
    kubelet_port: u16,
    nodes: Arc<Cache<Node>>,
    services: Arc<Cache<Service>>,
    slices: Arc<Cache<EndpointSlice>>,
    changed: Arc<Changed>,
    rules: Arc<Mutex<Applied<Nftables>>>,
    places: NodePlaces,
    checks: HealthChecks,
    health: Health,
    recorder: EventRecorder,
    /// Tells our own changes from others'.
    port_id: u32,
    /// Keeps the caches current.
    _informers: Informers,
}

impl Proxy {
    fn new(options: &ProxyOptions, health: &Health, metrics: &Arc<ProxyMetrics>) -> Result<Proxy, BackendError> {
        let rules = Nftables::open(&NftablesOptions {
            table: options.table.clone(),
            cluster_cidrs: options.cluster_cidrs.clone(),
            service_cidrs: options.service_cidrs.clone(),
            masquerade_bit: MASQUERADE_BIT,
            reserved_ports: options.reserved_ports.clone(),
        })?;
        let around = Surroundings {
            node_name: options.node_name.clone(),
            pod_blocks: options.cluster_cidrs.clone(),
            service_blocks: options.service_cidrs.clone(),
            ..Surroundings::default()
        };
        let informers = Informers::new(options.client.clone());
        let selection = Selection {
            label_selector: SELECTOR.to_owned(),
            ..Selection::default()
        };
        let services = informers.selected::<Service>(&kinds::service::SERVICE, selection.clone());
        let slices = informers.selected::<EndpointSlice>(&kinds::endpoint_slice::ENDPOINT_SLICE, selection);
        slices.add_index(BY_SERVICE, |slice: &EndpointSlice| {
            slice.service().map(|key| key.to_string()).into_iter().collect()
        });
        let changed = Arc::new(Changed {
            metrics: metrics.clone(),
            ..Changed::default()
        });
        let nodes = informers.cache::<Node>(&kinds::node::NODE);
        changed.follow_services(&services, &around);
        changed.follow_slices(&slices);
        changed.follow_nodes(&nodes);
        Ok(Proxy {
            around,
            api_servers: options.api_servers.clone(),
            kubelet_port: options.kubelet_port,
            nodes,
            services,
            slices,
            changed,
            port_id: rules.port_id(),
            rules: Arc::new(Mutex::new(Applied::new(rules))),
            places: NodePlaces::default(),
            checks: HealthChecks::new(health.clone()),
            health: health.clone(),
            recorder: EventRecorder::start(options.client.clone(), "kube-proxy", &options.node_name),
            _informers: informers,
        })
    }

    /// Applies what has changed. The kernel's part may take a while, so it is done off the async threads.
    async fn step(&mut self, resync: bool) -> Result<(), BackendError> {
        let nodes_changed = self.changed.nodes.swap(false, Ordering::Relaxed);
        if nodes_changed {
            self.look_around();
        }
        let keys = std::mem::take(&mut *self.changed.keys.lock());
        self.changed.metrics.taken();
        let protected = (resync || nodes_changed).then(|| self.protected());
        let mut services: BTreeMap<Key, Vec<ServicePort>> = BTreeMap::new();
        for key in &keys {
            services.insert(key.clone(), self.ports(key));
            self.check_health(key).await;
        }
        let rules = self.rules.clone();
        let work = move || apply(&mut rules.lock(), services, protected, resync);
        let applied = tokio::task::spawn_blocking(work).await;
        applied.unwrap_or_else(|panic| Err(BackendError::Interrupted(panic.to_string())))?;
        for key in keys {
            if let Some(service) = self.services.get_key(key.as_str()) {
                trace::mark(
                    "proxy/rules-live",
                    format!("services/{key}"),
                    service.metadata.uid.clone(),
                );
            }
        }
        Ok(())
    }

    fn ports(&mut self, key: &Key) -> Vec<ServicePort> {
        let Some(service) = self.services.get_key(key.as_str()) else {
            self.places.hold(key, &mut [], &BTreeSet::new());
            return Vec::new();
        };
        let slices = self.slices.by(BY_SERVICE, key.as_str());
        let slices: Vec<&EndpointSlice> = slices.iter().map(AsRef::as_ref).collect();
        let mut ports = service_ports(&service, &slices, &self.around);
        let here = balanced_here(&service, &self.around);
        if let Some(why) = self.places.hold(key, &mut ports, &here) {
            let text = format!("node {} cannot serve the load balancer at {why}", self.around.node_name);
            self.warn(&service, "LoadBalancerPortInUse", text);
        }
        ports
    }

    /// Answers load balancers that ask whether a Service has endpoints here.
    async fn check_health(&mut self, key: &Key) {
        let service = self.services.get_key(key.as_str());
        let slices = self.slices.by(BY_SERVICE, key.as_str());
        let slices: Vec<&EndpointSlice> = slices.iter().map(AsRef::as_ref).collect();
        let node = &self.around.node_name;
        let wanted = service
            .as_ref()
            .and_then(|service| health_check(service, &slices, node));
        if let (Err(error), Some(service), Some((port, _))) = (self.checks.set(key, wanted).await, service, wanted) {
            let text = format!("node {node} failed to start healthcheck \"{key}\" on port {port}: {error}");
            self.warn(&service, "FailedToStartServiceHealthcheck", text);
        }
    }

    fn warn(&self, service: &Service, reason: &str, message: String) {
        tracing::warn!(service = %client::Object::key(service), reason, "{message}");
        let metadata = ObjectMeta {
            namespace: service.metadata.namespace.clone(),
            name: service.metadata.name.clone(),
            uid: service.metadata.uid.clone(),
            resource_version: service.metadata.resource_version.clone(),
            ..ObjectMeta::default()
        };
        let about = ObjectReference::new(&kinds::service::SERVICE, &metadata);
        self.recorder.event(&about, EventType::Warning, reason, message);
    }

    fn try_ports_again(&self) {
        self.places.refused().into_iter().for_each(|key| self.changed.add(key));
    }

    /// Takes in what the Nodes say. If that changes what Services mean here, all of them are looked at again.
    fn look_around(&mut self) {
        let mut around = self.around.clone();
        let nodes = self.nodes.all();
        let is_own = |node: &&Arc<Node>| node.metadata.name == self.around.node_name;
        let own = nodes.iter().find(is_own);
        self.health.set_leaving(own.is_some_and(|node| node.is_leaving()));
        around.zone = own.map(|node| node.metadata.labels.zone.clone()).unwrap_or_default();
        around.own_addresses = own.into_iter().flat_map(|node| node.internal_addresses()).collect();
        let others = nodes.iter().filter(|node| !is_own(node));
        around.other_nodes = others.flat_map(|node| node.internal_addresses()).collect();
        if around != self.around {
            self.around = around;
            let all = self.services.all();
            all.iter()
                .for_each(|service| self.changed.add(client::Object::key(service.as_ref())));
        }
    }

    /// Where the components of the cluster answer.
    fn protected(&self) -> BTreeSet<SocketAddr> {
        let nodes = self.nodes.all();
        let addresses = nodes.iter().flat_map(|node| node.internal_addresses());
        let kubelets = addresses.map(|address| SocketAddr::new(address, self.kubelet_port));
        kubelets.chain(self.api_servers.iter().copied()).collect()
    }
}

fn tell_foreign_addresses(service: &Service, around: &Surroundings) {
    let foreign = foreign_addresses(service, around);
    if foreign.is_empty() {
        return;
    }
    let shown: Vec<String> = foreign.iter().take(MAX_TOLD).map(ToString::to_string).collect();
    tracing::warn!(
        service = %client::Object::key(service), addresses = shown.join(", "), count = foreign.len(),
        "external addresses are ignored: they are those of pods, of Services, of a link or of every machine"
    );
}

/// Services come first: they count from here on, whatever fails.
fn apply(
    rules: &mut Applied<Nftables>,
    services: BTreeMap<Key, Vec<ServicePort>>,
    protected: Option<BTreeSet<SocketAddr>>,
    resync: bool,
) -> Result<(), BackendError> {
    rules.apply(services)?;
    if let Some(protected) = protected {
        rules.protect(protected)?;
    }
    match resync {
        true => rules.resync(),
        false => Ok(()),
    }
}

async fn ensure_reachable(blocks: &[Cidr]) {
    let blocks = blocks.to_vec();
    let ensured = tokio::task::spawn_blocking(move || reachable::ensure(&blocks)).await;
    if let Ok(Err(error)) = ensured {
        tracing::warn!(%error, "Failed to make Services reachable from this node's own processes");
    }
}
