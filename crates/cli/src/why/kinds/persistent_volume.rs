//! PersistentVolumes.

use api::Value;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;

use super::workload;
use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::Look;
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &PERSISTENT_VOLUME,
    reads: &[&PERSISTENT_VOLUME_CLAIM],
    state,
    checks: &[is_released, has_failed, is_held],
};

fn state(_: &Facts, volume: &Value) -> State {
    if volume.is_deleting() {
        return State::Unhealthy("it is being deleted.".to_owned());
    }
    match volume.str("status.phase") {
        "Bound" => State::Healthy(format!(
            "it is bound to {}/{}.",
            volume.str("spec.claimRef.namespace"),
            volume.str("spec.claimRef.name")
        )),
        "Available" => State::Healthy("it is Available.".to_owned()),
        phase => State::Unhealthy(format!("it is {phase}.")),
    }
}

fn is_released(_: &Facts, volume: &Value) -> Vec<Finding> {
    if volume.str("status.phase") != "Released" || volume.is_deleting() {
        return Vec::new();
    }
    let policy = volume.str("spec.persistentVolumeReclaimPolicy");
    let claim = format!(
        "{}/{}",
        volume.str("spec.claimRef.namespace"),
        volume.str("spec.claimRef.name")
    );
    vec![match policy {
        "Retain" => Finding::waiting(
            "released",
            format!("Its claim {claim} was deleted. The reclaim policy Retain keeps the data, and the volume is not bound to another claim."),
        )
        .next(format!(
            "To make it available again: kubectl patch pv {} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/spec/claimRef\"}}]'. Otherwise delete it.",
            volume.name()
        )),
        policy => Finding::waiting("released", format!("Its claim {claim} was deleted, and the volume has not been reclaimed yet (reclaim policy {policy}).")),
    }]
}

fn has_failed(_: &Facts, volume: &Value) -> Vec<Finding> {
    if volume.str("status.phase") != "Failed" {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "reclaim-failed",
            "Reclaiming the volume failed after its claim was deleted.",
        )
        .detail(volume.str("status.message"))
        .next("Clean up the storage manually, then delete the PersistentVolume."),
    ]
}

fn is_held(facts: &Facts, volume: &Value) -> Vec<Finding> {
    let claim = volume.at("spec.claimRef");
    let is_bound = facts
        .find(&PERSISTENT_VOLUME_CLAIM, claim.str("namespace"), claim.str("name"))
        .is_some_and(|found| found.uid() == claim.str("uid"));
    if volume.is_deleting() && is_bound {
        return vec![
            Finding::broken(
                "volume-in-use",
                format!(
                    "Its deletion is blocked while claim {}/{} is bound to it.",
                    claim.str("namespace"),
                    claim.str("name")
                ),
            )
            .next("Delete the claim."),
        ];
    }
    workload::held_by_finalizers(facts, volume, 10)
}
