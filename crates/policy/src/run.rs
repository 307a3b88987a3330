//! Following the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::kinds;
use client::{Backoff, Cache, Client, Freshness, Informers, Key, List, Object, Selection};
use network::{netlink, nft};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::enforcer::{Connected, Enforcer, Request};
use crate::listing::{self, PolicyHead};
use crate::model::{Model, PodFacts, Policy};
use crate::name_servers;
use crate::nftables::{self, InterfaceOf, Nftables, NftablesError, NftablesOptions};
use crate::objects::{EndpointSlice, Namespace, NetworkPolicy, Pod};

/// What a node has to know to enforce policies for its pods.
#[derive(Clone)]
pub struct PolicyOptions {
    pub client: Client,
    /// The name of this node's Node: pods with this name are local.
    pub node_name: String,
    /// The name of the tables of packet rules; nobody else's.
    pub table: String,
    /// The bridge of this node's pods, and how its ports are found.
    pub bridge: String,
    pub interface_of: InterfaceOf,
    /// Where pods wait until their policies hold.
    pub enforcer: Enforcer,
    /// Set to true once the rules hold everything that the first lists returned.
    pub ready: watch::Sender<bool>,
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("failed to watch nftables rules: {0}")]
    Watch(netlink::Error),

    #[error(transparent)]
    Nftables(#[from] NftablesError),

    /// The work was cut off by the process itself, which is shutting down or has a bug.
    #[error("the update of nftables rules was interrupted: {0}")]
    Interrupted(String),
}

/// The name of the tables on a machine with one node.
pub const DEFAULT_TABLE: &str = "karve-policy";
/// The rules are compared with the kernel's this often, in case somebody else changed them.
const RESYNC: Duration = Duration::from_secs(600);
/// The pauses after the kernel refused rules.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
/// Names the static pod that a pod of the API stands for, by the UID that its node knows it by.
const MIRRORED_UID: &str = "kubernetes.io/config.mirror";
/// Removes the rules of that name. Fine if there are none.
pub fn remove(table: &str) -> Result<(), PolicyError> {
    Ok(nftables::remove(table)?)
}

/// Keeps the rules of this network namespace in step with the API server's NetworkPolicies, until the future is dropped.
/// The rules stay: policies hold while nobody follows them, and the next one takes the rules over.
pub async fn run(options: PolicyOptions) -> Result<(), PolicyError> {
    let follower = Arc::new(Follower::new(&options)?);
    tokio::select! {
        () = follower.caches.synced() => options.enforcer.unhindered(),
        () = listing::explain_delay(&options.client, &options.enforcer) => {}
    }
    let requests = options.enforcer.serve();
    tokio::select! {
        ended = follower.enforce(&options) => ended,
        () = admit(follower.clone(), &options.client, requests) => Ok(()),
    }
}

/// What has changed since it was last applied.
struct Changed {
    keys: Mutex<Keys>,
    /// Counts the changes.
    count: watch::Sender<u64>,
}

#[derive(Clone, Debug, Default)]
struct Keys {
    pods: BTreeSet<Key>,
    namespaces: BTreeSet<Key>,
    policies: BTreeSet<Key>,
    slices: BTreeSet<Key>,
}

impl Changed {
    fn note(&self, note: impl FnOnce(&mut Keys)) {
        note(&mut self.keys.lock());
        self.count.send_modify(|count| *count += 1);
    }
}

struct Caches {
    pods: Arc<Cache<Pod>>,
    namespaces: Arc<Cache<Namespace>>,
    policies: Arc<Cache<NetworkPolicy>>,
    slices: Arc<Cache<EndpointSlice>>,
    /// Keeps the caches current.
    _informers: Informers,
}

impl Caches {
    fn new(client: &Client, changed: &Arc<Changed>) -> Caches {
        let informers = Informers::new(client.clone());
        let of_dns = Selection {
            label_selector: format!("kubernetes.io/service-name={}", name_servers::DNS_SERVICE),
            ..Selection::default()
        };
        let caches = Caches {
            pods: informers.cache(&kinds::pod::POD),
            namespaces: informers.cache(&kinds::namespace::NAMESPACE),
            policies: informers.cache(&kinds::network_policy::NETWORK_POLICY),
            slices: informers.selected(&kinds::endpoint_slice::ENDPOINT_SLICE, of_dns),
            _informers: informers,
        };
        follow(&caches.pods, changed, |keys| &mut keys.pods);
        follow(&caches.namespaces, changed, |keys| &mut keys.namespaces);
        follow(&caches.policies, changed, |keys| &mut keys.policies);
        follow(&caches.slices, changed, |keys| &mut keys.slices);
        caches
    }

    async fn synced(&self) {
        tokio::join!(
            self.pods.synced(),
            self.namespaces.synced(),
            self.policies.synced(),
            self.slices.synced()
        );
    }
}

fn follow<T: Object>(cache: &Cache<T>, changed: &Arc<Changed>, keys: fn(&mut Keys) -> &mut BTreeSet<Key>) {
    let changed = changed.clone();
    cache.on_change(move |old, new| {
        if let Some(object) = new.or(old) {
            let key = object.key();
            changed.note(|all| {
                keys(all).insert(key);
            });
        }
    });
}

struct Follower {
    node_name: String,
    enforcer: Enforcer,
    caches: Caches,
    changed: Arc<Changed>,
    state: Arc<Mutex<State>>,
    /// How many steps were asked for, and how many of these are in the kernel.
    asked: watch::Sender<u64>,
    done: watch::Sender<u64>,
}

/// What is to be so, and the way to the kernel.
struct State {
    model: Model,
    rules: Nftables,
    /// The sandboxes that the model knows, by their pod's UID.
    connected: BTreeMap<String, Connected>,
    /// A step failed, or nobody knows what the kernel has.
    in_doubt: bool,
}

impl Follower {
    fn new(options: &PolicyOptions) -> Result<Follower, PolicyError> {
        let rules = Nftables::open(&NftablesOptions {
            table: options.table.clone(),
            bridge: options.bridge.clone(),
            interface_of: options.interface_of.clone(),
        })?;
        let changed = Arc::new(Changed {
            keys: Mutex::default(),
            count: watch::Sender::new(0),
        });
        Ok(Follower {
            node_name: options.node_name.clone(),
            enforcer: options.enforcer.clone(),
            caches: Caches::new(&options.client, &changed),
            changed,
            state: Arc::new(Mutex::new(State {
                model: Model::default(),
                rules,
                connected: BTreeMap::new(),
                in_doubt: true,
            })),
            asked: watch::Sender::new(0),
            done: watch::Sender::new(0),
        })
    }

    /// Applies changes as they come.
    async fn enforce(&self, options: &PolicyOptions) -> Result<(), PolicyError> {
        let (mut changed, mut connected) = (self.changed.count.subscribe(), self.enforcer.changes());
        let mut asked = self.asked.subscribe();
        let monitor = nft::Monitor::open().map_err(PolicyError::Watch)?;
        let own = self.state.lock().rules.port_id();
        let tables = [options.table.as_str()];
        let (mut failures, mut due) = (0, Instant::now());
        loop {
            let wake_at = match failures {
                0 => due,
                _ => Instant::now() + RETRY.wait(failures - 1),
            };
            tokio::select! {
                Ok(()) = changed.changed(), if failures == 0 => {}
                Ok(()) = connected.changed(), if failures == 0 => {}
                Ok(()) = asked.changed(), if failures == 0 => {}
                disturbed = monitor.changed_by_others(&tables, own), if failures == 0 => {
                    disturbed.map_err(PolicyError::Watch)?;
                    // At once, without waiting whether more is to come: pods are open meanwhile.
                    monitor.drain().map_err(PolicyError::Watch)?;
                    tracing::warn!(
                        table = options.table,
                        "Packet rules of NetworkPolicies were changed by another program; restoring them"
                    );
                    due = Instant::now();
                }
                () = tokio::time::sleep_until(wake_at) => {}
            }
            let resync = due <= Instant::now();
            let asked_before = *asked.borrow_and_update();
            changed.mark_unchanged();
            connected.mark_unchanged();
            match self.step(resync).await {
                Ok(()) => {
                    if failures > 0 {
                        self.enforcer.unhindered();
                    }
                    failures = 0;
                    if resync {
                        due = Instant::now() + RESYNC;
                    }
                    self.done.send_replace(asked_before);
                    options.ready.send_replace(true);
                }
                Err(error) => {
                    failures += 1;
                    self.enforcer.hindered(error.to_string());
                    tracing::error!(%error, "Failed to bring the rules of NetworkPolicies up to date; retrying");
                }
            }
        }
    }

    /// Takes what has changed into the model, and then what follows into the kernel.
    async fn step(&self, resync: bool) -> Result<(), PolicyError> {
        let keys = std::mem::take(&mut *self.changed.keys.lock());
        self.take(&keys);
        let state = self.state.clone();
        let work = move || state.lock().apply(resync);
        let applied = tokio::task::spawn_blocking(work).await;
        applied.unwrap_or_else(|panic| Err(PolicyError::Interrupted(panic.to_string())))?;
        for key in &keys.policies {
            if let Some(policy) = self.caches.policies.get_key(key.as_str()) {
                let name = format!("networkpolicies/{key}");
                trace::mark("policy/rules-live", name, policy.metadata.uid.clone());
            }
        }
        Ok(())
    }

    fn take(&self, keys: &Keys) {
        let connected = self.enforcer.connected();
        let mut state = self.state.lock();
        for key in &keys.namespaces {
            let namespace = self.caches.namespaces.get_key(key.as_str());
            let labels = namespace.map(|namespace| namespace.metadata.labels.clone());
            state.model.set_namespace(key.as_str(), labels);
        }
        // A sandbox that comes or goes changes a pod's addresses although no object has changed.
        let pods = keys.pods.iter().cloned().chain(differing(&state.connected, &connected));
        for key in pods.collect::<BTreeSet<Key>>() {
            let pod = self.caches.pods.get_key(key.as_str()).map(|pod| {
                let addresses = connected.get(uid(&pod)).map(|sandbox| sandbox.addresses.as_slice());
                PodFacts::new(&pod, &self.node_name, addresses)
            });
            state.model.set_pod(&key, pod);
        }
        state.connected = connected;
        let model = &mut state.model;
        for key in &keys.slices {
            let slice = self.caches.slices.get_key(key.as_str());
            // No pod has such a name.
            let server = Key::new(name_servers::DNS_NAMESPACE, &format!("{}:", key.name()));
            model.set_pod(&server, slice.and_then(|slice| name_servers::dns_servers(&slice)));
        }
        for key in &keys.policies {
            let policy = self.caches.policies.get_key(key.as_str());
            model.set_policy(key, policy.map(|policy| Policy::new(&policy)));
        }
    }

    /// Returns once everything that is there for a pod now is in the kernel.
    async fn hold(&self, client: &Client, pod: &Connected) {
        let policies = listing::policies_of(client, &pod.namespace, &self.enforcer).await;
        let mut changed = self.changed.count.subscribe();
        while !self.knows(pod, &policies) {
            // The sender lives in `self`, so waiting cannot fail.
            let _ = changed.changed().await;
        }
        // The caches have it all; this makes the next step look at it, whether or not they have told yet.
        self.changed.note(|keys| {
            keys.pods.insert(Key::new(&pod.namespace, &pod.name));
            keys.policies.extend(policies.items.iter().map(PolicyHead::key));
        });
        let mut ticket = 0;
        self.asked.send_modify(|asked| {
            *asked += 1;
            ticket = *asked;
        });
        let _ = self.done.subscribe().wait_for(|done| *done >= ticket).await;
    }

    /// Whether the caches have the pod and what was listed, or know of newer.
    fn knows(&self, pod: &Connected, policies: &List<PolicyHead>) -> bool {
        let found = self.caches.pods.get(&pod.namespace, &pod.name);
        let number = |revision: &str| revision.parse::<u64>().unwrap_or(0);
        let reached = self.caches.policies.revision() >= number(&policies.metadata.resource_version);
        let has = |policy: &PolicyHead| {
            let known = self.caches.policies.revision_of(policy.key().as_str());
            // One that is absent has been deleted since, if the cache is that far.
            known.map_or(reached, |known| {
                number(&known) >= number(&policy.metadata.resource_version)
            })
        };
        found.is_some_and(|found| uid(&found) == pod.uid) && policies.items.iter().all(has)
    }
}

/// Answers pods that wait, each as soon as its policies hold.
async fn admit(follower: Arc<Follower>, client: &Client, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut waiting = JoinSet::new();
    loop {
        tokio::select! {
            request = requests.recv() => {
                let Some(Request { pod, mut holds }) = request else { return };
                let (follower, client) = (follower.clone(), client.clone());
                waiting.spawn(async move {
                    let held = tokio::select! {
                        () = follower.hold(&client, &pod) => true,
                        () = holds.closed() => false,
                    };
                    if held {
                        // A pod that has been given up in this moment does not start.
                        let _ = holds.send(());
                    }
                });
            }
            Some(_) = waiting.join_next() => {}
        }
    }
}

/// The pods whose sandboxes are not the same in both.
fn differing(old: &BTreeMap<String, Connected>, new: &BTreeMap<String, Connected>) -> Vec<Key> {
    let gone = old.iter().filter(|(uid, pod)| new.get(*uid) != Some(pod));
    let come = new.iter().filter(|(uid, pod)| old.get(*uid) != Some(pod));
    let key = |(_, pod): (&String, &Connected)| Key::new(&pod.namespace, &pod.name);
    gone.chain(come).map(key).collect()
}

/// The UID that a pod's node knows it by.
fn uid(pod: &Pod) -> &str {
    let mirrored = pod.metadata.annotations.get(MIRRORED_UID);
    mirrored.unwrap_or(&pod.metadata.uid)
}

impl State {
    fn apply(&mut self, resync: bool) -> Result<(), PolicyError> {
        let step = self.model.step();
        if !self.in_doubt
            && !resync
            && !step.is_empty()
            && let Err(error) = self.rules.apply(&step)
        {
            tracing::warn!(%error, "Failed to change the rules of NetworkPolicies; comparing all of them");
            self.in_doubt = true;
        }
        if self.in_doubt || resync {
            self.in_doubt = true;
            self.rules.resync(self.model.facts())?;
            self.in_doubt = false;
        }
        Ok(())
    }
}
