//! A pod goes only to nodes in the zone and region of its volumes.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::framework::{Change, Comparison, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;

const NAME: &str = "VolumeZone";
/// Each label with the name it had before.
const LABELS: [[&str; 2]; 2] = [
    ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"],
    [
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
    ],
];

pub struct VolumeZone;

/// For each volume that says where it is: the names of the label and the values that will do.
struct Zones(Vec<(&'static [&'static str; 2], BTreeSet<String>)>);

#[async_trait]
impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, pod: &Pod, nodes: &Nodes) -> PreFilter {
        let volumes = &nodes.volumes;
        let claims = pod.claims.iter().filter_map(|claim| volumes.claim(pod, &claim.name));
        let bound = claims.filter_map(|claim| volumes.volumes.get(&claim.spec.volume_name));
        let mut zones = Vec::new();
        for volume in bound {
            for names in &LABELS {
                let value = names.iter().find_map(|name| volume.metadata.labels.get(*name));
                if let Some(value) = value {
                    // A volume in several zones lists them.
                    zones.push((names, value.split("__").map(str::to_owned).collect()));
                }
            }
        }
        match zones.is_empty() {
            true => PreFilter::Skip,
            false => PreFilter::Compare(Box::new(Zones(zones))),
        }
    }

    fn hint(&self, _pod: &Pod, change: &Change<'_>) -> bool {
        matches!(change, Change::Node(_) | Change::Claim(_) | Change::Storage)
    }
}

impl Comparison for Zones {
    fn filter(&self, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let label = |names: &[&str; 2]| names.iter().find_map(|name| nodes.labels[node].get(*name));
        // Where nodes do not say where they are, there is nothing to compare.
        if LABELS.iter().all(|names| label(names).is_none()) {
            return Ok(());
        }
        let here =
            |(names, values): &(&[&str; 2], BTreeSet<String>)| label(names).is_some_and(|value| values.contains(value));
        if self.0.iter().all(|zone| here(&(zone.0, zone.1.clone()))) {
            return Ok(());
        }
        Err(Rejection::unresolvable(NAME, "node(s) had no available volume zone"))
    }
}
