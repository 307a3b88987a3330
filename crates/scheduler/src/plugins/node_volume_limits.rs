//! A CSI driver can attach only so many volumes to a node.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::framework::{Change, Comparison, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

const NAME: &str = "NodeVolumeLimits";

pub struct NodeVolumeLimits;

/// The volumes to be attached, by driver.
type Attachments = BTreeMap<String, BTreeSet<String>>;

struct Wanted(Attachments);

#[async_trait]
impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        "NodeVolumeLimits"
    }

    fn pre_filter(&self, pod: &Pod, nodes: &Nodes) -> PreFilter {
        let mut wanted = Attachments::new();
        attach(pod, nodes, &mut wanted);
        match wanted.is_empty() {
            true => PreFilter::Skip,
            false => PreFilter::Compare(Box::new(Wanted(wanted))),
        }
    }

    fn hint(&self, _pod: &Pod, change: &Change<'_>) -> bool {
        !matches!(change, Change::Company)
    }
}

impl Comparison for Wanted {
    fn filter(&self, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let Some(csi_node) = nodes.volumes.csi_nodes.get(&nodes.name[node]) else {
            return Ok(());
        };
        let limits = csi_node.spec.drivers.iter();
        let mut limits = limits.filter_map(|driver| Some((&driver.name, driver.allocatable.count?)));
        let mut attached = self.0.clone();
        let pods = nodes.pods[node].values().filter(|pod| !pod.claims.is_empty());
        pods.for_each(|pod| attach(pod, nodes, &mut attached));
        let exceeded = |(driver, limit): (&String, usize)| {
            self.0.contains_key(driver) && attached.get(driver).is_some_and(|volumes| volumes.len() > limit)
        };
        if limits.any(exceeded) {
            return Err(Rejection::new(NAME, "node(s) exceed max volume count"));
        }
        Ok(())
    }
}

fn attach(pod: &Pod, nodes: &Nodes, attachments: &mut Attachments) {
    for named in &pod.claims {
        let claim = nodes.volumes.claim(pod, &named.name);
        if let Some((driver, volume)) = claim.and_then(|claim| nodes.volumes.attachment(claim)) {
            attachments.entry(driver).or_default().insert(volume);
        }
    }
}
