//! The scheduler at work: watches in, bindings out.

use std::sync::Arc;

use api::Value;
use api::kinds::namespace::NAMESPACE;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET;
use client::when::Moment;
use client::{Cache, Client, EventRecorder, EventType, Informers, Object, Selection, WithMetadata};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::budgets::Budget;
use crate::core::{Core, Decision, Nomination};
use crate::failure::Failure;
use crate::framework::{BindError, Binding, Change};
use crate::metrics::{Attempted, SchedulerMetrics};
use crate::node::{Namespace, Node};
use crate::pod::Pod;
use crate::preempt;
use crate::profile::Profile;
use crate::queued_pod::QueuedPod;
use crate::volumes::{self, ByKey, Capacity, Claim, CsiDriver, CsiNode, StorageClass, Volume, Volumes};

/// The bindings and reports that are being written; with more than this under way, decisions wait after all.
const MAX_WRITING: usize = 1024;
/// Decisions in a row before other tasks of the thread get a turn.
const DECISIONS_IN_A_ROW: usize = 64;

pub struct SchedulerOptions {
    pub client: Client,
    /// The schedulers that pods can choose from; one, `default-scheduler`, unless there is a reason.
    pub profiles: Vec<Profile>,
    /// The name of this machine, for events.
    pub host: String,
    pub metrics: Arc<SchedulerMetrics>,
}

struct Scheduler {
    core: Mutex<Core>,
    /// Something went into the core.
    changed: Notify,
    client: Client,
    recorder: EventRecorder,
    metrics: Arc<SchedulerMetrics>,
}

/// Schedules pods until the future is dropped.
pub async fn run(options: SchedulerOptions) {
    let client = options.client.named("kube-scheduler");
    let informers = Informers::new(client.clone());
    let seed = (u64::from(clock::below(u32::MAX)) << 32) | u64::from(clock::below(u32::MAX));
    let first = options.profiles.first();
    let component = first.map_or_else(|| "default-scheduler".to_owned(), |first| first.scheduler_name.clone());
    let scheduler = Arc::new(Scheduler {
        recorder: EventRecorder::start(client.clone(), &component, ""),
        core: Mutex::new(Core::new(options.profiles, seed)),
        changed: Notify::new(),
        client,
        metrics: options.metrics,
    });
    let nodes = informers.cache::<Node>(&NODE);
    let unfinished = Selection {
        field_selector: "status.phase!=Succeeded,status.phase!=Failed".to_owned(),
        ..Selection::default()
    };
    let pods = informers.selected::<Pod>(&POD, unfinished);
    let namespaces = informers.cache::<Namespace>(&NAMESPACE);
    let budgets = informers.cache::<Budget>(&POD_DISRUPTION_BUDGET);
    // Pods that have a node must be counted before any decision is made.
    nodes.synced().await;
    budgets.synced().await;
    namespaces.synced().await;
    pods.synced().await;
    scheduler.follow_storage(&informers).await;
    let follower = scheduler.clone();
    nodes.on_change(move |old, new| {
        let old = old.map(|node| &**node);
        follower
            .core
            .lock()
            .node_changed(old, new.map(|node| &**node), Instant::now());
        follower.changed.notify_one();
    });
    let follower = scheduler.clone();
    namespaces.on_change(move |old, new| {
        let Some(namespace) = new.or(old) else { return };
        let name = &namespace.metadata.name;
        let labels = new.map(|namespace| namespace.metadata.labels.clone());
        follower.core.lock().namespace_changed(name, labels, Instant::now());
        follower.changed.notify_one();
    });
    let follower = scheduler.clone();
    budgets.on_change(move |old, new| follower.core.lock().budget_changed(old, new));
    let follower = scheduler.clone();
    pods.on_change(move |old, new| {
        follower.core.lock().pod_changed(old, new, Instant::now());
        follower.changed.notify_one();
    });
    scheduler.decide_all().await;
}

impl Scheduler {
    async fn decide_all(self: Arc<Self>) {
        let mut writing = JoinSet::new();
        let permits = Arc::new(Semaphore::new(MAX_WRITING));
        loop {
            let mut decided = 0;
            while decided < DECISIONS_IN_A_ROW
                && let Some((decision, begun)) = self.next()
            {
                decided += 1;
                // The semaphore is never closed.
                let permit = permits.clone().acquire_owned().await;
                let scheduler = self.clone();
                writing.spawn(async move {
                    scheduler.report(decision, begun).await;
                    drop(permit);
                });
            }
            while writing.try_join_next().is_some() {}
            self.metrics.pending(self.core.lock().pending());
            if decided == DECISIONS_IN_A_ROW {
                tokio::task::yield_now().await;
                continue;
            }
            let wake = self.core.lock().wake_at();
            match wake {
                Some(at) => drop(tokio::time::timeout_at(at, self.changed.notified()).await),
                None => self.changed.notified().await,
            }
        }
    }

    /// The next decision, and when work on it began.
    fn next(&self) -> Option<(Decision, Instant)> {
        let begun = Instant::now();
        let decision = self.core.lock().next(begun)?;
        self.metrics.decided(&decision, begun.elapsed());
        let pod = &decision.queued.pod;
        if decision.result.is_ok() {
            trace::mark("scheduler/decided", pod.path(), pod.metadata.uid.clone());
        }
        Some((decision, begun))
    }

    async fn report(self: Arc<Self>, decision: Decision, begun: Instant) {
        let ended = |what| self.metrics.attempted(&decision.queued, what, begun, Instant::now());
        match &decision.result {
            Ok(node) => match self.bind(&decision, node).await {
                true => ended(Attempted::Scheduled),
                false => ended(Attempted::Error),
            },
            Err(failure) => {
                ended(Attempted::Unschedulable);
                self.tell_failure(&decision.queued.pod, failure, &decision.nomination)
                    .await;
                self.make_room(&decision).await;
            }
        }
    }

    /// Whether the binding was written.
    async fn bind(&self, decision: &Decision, node: &str) -> bool {
        let pod = decision.queued.pod.clone();
        let unbound = Unbound {
            scheduler: self,
            queued: Some(decision.queued.clone()),
        };
        match self.write_binding(decision, node).await {
            Ok(()) => {
                unbound.done();
                trace::mark("scheduler/bound", pod.path(), pod.metadata.uid.clone());
                let metadata = &pod.metadata;
                let message = format!(
                    "Successfully assigned {}/{} to {node}",
                    metadata.namespace, metadata.name
                );
                self.recorder
                    .event(&pod.reference(), EventType::Normal, "Scheduled", message);
                let rows = decision.rows.iter();
                rows.for_each(|row| row.plugin.post_bind(&pod, node));
                return true;
            }
            Err(BindError::Client(error)) if error.is_not_found() => {}
            Err(error) => tracing::warn!(pod = pod.path(), node, %error, "a binding could not be written"),
        }
        false
    }

    /// Makes the victims of a decision leave, and takes back nominations that no longer hold.
    async fn make_room(&self, decision: &Decision) {
        for other in &decision.displaced {
            preempt::clear_nomination(&self.client, other).await;
        }
        let Some(preemption) = &decision.preemption else {
            return;
        };
        let pod = &decision.queued.pod;
        if let Err(error) = preempt::carry_out(&self.client, &self.recorder, pod, preemption).await {
            tracing::warn!(pod = pod.path(), node = preemption.node, %error, "could not make room for the pod");
            self.core.lock().preemption_failed(pod.uid(), Instant::now());
            self.changed.notify_one();
        }
    }

    async fn write_binding(&self, decision: &Decision, node: &str) -> Result<(), BindError> {
        let binding = Binding {
            pod: decision.queued.pod.clone(),
            node: node.to_owned(),
            volumes: decision.volumes.clone(),
        };
        for row in decision.rows {
            row.plugin.pre_bind(&self.client, &binding).await?;
        }
        for row in decision.rows {
            if row.plugin.bind(&self.client, &binding.pod, node).await? {
                break;
            }
        }
        Ok(())
    }

    /// Keeps what is known of storage current.
    async fn follow_storage(self: &Arc<Self>, informers: &Informers) {
        use api::kinds::*;
        let claims = informers.cache::<Claim>(&persistent_volume_claim::PERSISTENT_VOLUME_CLAIM);
        let volumes = informers.cache::<Volume>(&persistent_volume::PERSISTENT_VOLUME);
        let classes = informers.cache::<StorageClass>(&storage_class::STORAGE_CLASS);
        let csi_nodes = informers.cache::<CsiNode>(&csi_node::CSI_NODE);
        let csi_drivers = informers.cache::<CsiDriver>(&csi_driver::CSI_DRIVER);
        let capacities = informers.cache::<Capacity>(&csi_storage_capacity::CSI_STORAGE_CAPACITY);
        claims.synced().await;
        let follower = self.clone();
        claims.on_change(move |old, new| {
            let Some(claim) = new.or(old) else { return };
            let key = volumes::key_of(&**claim);
            let apply = |volumes: &mut Volumes| volumes.claims.changed(old, new);
            follower.storage_changed(Change::Claim(&key), apply);
        });
        self.follow(&volumes, |volumes| &mut volumes.volumes).await;
        self.follow(&classes, |volumes| &mut volumes.classes).await;
        self.follow(&csi_nodes, |volumes| &mut volumes.csi_nodes).await;
        self.follow(&csi_drivers, |volumes| &mut volumes.csi_drivers).await;
        self.follow(&capacities, |volumes| &mut volumes.capacities).await;
    }

    async fn follow<T: WithMetadata + Object>(
        self: &Arc<Self>,
        cache: &Cache<T>,
        part: fn(&mut Volumes) -> &mut ByKey<T>,
    ) {
        cache.synced().await;
        let follower = self.clone();
        cache.on_change(move |old, new| {
            let apply = |volumes: &mut Volumes| part(volumes).changed(old, new);
            follower.storage_changed(Change::Storage, apply);
        });
    }

    fn storage_changed(&self, change: Change<'_>, apply: impl FnOnce(&mut Volumes)) {
        self.core.lock().storage_changed(change, apply, Instant::now());
        self.changed.notify_one();
    }

    /// Says on the pod and in an event why there is no node for it; what says so already stays.
    async fn tell_failure(&self, pod: &Pod, failure: &Failure, nomination: &Nomination) {
        let message = failure.to_string();
        self.recorder.event(
            &pod.reference(),
            EventType::Warning,
            "FailedScheduling",
            message.clone(),
        );
        let mut status = json!({});
        let known = pod.condition.as_ref();
        let wanted = ("False", "Unschedulable", message.as_str());
        let said = |(status, reason, message): &(String, String, String)| {
            (status.as_str(), reason.as_str(), message.as_str()) == wanted
        };
        if !known.is_some_and(said) {
            let mut condition = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                "observedGeneration": pod.metadata.generation,
            });
            if known.is_none_or(|(status, ..)| status != "False") {
                condition["lastTransitionTime"] = Moment::now().to_time().into();
            }
            status["conditions"] = json!([condition]);
        }
        match nomination {
            Nomination::Keep => {}
            Nomination::Clear => status["nominatedNodeName"] = Value::Null,
            Nomination::Set(node) => status["nominatedNodeName"] = node.as_str().into(),
        }
        if let Err(error) = preempt::patch_status(&self.client, pod, status).await {
            tracing::warn!(pod = pod.path(), %error, "could not say why the pod has no node");
        }
    }
}

/// A pod whose binding is being written. However that ends, by an error or a panic, the pod is not lost.
struct Unbound<'a> {
    scheduler: &'a Scheduler,
    queued: Option<QueuedPod>,
}

impl Unbound<'_> {
    fn done(mut self) {
        self.queued = None;
    }
}

impl Drop for Unbound<'_> {
    fn drop(&mut self) {
        if let Some(queued) = self.queued.take() {
            self.scheduler.core.lock().binding_failed(queued, Instant::now());
            self.scheduler.changed.notify_one();
        }
    }
}
