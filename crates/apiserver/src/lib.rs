//! The API server: HTTP, the request pipeline, verbs, discovery, proxying to nodes.
//!
//! Start with [`pipeline`], which a request passes top to bottom; `verbs` is what happens to requests for resources, with
//! the help of the crate `registry`; `watching` is how changes reach clients. [`ApiServer::start`] wires them to a store.
//!
//! Only the registry writes to the store, which nothing here can reach. This crate must never depend on a component that
//! is a client of it: controllers, scheduler, kubelet, proxy.

mod aggregation;
mod audit_trail;
mod backup;
mod body;
mod body_budget;
mod bootstrap;
mod connect;
mod decode;
mod device_admin;
mod discovery;
mod escalation;
mod fairness;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod health;
mod list_body;
mod metrics;
mod negotiate;
mod node_blocks;
mod nonresource;
mod openapi;
mod options;
mod patch_type;
mod patching;
pub mod pipeline;
mod request;
mod resolve;
mod respond;
mod reviews;
mod server;
mod stall;
mod subresource;
mod table;
mod transport;
mod verbs;
mod watching;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::metrics::Page;
use ::registry::{Registry, follow_definitions};
use api::Error;
use audit::Auditor;
use rustls::ClientConfig;
use store::Store;
use tokio::task::JoinHandle;

pub use aggregation::FrontProxy;
pub use auth::authorize::configuration::{AuthorizerSpec, WebhookSpec};
pub use bootstrap::{ClusterFacts, KUBELET_CLIENT, LocalNode};
pub use connect::{KubeletDialer, KubeletTls, KubeletTrust};
pub use fairness::{MAX_READS_IN_FLIGHT, MAX_WRITES_IN_FLIGHT};
pub use gate::{
    AuthorizationSource, AuthorizersError, FrontProxies, FrontProxyError, FrontProxyOptions, Gate, GateOptions,
    Issuers, IssuersError, IssuersSource, KubeconfigWebhook, TokenWebhook,
};
pub use nonresource::GIT_VERSION;
pub use registry::{EtcdCodec, STORE_ROOT, ServiceNetwork, Services};
pub use server::{ServingTls, serve, serve_within};
pub use transport::InProcess;

pub struct Options {
    pub store: Arc<dyn Store>,
    pub admission: AdmissionOptions,
    pub gate: GateOptions,
    pub services: Services,
    pub facts: ClusterFacts,
    pub kubelets: KubeletDialer,
    pub front_proxy: FrontProxy,
    /// For pods and services behind `https:` in a proxy path, whose certificates nobody vouches for.
    pub insecure_tls: Arc<ClientConfig>,
    pub max_reads_in_flight: usize,
    pub max_writes_in_flight: usize,
    /// The figures of other components in this process, which are told with the server's own.
    pub pages: Vec<Arc<dyn Page>>,
    /// What is written down about requests, if anything is.
    pub auditor: Option<Arc<Auditor>>,
}

/// Which admission plugins run beyond or instead of the defaults.
#[derive(Clone, Debug, Default)]
pub struct AdmissionOptions {
    pub enable: Vec<String>,
    pub disable: Vec<String>,
}

pub struct ApiServer {
    registry: Arc<Registry>,
    gate: Gate,
    fairness: fairness::Fairness,
    aggregation: aggregation::Aggregation,
    openapi: openapi::Documents,
    metrics: Arc<metrics::Metrics>,
    pages: Vec<Arc<dyn Page>>,
    auditor: Option<Arc<Auditor>>,
    kubelets: KubeletDialer,
    insecure_tls: Arc<ClientConfig>,
    facts: ClusterFacts,
    ready: AtomicBool,
    stalls: Arc<stall::Stalls>,
    tasks: parking_lot::Mutex<Vec<JoinHandle<()>>>,
}

impl ApiServer {
    /// Opens the server on its store: first objects written, rights loaded, changes flowing. Ready when it returns.
    pub async fn start(options: Options) -> Result<Arc<ApiServer>, Error> {
        let gate = Gate::new(options.gate).map_err(|error| Error::bad_request(error.to_string()))?;
        let settings = admission::plugins::Settings {
            authorizer: gate.authorizer(),
        };
        let mut chain = admission::plugins::chain(&settings, &options.admission.enable, &options.admission.disable)
            .map_err(Error::bad_request)?;
        chain.push(Box::new(gate.escalation()));
        chain.push(Box::new(device_admin::DeviceAdminAccess));
        if options.facts.allocates_node_cidrs {
            let local_node = options.facts.local_node.clone();
            chain.push(Box::new(node_blocks::NodeBlocks { local_node }));
        }
        let metrics: Arc<metrics::Metrics> = Arc::default();
        let chain = chain.wrapped(|plugin| metrics::Timed::around(plugin, &metrics));
        let mut registry = Registry::new(
            options.store,
            STORE_ROOT,
            chain,
            options.services,
            metrics.store.clone(),
        );
        registry.destinations.server = Some(SocketAddr::new(options.facts.advertise, options.facts.secure_port));
        let mut pages = options.pages;
        pages.extend(options.auditor.iter().map(|auditor| auditor.figures() as Arc<dyn Page>));
        let server = Arc::new(ApiServer {
            registry: Arc::new(registry),
            gate,
            fairness: fairness::Fairness::new(options.max_reads_in_flight + options.max_writes_in_flight),
            aggregation: aggregation::Aggregation::new(options.front_proxy),
            openapi: openapi::Documents::default(),
            metrics,
            pages,
            auditor: options.auditor,
            kubelets: options.kubelets,
            insecure_tls: options.insecure_tls,
            facts: options.facts,
            ready: AtomicBool::new(false),
            stalls: Arc::default(),
            tasks: parking_lot::Mutex::default(),
        });
        let fed = server.registry.clone();
        server.spawn(async move { fed.feed_watchers().await });
        let stalls = server.stalls.clone();
        server.spawn(async move { stalls.run().await });
        server.bootstrap().await?;
        server.gate.open(&server.registry)?;
        server.spawn(gate::follow(server.clone()));
        server.spawn(server.gate.follow_authorization_file());
        if let Some(issuers) = server.gate.issuers() {
            server.spawn(issuers.run());
        }
        server.load_fairness()?;
        server.spawn(fairness::follow(server.clone()));
        let aggregating = server.clone();
        let changed = move || aggregating.aggregation.customs_changed();
        server.spawn(follow_definitions(server.registry.clone(), changed).await?);
        server.spawn(aggregation::follow(server.clone()).await?);
        server.ready.store(true, Ordering::Release);
        Ok(server)
    }

    async fn bootstrap(&self) -> Result<(), Error> {
        self.registry
            .seed(bootstrap::seeds(&self.registry, &self.facts))
            .await?;
        let mut current = bootstrap::own_endpoints(&self.facts);
        current.push(self.aggregation.authentication_config(&self.facts.client_authority));
        self.registry.seed_current(current).await
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().push(tokio::spawn(task));
    }

    /// Stops background work; running requests are drained by [`serve`].
    pub async fn stop(&self) {
        self.ready.store(false, Ordering::Release);
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        self.registry.close().await;
    }

    fn advertised_address(&self) -> String {
        match self.facts.advertise {
            IpAddr::V4(ip) => format!("{ip}:{}", self.facts.secure_port),
            IpAddr::V6(ip) => format!("[{ip}]:{}", self.facts.secure_port),
        }
    }
}
