//! Volumes that cannot be set up, and sandboxes.

use api::Value;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;

use super::{config, containers};
use crate::why::facts::Facts;
use crate::why::finding::{Finding, Reference};
use crate::why::look::Look;

/// Whether a pod waits for something before its containers exist.
fn is_being_created(pod: &Value) -> bool {
    let has_node = !pod.str("spec.nodeName").is_empty();
    let starts = pod.str("status.phase") == "Pending" && has_node && !pod.is_deleting();
    let waits = |container: &super::Container<'_>| {
        let reason = container.status.str("state.waiting.reason");
        container.status.is_null() || matches!(reason, "" | "ContainerCreating" | "PodInitializing")
    };
    starts && containers(pod).iter().all(waits)
}

/// Claims that do not exist, are not bound or are on their way out.
pub fn claim_is_not_usable(facts: &Facts, pod: &Value) -> Vec<Finding> {
    if pod.str("status.phase") != "Pending" || !facts.knows(&PERSISTENT_VOLUME_CLAIM) {
        return Vec::new();
    }
    let volumes = pod.items("spec.volumes").iter();
    let claims = volumes.map(|volume| volume.str("persistentVolumeClaim.claimName"));
    let claims = claims.filter(|name| !name.is_empty());
    claims
        .filter_map(|name| {
            let Some(claim) = facts.find(&PERSISTENT_VOLUME_CLAIM, pod.namespace(), name) else {
                return Some(
                    Finding::broken(
                        "claim-missing",
                        format!("PersistentVolumeClaim \"{name}\" does not exist."),
                    )
                    .next("Create the PersistentVolumeClaim, or correct spec.volumes."),
                );
            };
            let root = Reference::of(&PERSISTENT_VOLUME_CLAIM, claim);
            if claim.is_deleting() {
                return Some(
                    Finding::broken(
                        "claim-deleted",
                        format!("PersistentVolumeClaim \"{name}\" is being deleted."),
                    )
                    .because_of(root),
                );
            }
            let phase = claim.str("status.phase");
            // The scheduler's own words say as much.
            let is_told = pod.condition_is("PodScheduled", "False").is_some();
            (phase != "Bound" && !is_told).then(|| {
                Finding::waiting(
                    "claim-not-bound",
                    format!("PersistentVolumeClaim \"{name}\" is {phase}, not bound to a volume."),
                )
                .because_of(root)
            })
        })
        .collect()
}

pub fn cannot_be_mounted(facts: &Facts, pod: &Value) -> Vec<Finding> {
    if !is_being_created(pod) {
        return Vec::new();
    }
    if let Some(event) = facts.event(&POD, pod, "FailedMount") {
        let message = event.str("message");
        let finding = config::missing(message, pod.namespace(), "a volume").unwrap_or_else(|| {
            Finding::broken("mount-failed", "Mounting a volume failed.").next("Check spec.volumes and the node.")
        });
        return vec![finding.detail(format!("Kubelet: {message}"))];
    }
    let Some(event) = facts.event(&POD, pod, "FailedAttachVolume") else {
        return Vec::new();
    };
    let message = event.str("message");
    let finding = Finding::broken("attach-failed", "Attaching a volume to its node failed.").detail(message);
    vec![match message.contains("Multi-Attach") {
        true => finding.next("Another pod uses the volume on another node: wait until it terminates, or delete it."),
        false => {
            finding.next("Check the VolumeAttachments (kubectl get volumeattachments) and the log of the CSI driver.")
        }
    }]
}

pub fn sandbox_fails(facts: &Facts, pod: &Value) -> Vec<Finding> {
    if !is_being_created(pod) {
        return Vec::new();
    }
    let Some(event) = facts.event(&POD, pod, "FailedCreatePodSandBox") else {
        return Vec::new();
    };
    let message = event.str("message");
    let finding = Finding::broken("sandbox-failed", "Creating its pod sandbox failed.").detail(message);
    let is_class = message.contains("RuntimeHandler") || message.contains("runtime handler");
    vec![match is_class {
        true => finding.next(
            "The container runtime of the node does not have the handler of the pod's RuntimeClass: correct spec.runtimeClassName.",
        ),
        false => finding.next("Check the kubelet's log and the pod network on the node."),
    }]
}
