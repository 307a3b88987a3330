//! Attaches the CSI volumes of a node's pods to the node, and detaches them when no pod needs them any more.
//!
//! A key is a node. A VolumeAttachment asks the driver's external attacher to act; the node's status tells the kubelet what
//! is attached. A volume that the kubelet still has mounted is detached only from a node that is lost.

mod model;
mod verdict;

use std::collections::HashMap;
use std::sync::Arc;

use api::kinds::csi_driver::CSI_DRIVER;
use api::kinds::node::NODE;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::volume_attachment::VOLUME_ATTACHMENT;
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Key};
use parking_lot::Mutex;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::Pod;
use crate::plan::Plan;
use model::{Attachment, Claim, CsiDriver, StorageNode, Volume};
use verdict::{Needed, View};

pub const ROW: Row = Row {
    name: "persistentvolume-attach-detach",
    account: "attachdetach-controller",
    queue: "attachdetach",
    workers: 2,
    start,
};

/// Files pods and attachments under their node.
const BY_NODE: &str = "node";
/// Files attachments under their volume.
const BY_VOLUME: &str = "volume";

struct Controller {
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<Claim>>,
    volumes: Arc<Cache<Volume>>,
    drivers: Arc<Cache<CsiDriver>>,
    nodes: Arc<Cache<StorageNode>>,
    attachments: Arc<Cache<Attachment>>,
    /// Since when each attachment has been waiting for the kubelet to unmount its volume.
    waiting: Mutex<HashMap<String, Moment>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let pods = setup.cache::<Pod>(&POD);
    let claims = setup.cache::<Claim>(&PERSISTENT_VOLUME_CLAIM);
    let volumes = setup.cache::<Volume>(&PERSISTENT_VOLUME);
    let drivers = setup.cache::<CsiDriver>(&CSI_DRIVER);
    let nodes = setup.cache::<StorageNode>(&NODE);
    let attachments = setup.cache::<Attachment>(&VOLUME_ATTACHMENT);
    pods.add_index(BY_NODE, |pod| match pod.spec.node_name.as_str() {
        "" => Vec::new(),
        node => vec![node.to_owned()],
    });
    attachments.add_index(BY_NODE, |one| vec![one.spec.node_name.clone()]);
    attachments.add_index(BY_VOLUME, |one| vec![one.volume().to_owned()]);
    setup.watch(&pods, |pod| {
        let uses_claims = pod.claims().next().is_some() && !pod.spec.node_name.is_empty();
        uses_claims
            .then(|| Key::new("", &pod.spec.node_name))
            .into_iter()
            .collect()
    });
    setup.watch_own(&nodes);
    setup.watch(&attachments, |one| vec![Key::new("", &one.spec.node_name)]);
    Box::new(Controller {
        pods,
        claims,
        volumes,
        drivers,
        nodes,
        attachments,
        waiting: Mutex::default(),
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let name = key.name();
        let needed = self.needed(name);
        let attachments = self.attachments.by(BY_NODE, name);
        let node = self.nodes.get("", name);
        if needed.is_empty() && attachments.is_empty() && node.as_ref().is_none_or(|node| node.attached().is_empty()) {
            return Ok(Plan::nothing());
        }
        let view = View {
            name,
            node: node.as_deref(),
            elsewhere: self.elsewhere(name, &needed),
            needed,
            attachments,
        };
        Ok(verdict::plan(&view, &mut self.waiting.lock(), attempt.now))
    }
}

impl Controller {
    /// The attachable volumes of the pods of a node, each once.
    fn needed(&self, node: &str) -> Vec<Needed> {
        let mut needed: Vec<Needed> = Vec::new();
        for pod in self.pods.by(BY_NODE, node) {
            if pod.is_finished() {
                continue;
            }
            for volume in pod.claims().filter_map(|claim| self.bound_volume(&pod, &claim)) {
                if needed
                    .iter()
                    .all(|known| known.volume.metadata.name != volume.metadata.name)
                {
                    let pod = pod.clone();
                    needed.push(Needed { volume, pod });
                }
            }
        }
        needed
    }

    fn bound_volume(&self, pod: &Pod, claim: &str) -> Option<Arc<Volume>> {
        let claim = self.claims.get(&pod.metadata.namespace, claim)?;
        let volume = self.volumes.get("", &claim.spec.volume_name)?;
        let csi = volume.spec.csi.as_ref()?;
        let driver = self.drivers.get("", &csi.driver);
        let attaches = driver.is_none_or(|driver| driver.spec.attach_required.unwrap_or(true));
        (attaches && volume.is_bound_to(&claim.metadata)).then_some(volume)
    }

    /// The nodes other than this one to which volumes are attached, for those that only one node may have.
    fn elsewhere(&self, node: &str, needed: &[Needed]) -> HashMap<String, String> {
        let exclusive = needed.iter().filter(|one| one.volume.is_for_one_node());
        let elsewhere = exclusive.filter_map(|one| {
            let name = &one.volume.metadata.name;
            let attachments = self.attachments.by(BY_VOLUME, name);
            let other = attachments.iter().find(|other| other.spec.node_name != node)?;
            Some((name.clone(), other.spec.node_name.clone()))
        });
        elsewhere.collect()
    }
}
