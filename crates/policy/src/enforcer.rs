//! The seam between the pod network and policies: a pod that is being connected waits here until it is safe to start.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use network::conntrack::Conntrack;
use network::{Cidr, NetworkError, PodAddresses, PodNetwork, SandboxNetwork};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

/// How long a pod waits for its rules. The kubelet tries again after that.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it waits while it is known what is in the way, and that does not go.
const PATIENCE_WHILE_HINDERED: Duration = Duration::from_secs(3);

/// Which pods this node has connected, and the way to whoever enforces policies for them. Cheap to clone.
#[derive(Clone)]
pub struct Enforcer(Arc<Shared>);

struct Shared {
    /// By the sandbox's id.
    connected: Mutex<BTreeMap<String, Connected>>,
    changed: watch::Sender<u64>,
    /// Whoever enforces policies now, if anybody does.
    requests: Mutex<Option<mpsc::UnboundedSender<Request>>>,
    /// Why policies cannot be enforced just now, if that is known.
    hindrance: watch::Sender<Option<String>>,
}

/// A sandbox and the addresses that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub addresses: Vec<IpAddr>,
}

/// A pod that waits until its policies hold.
pub(crate) struct Request {
    pub pod: Connected,
    pub holds: oneshot::Sender<()>,
}

impl Default for Enforcer {
    fn default() -> Enforcer {
        Enforcer::new()
    }
}

impl Enforcer {
    pub fn new() -> Enforcer {
        Enforcer(Arc::new(Shared {
            connected: Mutex::default(),
            changed: watch::Sender::new(0),
            requests: Mutex::new(None),
            hindrance: watch::Sender::new(None),
        }))
    }

    /// Becomes the one who enforces; whoever did before gets no more requests.
    pub(crate) fn serve(&self) -> mpsc::UnboundedReceiver<Request> {
        let (sender, requests) = mpsc::unbounded_channel();
        *self.0.requests.lock() = Some(sender);
        self.tell();
        requests
    }

    /// Told whenever a sandbox is connected or disconnected.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// The addresses that the newest sandboxes of pods were given, by the pod's UID.
    pub(crate) fn connected(&self) -> BTreeMap<String, Connected> {
        let connected = self.0.connected.lock();
        let mut by_uid: BTreeMap<String, Connected> = BTreeMap::new();
        for sandbox in connected.values() {
            let known = by_uid.entry(sandbox.uid.clone()).or_insert_with(|| Connected {
                addresses: Vec::new(),
                ..sandbox.clone()
            });
            known.addresses.extend(&sandbox.addresses);
        }
        by_uid
    }

    fn register(&self, sandbox: &SandboxNetwork, addresses: &[IpAddr]) -> Connected {
        let connected = Connected {
            namespace: sandbox.namespace.clone(),
            name: sandbox.name.clone(),
            uid: sandbox.uid.clone(),
            addresses: addresses.to_vec(),
        };
        self.0.connected.lock().insert(sandbox.id.clone(), connected.clone());
        self.tell();
        connected
    }

    fn release(&self, id: &str) {
        if self.0.connected.lock().remove(id).is_some() {
            self.tell();
        }
    }

    /// Takes why policies cannot be enforced, for the pods that wait.
    pub(crate) fn hindered(&self, reason: String) {
        self.0.hindrance.send_replace(Some(reason));
    }

    pub(crate) fn unhindered(&self) {
        self.0.hindrance.send_replace(None);
    }

    /// Returns why policies cannot be enforced, once that has been so for a while.
    async fn stays_hindered(&self) -> String {
        let mut hindrance = self.0.hindrance.subscribe();
        loop {
            // The sender lives in `self`, so waiting cannot fail.
            let _ = hindrance.wait_for(Option::is_some).await;
            let freed = hindrance.wait_for(Option::is_none);
            if tokio::time::timeout(PATIENCE_WHILE_HINDERED, freed).await.is_err()
                && let Some(reason) = hindrance.borrow().clone()
            {
                return reason;
            }
        }
    }

    fn tell(&self) {
        self.0.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Returns once the policies that are there for the pod now hold for its addresses in the kernel.
    async fn admit(&self, pod: &Connected) {
        let mut changes = self.changes();
        loop {
            let (holds, held) = oneshot::channel();
            let request = Request {
                pod: pod.clone(),
                holds,
            };
            let requests = self.0.requests.lock().clone();
            let sent = requests.is_some_and(|requests| requests.send(request).is_ok());
            if sent && held.await.is_ok() {
                return;
            }
            // Nobody enforces policies just now; the next one says so.
            let _ = changes.changed().await;
        }
    }
}

/// A pod network whose pods start only after the policies that are about them hold.
pub struct PolicedNetwork {
    network: Arc<dyn PodNetwork>,
    enforcer: Enforcer,
    patience: Duration,
}

impl PolicedNetwork {
    pub fn new(network: Arc<dyn PodNetwork>, enforcer: Enforcer) -> PolicedNetwork {
        PolicedNetwork {
            network,
            enforcer,
            patience: PATIENCE,
        }
    }

    /// How long a pod waits before it is given up.
    pub fn with_patience(self, patience: Duration) -> PolicedNetwork {
        PolicedNetwork { patience, ..self }
    }
}

#[async_trait]
impl PodNetwork for PolicedNetwork {
    async fn setup(&self, sandbox: &SandboxNetwork) -> Result<PodAddresses, NetworkError> {
        let addresses = self.network.setup(sandbox).await?;
        let pod = self.enforcer.register(sandbox, &addresses.ips);
        let reason = tokio::select! {
            () = self.enforcer.admit(&pod) => match forget_connections(addresses.ips.clone()).await {
                Ok(()) => return Ok(addresses),
                Err(error) => error.to_string(),
            },
            reason = self.enforcer.stays_hindered() => reason,
            () = tokio::time::sleep(self.patience) => format!("nothing came of it within {} s", self.patience.as_secs()),
        };
        if let Err(error) = self.teardown(sandbox).await {
            tracing::warn!(
                pod = format!("{}/{}", pod.namespace, pod.name), sandbox = sandbox.id, %error,
                "Failed to disconnect a pod whose NetworkPolicies could not be enforced"
            );
        }
        Err(NetworkError::PoliciesNotEnforced {
            pod: format!("{}/{}", pod.namespace, pod.name),
            reason,
        })
    }

    async fn teardown(&self, sandbox: &SandboxNetwork) -> Result<(), NetworkError> {
        self.network.teardown(sandbox).await?;
        self.enforcer.release(&sandbox.id);
        Ok(())
    }

    async fn status(&self) -> Result<(), NetworkError> {
        self.network.status().await
    }

    async fn reconcile(&self, live: &[SandboxNetwork]) -> Result<(), NetworkError> {
        self.network.reconcile(live).await
    }

    async fn update_pod_cidrs(&self, pod_cidrs: &[Cidr]) -> Result<(), NetworkError> {
        self.network.update_pod_cidrs(pod_cidrs).await
    }
}

#[derive(Debug, thiserror::Error)]
enum ForgetError {
    #[error("failed to delete the conntrack entries of the pod's addresses: {0}")]
    Conntrack(#[from] network::netlink::Error),
    #[error("the deletion of the pod's conntrack entries was interrupted: {0}")]
    Interrupted(#[from] tokio::task::JoinError),
}

/// Ends what earlier owners of these addresses had, and what was answered before the policies held: only the first packet
/// of a connection is judged.
async fn forget_connections(addresses: Vec<IpAddr>) -> Result<(), ForgetError> {
    let forgotten = tokio::task::spawn_blocking(move || Conntrack::open()?.forget(&addresses)).await;
    Ok(forgotten??)
}
