//! Hollow nodes: they report as kubelets do, and make pods run, finish and leave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::lease::LEASE;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::{ObjectMeta, Value};
use client::when::Moment;
use client::{Client, DeleteOptions, Informers, Key, Patch, Selection, WithMetadata, WorkQueue};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::link::Counter;

/// Pods with this annotation succeed after so many seconds.
pub const SECONDS: &str = "simulation/seconds";
const HEARTBEAT: Duration = Duration::from_secs(10);
const START: Duration = Duration::from_millis(800);
const STOP: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct Kubelet {
    pub node: String,
    pub pool: &'static str,
    pub client: Client,
    /// The third byte of its pods' addresses.
    pub subnet: u8,
    pub addresses: Arc<Counter>,
    pub is_faulty: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: ObjectMeta,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

impl WithMetadata for Pod {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// Since when a pod, by UID, has been waiting to start, to finish or to be gone.
type Since = Mutex<BTreeMap<(String, &'static str), Instant>>;

impl Kubelet {
    /// Is the node until the future is dropped.
    pub async fn run(self) {
        while let Err(error) = self.register().await {
            tracing::debug!(node = self.node, %error, "not registered");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::join!(self.renew(), self.work());
    }

    async fn register(&self) -> client::Result<()> {
        let nodes = self.client.resource(&NODE);
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.node, "labels": {"pool": self.pool}},
        });
        match nodes.create::<Value>(&node).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        let (now, amounts) = (
            Moment::now().to_time(),
            json!({"cpu": "8", "memory": "16Gi", "pods": "110"}),
        );
        let status = json!({"status": {
            "capacity": amounts, "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": format!("192.0.2.{}", self.subnet)}],
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        }});
        let nodes = nodes.subresource("status");
        nodes
            .patch::<Value>(&self.node, Patch::strategic(&status))
            .await
            .map(drop)
    }

    async fn renew(&self) {
        let leases = self.client.resource(&LEASE).in_namespace("kube-node-lease");
        loop {
            let spec = json!({
                "holderIdentity": self.node, "leaseDurationSeconds": 40, "renewTime": Moment::now().to_micro_time(),
            });
            let patch = Patch::merge(&json!({"spec": spec}));
            let renewed = match leases.patch::<Value>(&self.node, patch).await {
                Err(error) if error.is_not_found() => {
                    let lease = json!({
                        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                        "metadata": {"name": self.node}, "spec": spec,
                    });
                    leases.create::<Value>(&lease).await
                }
                renewed => renewed,
            };
            let pause = if renewed.is_ok() {
                HEARTBEAT
            } else {
                Duration::from_secs(1)
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn work(&self) {
        let informers = Informers::new(self.client.clone());
        let own = Selection {
            field_selector: format!("spec.nodeName={}", self.node),
            ..Selection::default()
        };
        let pods = informers.selected::<Pod>(&POD, own);
        let queue = Arc::new(WorkQueue::<Key>::default());
        let changed = queue.clone();
        pods.on_change(move |_, new| new.into_iter().for_each(|pod| changed.add(client::Object::key(&**pod))));
        let since = Since::default();
        loop {
            let key = queue.next().await;
            let synced = match pods.get_key(key.as_str()) {
                Some(pod) => self.sync(&pod, &since).await,
                None => Ok(None),
            };
            match synced {
                Ok(Some(pause)) => queue.add_after(key.clone(), pause),
                Ok(None) => queue.forget(&key),
                Err(error) if error.is_not_found() => queue.forget(&key),
                Err(_) => queue.retry(key.clone()),
            }
            queue.done(&key);
        }
    }

    /// How long the pod has yet to wait until this has taken `duration`; the first question starts it.
    fn left(&self, pod: &Pod, what: &'static str, duration: Duration, since: &Since) -> Option<Duration> {
        let mut since = since.lock();
        let begun = since
            .entry((pod.metadata.uid.clone(), what))
            .or_insert_with(Instant::now);
        duration.checked_sub(begun.elapsed()).filter(|left| !left.is_zero())
    }

    /// Takes the next step of a pod; returns when to look again.
    async fn sync(&self, pod: &Pod, since: &Since) -> client::Result<Option<Duration>> {
        let is_over = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        if pod.metadata.is_deleting() {
            if let Some(left) = self.left(pod, "stop", self.about(STOP), since) {
                return Ok(Some(left));
            }
            if !is_over {
                self.report(pod, "Failed").await?;
            }
            let at_once = DeleteOptions {
                grace_period_seconds: Some(0),
                uid: Some(pod.metadata.uid.clone()),
                ..DeleteOptions::default()
            };
            let pods = self.client.resource(&POD).in_namespace(pod.metadata.namespace.clone());
            return pods.delete(&pod.metadata.name, &at_once).await.map(|_| None);
        }
        match pod.status.phase.as_str() {
            "Pending" => {
                if let Some(left) = self.left(pod, "start", self.about(START), since) {
                    return Ok(Some(left));
                }
                self.report(pod, "Running").await?;
                Ok(None)
            }
            "Running" => {
                let seconds = pod.metadata.annotations.get(SECONDS).and_then(|text| text.parse().ok());
                let Some(seconds) = seconds else { return Ok(None) };
                if let Some(left) = self.left(pod, "finish", Duration::from_secs(seconds), since) {
                    return Ok(Some(left));
                }
                self.report(pod, "Succeeded").await?;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Containers take their time, and not always the same.
    fn about(&self, duration: Duration) -> Duration {
        match self.is_faulty {
            true => duration.mul_f64(0.2 + 2.0 * clock::fraction()),
            false => duration,
        }
    }

    async fn report(&self, pod: &Pod, phase: &str) -> client::Result<()> {
        let is_ready = phase == "Running";
        let now = Moment::now().to_time();
        let mut status = json!({
            "phase": phase,
            "conditions": [{
                "type": "Ready", "status": if is_ready { "True" } else { "False" }, "lastTransitionTime": now,
            }],
        });
        if is_ready {
            let number = self.addresses.next();
            let address = format!("10.{}.{}.{}", self.subnet, number / 250, number % 250 + 1);
            status["podIP"] = address.as_str().into();
            status["podIPs"] = json!([{"ip": address}]);
            status["startTime"] = now.into();
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        let pods = self.client.resource(&POD).in_namespace(pod.metadata.namespace.clone());
        let pods = pods.subresource("status");
        pods.patch::<Value>(&pod.metadata.name, Patch::strategic(&patch))
            .await
            .map(drop)
    }
}
