//! The server and its parts, for everybody who answers requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ::metrics::Page;
use audit::Auditor;
use parking_lot::Mutex;
use registry::{Encryption, Registry};
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use crate::aggregation::Aggregation;
use crate::bootstrap::ClusterFacts;
use crate::fairness::Fairness;
use crate::gate::Gate;
use crate::kubelets::KubeletDialer;
use crate::metrics::Metrics;
use crate::openapi::Documents;
use crate::stall::Stalls;
use crate::usage::UsageTable;

/// A running API server; see [`ApiServer::start`].
pub struct ApiServer {
    pub(crate) registry: Arc<Registry>,
    pub(crate) encryption: Arc<Encryption>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) fairness: Arc<Fairness>,
    pub(crate) aggregation: Aggregation,
    pub(crate) openapi: Documents,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pages: Vec<Arc<dyn Page>>,
    pub(crate) auditor: Option<Arc<Auditor>>,
    pub(crate) kubelets: KubeletDialer,
    pub(crate) insecure_tls: Arc<ClientConfig>,
    pub(crate) facts: ClusterFacts,
    pub(crate) ready: AtomicBool,
    pub(crate) stalls: Arc<Stalls>,
    pub(crate) usage: UsageTable,
    pub(crate) tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl ApiServer {
    /// Where clients reach this server, as `HOST:PORT`.
    pub(crate) fn advertised_address(&self) -> String {
        match self.facts.advertise {
            IpAddr::V4(ip) => format!("{ip}:{}", self.facts.secure_port),
            IpAddr::V6(ip) => format!("[{ip}]:{}", self.facts.secure_port),
        }
    }
}
