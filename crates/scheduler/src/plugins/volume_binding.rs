//! The volumes that a pod claims must be reachable from its node, or be found or made there.

mod assign;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use client::Client;

use crate::framework::{BindError, Binding, Change, Comparison, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{Pod, PodClaim};
use crate::volumes::{Assignment, Claim, Volumes};

const NAME: &str = "VolumeBinding";

pub struct VolumeBinding;

/// The claims of one pod, by what has to be done for them.
struct Claims {
    uid: String,
    bound: Vec<Arc<Claim>>,
    /// Those whose volume is chosen together with the node.
    waiting: Vec<Arc<Claim>>,
}

#[async_trait]
impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pre_filter(&self, pod: &Pod, nodes: &Nodes) -> PreFilter {
        if pod.claims.is_empty() {
            return PreFilter::Skip;
        }
        match Claims::of(pod, &nodes.volumes) {
            Ok(claims) => PreFilter::Compare(Box::new(claims)),
            Err(reason) => PreFilter::Reject(Rejection::unresolvable(NAME, reason)),
        }
    }

    fn hint(&self, pod: &Pod, change: &Change<'_>) -> bool {
        match change {
            Change::Node(_) | Change::Storage => true,
            Change::Company => false,
            Change::Claim(key) => pod.claims.iter().any(|claim| pod.claim_key(&claim.name) == *key),
        }
    }

    fn reserve(&self, pod: &Pod, nodes: &mut Nodes, node: &str) -> Result<(), Rejection> {
        if pod.claims.is_empty() {
            return Ok(());
        }
        let reject = |reason: String| Rejection::unresolvable(NAME, reason);
        let claims = Claims::of(pod, &nodes.volumes).map_err(reject)?;
        let id = nodes.id(node).ok_or_else(|| reject("the node is gone".to_owned()))?;
        let assignments = claims.assign(nodes, id)?;
        nodes.volumes.promise(pod.uid(), assignments);
        Ok(())
    }

    fn unreserve(&self, pod: &Pod, nodes: &mut Nodes, _node: &str) {
        nodes.volumes.forget_promise(pod.uid());
    }

    async fn pre_bind(&self, client: &Client, binding: &Binding) -> Result<(), BindError> {
        write::all(client, binding).await
    }
}

impl Claims {
    /// Sorts the claims, or says why the pod cannot go anywhere yet.
    fn of(pod: &Pod, volumes: &Volumes) -> Result<Claims, String> {
        let mut claims = Claims {
            uid: pod.uid().to_owned(),
            bound: Vec::new(),
            waiting: Vec::new(),
        };
        let mut unbound_immediate = false;
        for named in &pod.claims {
            let claim = find(pod, named, volumes)?;
            let waits = volumes.class_of(claim).is_some_and(|class| class.waits_for_pod());
            if claim.is_bound() {
                claims.bound.push(claim.clone());
            } else if waits && claim.spec.volume_name.is_empty() {
                claims.waiting.push(claim.clone());
            } else {
                unbound_immediate = true;
            }
        }
        if unbound_immediate {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        // The smallest first, so that it does not take the volume that only it need not have.
        claims.waiting.sort_by_key(|claim| claim.requested_bytes());
        Ok(claims)
    }

    fn assign(&self, nodes: &Nodes, node: NodeId) -> Result<Vec<Assignment>, Rejection> {
        let (labels, name) = (&nodes.labels[node], &*nodes.name[node]);
        let volumes = &nodes.volumes;
        let reject = |reason: &'static str| Rejection::unresolvable(NAME, reason);
        for claim in &self.bound {
            let volume = volumes
                .volumes
                .get(&claim.spec.volume_name)
                .ok_or_else(|| reject("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"))?;
            if !volume.reaches(labels, name) {
                return Err(reject("node(s) didn't match PersistentVolume's node affinity"));
            }
        }
        assign::all(&self.waiting, volumes, &self.uid, labels, name).map_err(reject)
    }
}

impl Comparison for Claims {
    fn filter(&self, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        self.assign(nodes, node).map(drop)
    }
}

fn find<'a>(pod: &Pod, named: &PodClaim, volumes: &'a Volumes) -> Result<&'a Arc<Claim>, String> {
    let name = &named.name;
    let Some(claim) = volumes.claim(pod, name) else {
        return Err(match named.is_ephemeral {
            true => format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"),
            false => format!("persistentvolumeclaim {name:?} not found"),
        });
    };
    if claim.metadata.is_deleting() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    if claim.status.phase == "Lost" {
        let volume = &claim.spec.volume_name;
        return Err(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
        ));
    }
    let owners = &claim.metadata.owner_references;
    if named.is_ephemeral && !owners.iter().any(|owner| owner.uid == pod.uid()) {
        let namespace = &pod.metadata.namespace;
        let owner = &pod.metadata.name;
        return Err(format!(
            "PVC {namespace}/{name} was not created for pod {namespace}/{owner} (pod is not owner)"
        ));
    }
    Ok(claim)
}
