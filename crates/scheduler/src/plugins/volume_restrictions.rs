//! Volumes that only one pod may use at a time.

use async_trait::async_trait;

use crate::framework::{Change, Comparison, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{Disk, Pod};

const NAME: &str = "VolumeRestrictions";

pub struct VolumeRestrictions;

struct Restrictions {
    disks: Vec<Disk>,
    /// A claim that is for one pod alone is in use by another.
    is_taken: bool,
}

#[async_trait]
impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, pod: &Pod, nodes: &Nodes) -> PreFilter {
        let exclusive = pod.claims.iter().filter(|claim| {
            let claim = nodes.volumes.claim(pod, &claim.name);
            claim.is_some_and(|claim| claim.is_exclusive())
        });
        let is_taken = exclusive
            .map(|claim| nodes.claim_users(&pod.claim_key(&claim.name)))
            .any(|users| users > 0);
        if pod.disks.is_empty() && !is_taken {
            return PreFilter::Skip;
        }
        let disks = pod.disks.clone();
        PreFilter::Compare(Box::new(Restrictions { disks, is_taken }))
    }

    /// Wherever the other pod was, its leaving frees the volume.
    fn hint(&self, _pod: &Pod, change: &Change<'_>) -> bool {
        !matches!(change, Change::Storage)
    }
}

impl Comparison for Restrictions {
    fn filter(&self, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let there = || nodes.pods[node].values().flat_map(|pod| &pod.disks);
        let clash = |one: &Disk| there().any(|other| one.key == other.key && !(one.is_shared && other.is_shared));
        if self.disks.iter().any(clash) {
            return Err(Rejection::new(NAME, "node(s) had no available disk"));
        }
        if self.is_taken {
            let reason = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already \
                          in-use by another pod";
            return Err(Rejection::new(NAME, reason));
        }
        Ok(())
    }
}
