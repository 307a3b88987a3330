//! Starting and stopping a server: wires its parts to a store and to each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::metrics::Page;
use api::Error;
use audit::Auditor;
use parking_lot::Mutex;
use registry::{Encryption, Registry, Services, follow_definitions};
use rustls::ClientConfig;
use store::Store;

use crate::aggregation::{Aggregation, FrontProxy};
use crate::bootstrap::ClusterFacts;
use crate::device_admin::DeviceAdminAccess;
use crate::fairness::Fairness;
use crate::gate::{Gate, GateOptions};
use crate::kubelets::KubeletDialer;
use crate::metrics::{Metrics, Timed};
use crate::node_blocks::NodeBlocks;
use crate::openapi::Documents;
use crate::usage::UsageTable;
use crate::{ApiServer, aggregator, bootstrap, fairness, gate, resource_metrics};

pub struct Options {
    pub store: Arc<dyn Store>,
    /// What the store encrypts by; backups are encrypted alike.
    pub encryption: Arc<Encryption>,
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

impl ApiServer {
    /// Opens the server on its store: first objects written, rights loaded, changes flowing. Ready when it returns.
    pub async fn start(options: Options) -> Result<Arc<ApiServer>, Error> {
        let gate = Gate::new(options.gate).map_err(|error| Error::bad_request(error.to_string()))?;
        let settings = admission::Settings {
            authorizer: gate.authorizer(),
        };
        let mut chain = admission::plugins::chain(&settings, &options.admission.enable, &options.admission.disable)
            .map_err(|error| Error::bad_request(error.to_string()))?;
        chain.push(Box::new(gate.escalation()));
        chain.push(Box::new(DeviceAdminAccess));
        if options.facts.allocates_node_cidrs {
            let local_node = options.facts.local_node.clone();
            chain.push(Box::new(NodeBlocks { local_node }));
        }
        let metrics: Arc<Metrics> = Arc::default();
        let chain = chain.wrapped(|plugin| Timed::around(plugin, &metrics));
        let root = options.services.root.clone();
        let mut registry = Registry::new(options.store, &root, chain, options.services, metrics.store.clone());
        registry.destinations.server = Some(SocketAddr::new(options.facts.advertise, options.facts.secure_port));
        let mut pages = options.pages;
        pages.extend(options.auditor.iter().map(|auditor| auditor.figures() as Arc<dyn Page>));
        let server = Arc::new(ApiServer {
            registry: Arc::new(registry),
            encryption: options.encryption,
            gate: Arc::new(gate),
            fairness: Arc::new(Fairness::new(
                options.max_reads_in_flight + options.max_writes_in_flight,
            )),
            aggregation: Aggregation::new(options.front_proxy),
            openapi: Documents::default(),
            metrics,
            pages,
            auditor: options.auditor,
            kubelets: options.kubelets,
            insecure_tls: options.insecure_tls,
            facts: options.facts,
            ready: AtomicBool::new(false),
            stalls: Arc::default(),
            usage: UsageTable::default(),
            tasks: Mutex::default(),
        });
        let fed = server.registry.clone();
        server.spawn(async move { fed.feed_watchers().await });
        let stalls = server.stalls.clone();
        server.spawn(async move { stalls.run().await });
        server.bootstrap().await?;
        server.gate.open(&server.registry)?;
        server.spawn(gate::follow(server.registry.clone(), server.gate.clone()));
        server.spawn(server.gate.follow_authorization_file());
        server.spawn(gate::keep_deleted_nodes(server.registry.clone(), server.gate.clone()));
        if let Some(issuers) = server.gate.issuers() {
            server.spawn(issuers.run());
        }
        server.fairness.load(&server.registry)?;
        server.spawn(fairness::follow(server.registry.clone(), server.fairness.clone()));
        let aggregating = server.clone();
        let changed = move || aggregating.aggregation.customs_changed();
        server.spawn(follow_definitions(server.registry.clone(), changed).await?);
        server.spawn(aggregator::follow(server.clone()).await?);
        server.spawn(resource_metrics::follow(server.clone()));
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
}
