//! The node: its object in the API, its heartbeat, and whether it can run pods.

mod lease;
mod machine;
mod object;
mod reserved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use client::{EventRecorder, EventType, ObjectReference, Patch};
use cri::v1;
use network::Cidr;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::features::{ReportedFeatures, RuntimeFeatures};
use crate::limits;
use crate::moment::Moment;
use crate::options::KubeletOptions;
use crate::pressure::{Measurements, Places, Pressure, Shortage};
use object::{Facts, KnownCondition};

pub use machine::Machine;
pub use reserved::{BadReserved, Reserved};

/// How often to look whether the runtime is ready while the node is not.
const UNREADY_CHECK: Duration = Duration::from_millis(20);
const RETRY: Duration = Duration::from_millis(200);
/// How often to look for the node's block of addresses while it has none.
const BLOCK_CHECK: Duration = Duration::from_millis(500);

pub struct Node {
    options: KubeletOptions,
    events: EventRecorder,
    facts: Facts,
    /// What the pods are told of the runtime.
    features: Arc<RuntimeFeatures>,
    /// Told what the node is running out of.
    pressure: Arc<RwLock<BTreeSet<Pressure>>>,
    reported_at: Moment,
    /// When the object was last read.
    looked_at: Moment,
    /// When something was last short.
    pressed_at: BTreeMap<Pressure, Moment>,
    /// The blocks that runtime and network have been told about.
    pod_cidrs: Vec<String>,
}

/// The node's object as far as the kubelet reads it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeObject {
    metadata: NodeMetadata,
    spec: NodeSpec,
    status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeMetadata {
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
}

impl Node {
    pub fn new(
        options: KubeletOptions,
        machine: Machine,
        runtime: &v1::VersionResponse,
        events: EventRecorder,
        features: Arc<RuntimeFeatures>,
        pressure: Arc<RwLock<BTreeSet<Pressure>>>,
    ) -> Node {
        let facts = Facts {
            name: options.node_name.clone(),
            ips: options.node_ips.iter().map(ToString::to_string).collect(),
            port: options.port,
            max_pods: options.max_pods,
            version: options.version.clone(),
            thresholds: options.eviction_hard.clone(),
            reserved: options.reserved,
            runtime_version: format!("{}://{}", runtime.runtime_name, runtime.runtime_version),
            machine,
            ..Facts::default()
        };
        Node {
            options,
            events,
            facts,
            features,
            pressure,
            reported_at: Moment::default(),
            looked_at: Moment::default(),
            pressed_at: BTreeMap::new(),
            pod_cidrs: Vec::new(),
        }
    }

    /// Registers the node and keeps its object and its lease current, for as long as it is not dropped.
    pub async fn run(mut self) {
        let own: Vec<String> = self.options.pod_cidrs.iter().map(ToString::to_string).collect();
        self.announce_cidrs(&own).await;
        self.observe().await;
        let uid = loop {
            match self.register().await {
                Ok(uid) => break uid,
                Err(error) => tracing::warn!(%error, "Failed to register the node with the API server; retrying"),
            }
            tokio::time::sleep(RETRY).await;
        };
        let about = ObjectReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.facts.name.clone(),
            uid: self.facts.name.clone(),
            ..ObjectReference::default()
        };
        self.events
            .event(&about, EventType::Normal, "Starting", "Starting kubelet.");
        let beating = lease::keep(self.options.client.clone(), self.facts.name.clone(), uid);
        tokio::join!(beating, self.keep_current());
    }

    async fn keep_current(&mut self) {
        loop {
            let pause = match self.facts.unready {
                Some(_) => UNREADY_CHECK,
                None => limits::NODE_STATUS_CHECK,
            };
            tokio::time::sleep(pause).await;
            let before = self.facts.unready.clone();
            self.observe().await;
            // While the node is not ready only a change is worth a request, of the node or of what it waits for.
            let interval = match self.pod_cidrs.is_empty() {
                true => BLOCK_CHECK,
                false => limits::NODE_STATUS_CHECK,
            };
            let has_looked = Moment::now().since(self.looked_at) < interval;
            if before.is_some() && self.facts.unready == before && has_looked {
                continue;
            }
            if let Err(error) = self.update().await {
                tracing::warn!(%error, "Failed to update the node's status; retrying");
            }
        }
    }

    fn is_report_due(&self, interval: Duration) -> bool {
        Moment::now().since(self.reported_at) >= interval
    }

    /// Finds out how the node is.
    async fn observe(&mut self) {
        match self.options.runtime.status(v1::StatusRequest::default()).await {
            Ok(status) => {
                self.facts.unready = unready(&status);
                self.facts.runtime = ReportedFeatures::from_status(&status);
                self.features.put(self.facts.runtime.clone());
            }
            Err(error) => self.facts.unready = Some(format!("container runtime is down: {error}")),
        }
        let measured = Measurements::take(&Places::find(&*self.options.runtime, &self.options.root_dir).await);
        let shortages = self.options.eviction_hard.shortages(&measured);
        self.tell_pressure(&shortages);
        self.facts.under = self.lasting(&shortages, Moment::now());
        self.pressure.write().clone_from(&self.facts.under);
        self.facts.shortages = shortages;
        let images = self.options.runtime.list_images(v1::ListImagesRequest::default()).await;
        if let Ok(images) = images {
            self.facts.images = object::images(images.images);
        }
    }

    /// Pressure lasts for a while after what was short is there again, so that a node does not take and evict pods in
    /// turns.
    fn lasting(&mut self, shortages: &[Shortage], now: Moment) -> BTreeSet<Pressure> {
        for shortage in shortages {
            self.pressed_at.insert(shortage.signal.pressure(), now);
        }
        self.pressed_at
            .retain(|_, at| now.since(*at) < limits::PRESSURE_TRANSITION);
        self.pressed_at.keys().copied().collect()
    }

    /// Says what is short when something else is short than before.
    fn tell_pressure(&self, shortages: &[Shortage]) {
        let signals = |shortages: &[Shortage]| shortages.iter().map(|shortage| shortage.signal).collect::<Vec<_>>();
        if signals(shortages) == signals(&self.facts.shortages) {
            return;
        }
        match shortages {
            [] => tracing::info!("Node is no longer under resource pressure"),
            _ => tracing::warn!(
                shortages = %shortages.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
                "Node is under resource pressure and rejects new pods"
            ),
        }
    }

    /// Creates the object, or makes an existing one ours.
    async fn register(&mut self) -> Result<String, client::Error> {
        let now = Moment::now();
        let labels = object::labels(&self.facts, &self.options.labels);
        let annotations = object::annotations(&self.options.annotations);
        let mut spec = json!({});
        if !self.options.taints.is_empty() {
            spec["taints"] = json!(self.options.taints);
        }
        if !self.options.provider_id.is_empty() {
            spec["providerID"] = json!(self.options.provider_id);
        }
        let registered = self.options.pod_cidrs.first();
        if let Some(first) = registered.filter(|_| self.options.registers_pod_cidrs) {
            spec["podCIDR"] = json!(first.to_string());
            spec["podCIDRs"] = json!(
                self.options
                    .pod_cidrs
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            );
        }
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.facts.name,
                "labels": labels,
                "annotations": annotations,
            },
            "spec": spec,
            "status": object::status(&self.facts, &[], now),
        });
        let api = self.options.client.resource(&api::kinds::node::NODE);
        match api.create::<NodeObject>(&node).await {
            Ok(created) => {
                self.reported_at = now;
                self.follow_cidrs(&created).await;
                // A server that keeps status apart from creation is told by the next update.
                if created.status["conditions"].is_null() {
                    self.reported_at = Moment::default();
                    self.update().await?;
                }
                Ok(created.metadata.uid)
            }
            Err(error) if error.is_already_exists() => {
                let known: NodeObject = api.get(&self.facts.name).await?;
                if !has_all(&known.metadata.labels, &labels) || !has_all(&known.metadata.annotations, &annotations) {
                    let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
                    api.patch::<serde::de::IgnoredAny>(&self.facts.name, Patch::merge(&patch))
                        .await?;
                }
                self.update().await?;
                Ok(known.metadata.uid)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes the status if it differs from the one in the API, or if it is time for a sign of life.
    async fn update(&mut self) -> Result<(), client::Error> {
        self.looked_at = Moment::now();
        let api = self.options.client.resource(&api::kinds::node::NODE);
        let known: NodeObject = match api.get(&self.facts.name).await {
            // Somebody deleted it, and a node that lives is registered.
            Err(error) if error.is_not_found() => return Box::pin(self.register()).await.map(drop),
            other => other?,
        };
        self.follow_cidrs(&known).await;
        let now = Moment::now();
        let conditions: Vec<KnownCondition> =
            serde_json::from_value(known.status["conditions"].clone()).unwrap_or_default();
        let wanted = object::status(&self.facts, &conditions, now);
        let patch = match object::patch(&known.status, &wanted) {
            Some(patch) => patch,
            None if self.is_report_due(limits::NODE_STATUS_REPORT) => {
                json!({"status": {"conditions": wanted["conditions"]}})
            }
            None => return Ok(()),
        };
        let api = api.subresource("status");
        api.patch::<serde::de::IgnoredAny>(&self.facts.name, Patch::strategic(&patch))
            .await?;
        self.reported_at = now;
        Ok(())
    }

    async fn follow_cidrs(&mut self, node: &NodeObject) {
        let cidrs = node.spec.pod_cidrs.clone();
        self.announce_cidrs(&cidrs).await;
    }

    /// Tells runtime and network which addresses this node's pods get.
    async fn announce_cidrs(&mut self, cidrs: &[String]) {
        if cidrs.is_empty() || self.pod_cidrs == cidrs {
            return;
        }
        let request = v1::UpdateRuntimeConfigRequest {
            runtime_config: Some(v1::RuntimeConfig {
                network_config: Some(v1::NetworkConfig {
                    pod_cidr: cidrs.join(","),
                }),
            }),
        };
        match self.options.runtime.update_runtime_config(request).await {
            Err(error) if !error.is_unsupported() => {
                tracing::warn!(%error, "Failed to configure the pod CIDR in the container runtime; retrying");
                return;
            }
            _ => {}
        }
        if let Some(network) = &self.options.pod_network {
            let blocks: Vec<Cidr> = cidrs.iter().filter_map(|text| text.parse().ok()).collect();
            if let Err(error) = network.update_pod_cidrs(&blocks).await {
                tracing::warn!(%error, "Failed to configure the pod CIDR in the pod network; retrying");
                return;
            }
        }
        self.pod_cidrs = cidrs.to_vec();
    }
}

fn has_all(known: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| known.get(key) == Some(value))
}

/// Why the runtime cannot run pods, if it cannot.
fn unready(answer: &v1::StatusResponse) -> Option<String> {
    let status = answer.status.clone().unwrap_or_default();
    let wrong = |kind: &str, title: &str| {
        let condition = status.conditions.iter().find(|condition| condition.r#type == kind);
        match condition {
            Some(condition) if condition.status => None,
            Some(condition) => Some(format!(
                "{title} not ready: {kind}=false reason:{} message:{}",
                condition.reason, condition.message
            )),
            None => Some(format!("{title} not ready: {kind} is not reported")),
        }
    };
    wrong("RuntimeReady", "container runtime").or_else(|| wrong("NetworkReady", "container runtime network"))
}
