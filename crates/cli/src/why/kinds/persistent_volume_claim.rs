//! PersistentVolumeClaims.

use api::Value;
use api::kinds::persistent_volume::PERSISTENT_VOLUME;
use api::kinds::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM;
use api::kinds::pod::POD;
use api::kinds::storage_class::STORAGE_CLASS;
use schema::quantity::Quantity;

use crate::why::State;
use crate::why::facts::{Facts, selector, selects};
use crate::why::finding::Finding;
use crate::why::look::{self, Look};
use crate::why::table::Kind;

/// How long a provisioner may take to say something.
const PATIENCE_SECONDS: u64 = 20;
const MAX_VOLUMES: usize = 5;

pub static ROW: Kind = Kind {
    resource: &PERSISTENT_VOLUME_CLAIM,
    reads: &[&PERSISTENT_VOLUME, &STORAGE_CLASS, &POD],
    state,
    checks: &[
        has_no_class,
        class_is_missing,
        nobody_uses_it,
        no_volume_fits,
        provisioning_fails,
        provisioner_is_silent,
        volume_is_lost,
        is_still_used,
        resize_waits,
    ],
};

fn state(_: &Facts, claim: &Value) -> State {
    if claim.is_deleting() {
        return State::Unhealthy("it is being deleted.".to_owned());
    }
    match claim.str("status.phase") {
        "Bound" => State::Healthy(format!("it is bound to {}.", claim.str("spec.volumeName"))),
        phase => State::Unhealthy(format!("it is {phase}.")),
    }
}

fn is_pending(claim: &Value) -> bool {
    claim.str("status.phase") == "Pending" && !claim.is_deleting()
}

fn class<'a>(facts: &'a Facts, claim: &Value) -> Option<&'a Value> {
    facts.find(&STORAGE_CLASS, "", claim.str("spec.storageClassName"))
}

fn has_no_class(facts: &Facts, claim: &Value) -> Vec<Finding> {
    let is_unset = claim.at("spec.storageClassName").is_null();
    if !is_pending(claim) || !is_unset || !facts.knows(&STORAGE_CLASS) {
        return Vec::new();
    }
    let names: Vec<&str> = facts.list(&STORAGE_CLASS).iter().map(Look::name).collect();
    let finding = Finding::broken(
        "no-storage-class",
        "spec.storageClassName is not set, and there is no default StorageClass.",
    );
    vec![match names.is_empty() {
        true => finding.next("Create a StorageClass with a provisioner, or a matching PersistentVolume."),
        false => finding.next(format!(
            "Set spec.storageClassName to one of {}, or mark one as the default.",
            names.join(", ")
        )),
    }]
}

fn class_is_missing(facts: &Facts, claim: &Value) -> Vec<Finding> {
    let name = claim.str("spec.storageClassName");
    let has_static = facts
        .list(&PERSISTENT_VOLUME)
        .iter()
        .any(|volume| volume.str("spec.storageClassName") == name);
    if !is_pending(claim) || name.is_empty() || has_static || !facts.lacks(&STORAGE_CLASS, "", name) {
        return Vec::new();
    }
    let known: Vec<&str> = facts.list(&STORAGE_CLASS).iter().map(Look::name).collect();
    let finding = Finding::broken(
        "storage-class-missing",
        format!("StorageClass \"{name}\" does not exist."),
    );
    vec![match known.is_empty() {
        true => finding.next("Create the StorageClass."),
        false => finding
            .detail(format!("There are: {}.", known.join(", ")))
            .next("Create the claim again with an existing StorageClass, or create the StorageClass."),
    }]
}

fn users<'a>(facts: &'a Facts, claim: &'a Value) -> Vec<&'a Value> {
    let pods = facts.list_in(&POD, claim.namespace());
    pods.filter(|pod| {
        let mut volumes = pod.items("spec.volumes").iter();
        let has_ended = matches!(pod.str("status.phase"), "Succeeded" | "Failed");
        !has_ended && volumes.any(|volume| volume.str("persistentVolumeClaim.claimName") == claim.name())
    })
    .collect()
}

fn waits_for_consumer(facts: &Facts, claim: &Value) -> bool {
    class(facts, claim).is_some_and(|class| class.str("volumeBindingMode") == "WaitForFirstConsumer")
}

fn nobody_uses_it(facts: &Facts, claim: &Value) -> Vec<Finding> {
    if !is_pending(claim) || !waits_for_consumer(facts, claim) || !facts.knows(&POD) {
        return Vec::new();
    }
    let name = claim.str("spec.storageClassName");
    let users = users(facts, claim);
    if users.is_empty() {
        return vec![
            Finding::waiting(
                "waits-for-consumer",
                format!("No pod uses it yet, and StorageClass \"{name}\" has volumeBindingMode WaitForFirstConsumer."),
            )
            .next("This is expected: it is bound when a pod that mounts it is scheduled."),
        ];
    }
    let waiting = users.iter().find(|pod| pod.str("spec.nodeName").is_empty());
    let has_selection = claim
        .at("metadata.annotations")
        .get("volume.kubernetes.io/selected-node")
        .is_some();
    match waiting {
        Some(pod) if !has_selection => vec![
            Finding::waiting(
                "waits-for-scheduling",
                format!(
                    "It is waiting for pod {} to be scheduled (volumeBindingMode WaitForFirstConsumer).",
                    pod.name()
                ),
            )
            .next(format!(
                "Check the pod: karve why pod/{} -n {}",
                pod.name(),
                pod.namespace()
            )),
        ],
        _ => Vec::new(),
    }
}

/// Without a provisioner, only volumes that somebody made can be bound; each is told with what does not fit.
fn no_volume_fits(facts: &Facts, claim: &Value) -> Vec<Finding> {
    let provisioner = class(facts, claim)
        .map(|class| class.str("provisioner"))
        .unwrap_or_default();
    let is_static = provisioner.is_empty() || provisioner == "kubernetes.io/no-provisioner";
    let is_unset = claim.at("spec.storageClassName").is_null();
    let name = claim.str("spec.storageClassName");
    let is_unknown = !name.is_empty() && class(facts, claim).is_none();
    if !is_pending(claim)
        || !is_static
        || is_unset
        || !facts.knows(&PERSISTENT_VOLUME)
        || waits_for_consumer(facts, claim)
    {
        return Vec::new();
    }
    let volumes: Vec<&Value> = facts
        .list(&PERSISTENT_VOLUME)
        .iter()
        .filter(|volume| volume.str("spec.storageClassName") == name)
        .collect();
    if is_unknown && volumes.is_empty() {
        return Vec::new();
    }
    let class = match name {
        "" => "without a StorageClass".to_owned(),
        name => format!("with StorageClass \"{name}\""),
    };
    if volumes.is_empty() {
        return vec![
            Finding::broken(
                "no-volume",
                format!("There is no PersistentVolume {class}, and no provisioner that creates one."),
            )
            .next("Create a matching PersistentVolume, or use a StorageClass with a provisioner."),
        ];
    }
    let misfits = volumes
        .iter()
        .take(MAX_VOLUMES)
        .map(|volume| format!("{}: {}", volume.name(), misfit(claim, volume)));
    vec![
        Finding::broken(
            "no-volume-fits",
            format!("No PersistentVolume {class} matches the claim."),
        )
        .details(misfits)
        .next("Create a matching PersistentVolume, or change the claim."),
    ]
}

fn misfit(claim: &Value, volume: &Value) -> String {
    let phase = volume.str("status.phase");
    if phase != "Available" {
        return format!("it is {phase} for claim {}", volume.str("spec.claimRef.name"));
    }
    let amount = |text: &str| text.parse::<Quantity>().unwrap_or(Quantity::ZERO);
    let (wanted, has) = (
        claim.str("spec.resources.requests.storage"),
        volume.str("spec.capacity.storage"),
    );
    if amount(has) < amount(wanted) {
        return format!("its capacity is {has}, the claim requests {wanted}");
    }
    let modes = volume.texts("spec.accessModes");
    let wanted = claim.texts("spec.accessModes");
    if let Some(mode) = wanted.iter().find(|mode| !modes.contains(mode)) {
        return format!("it does not support access mode {mode}, only {}", modes.join(", "));
    }
    if !selects(&selector(claim, "spec.selector"), volume) {
        return format!(
            "its labels do not match the claim's selector {}",
            selector(claim, "spec.selector")
        );
    }
    if volume.str("spec.volumeMode") != claim.str("spec.volumeMode") {
        return format!("its volumeMode is {}", volume.str("spec.volumeMode"));
    }
    "the reason is unknown".to_owned()
}

fn provisioning_fails(facts: &Facts, claim: &Value) -> Vec<Finding> {
    let event = facts.event(&PERSISTENT_VOLUME_CLAIM, claim, "ProvisioningFailed");
    let Some(event) = event.filter(|_| is_pending(claim) && class(facts, claim).is_some()) else {
        return Vec::new();
    };
    vec![
        Finding::broken("provisioning-failed", "The provisioner failed to create a volume.")
            .detail(format!("Provisioner: {}", event.str("message")))
            .next("Fix the error in the message, or check the log of the provisioner."),
    ]
}

fn provisioner_is_silent(facts: &Facts, claim: &Value) -> Vec<Finding> {
    let annotations = claim.at("metadata.annotations");
    let provisioner = annotations
        .get("volume.kubernetes.io/storage-provisioner")
        .and_then(Value::as_str);
    let has_answer = |reason: &&str| facts.event(&PERSISTENT_VOLUME_CLAIM, claim, reason).is_some();
    let answers = ["Provisioning", "ProvisioningFailed", "ProvisioningSucceeded"];
    let age = facts.age(claim);
    let Some(provisioner) = provisioner.filter(|_| is_pending(claim) && age >= PATIENCE_SECONDS) else {
        return Vec::new();
    };
    let is_held = waits_for_consumer(facts, claim) && annotations.get("volume.kubernetes.io/selected-node").is_none();
    if is_held || answers.iter().any(has_answer) {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "provisioner-silent",
            format!(
                "Provisioner \"{provisioner}\" of its StorageClass has not responded for {}.",
                look::duration(age)
            ),
        )
        .next(format!(
            "Check that driver \"{provisioner}\" is installed and running: kubectl get csidrivers; kubectl get pods -A"
        )),
    ]
}

fn volume_is_lost(_: &Facts, claim: &Value) -> Vec<Finding> {
    if claim.str("status.phase") != "Lost" {
        return Vec::new();
    }
    vec![
        Finding::broken(
            "volume-lost",
            format!(
                "Its PersistentVolume \"{}\" no longer exists, and its data is lost.",
                claim.str("spec.volumeName")
            ),
        )
        .next("Restore the data from a backup into a new claim, then delete this one."),
    ]
}

fn is_still_used(facts: &Facts, claim: &Value) -> Vec<Finding> {
    if !claim.is_deleting() {
        return Vec::new();
    }
    let finalizers = claim.texts("metadata.finalizers");
    let users: Vec<&str> = users(facts, claim).into_iter().map(Look::name).collect();
    if finalizers.contains(&"kubernetes.io/pvc-protection") && !users.is_empty() {
        return vec![
            Finding::broken(
                "claim-in-use",
                format!("Its deletion is blocked because pods use it: {}.", users.join(", ")),
            )
            .next("Delete the pods or the workload that owns them."),
        ];
    }
    super::workload::held_by_finalizers(facts, claim, 10)
}

fn resize_waits(_: &Facts, claim: &Value) -> Vec<Finding> {
    let pending = claim.condition_is("FileSystemResizePending", "True");
    let failed = claim
        .at("status.allocatedResourceStatuses")
        .get("storage")
        .and_then(Value::as_str);
    if failed.is_some_and(|status| status.contains("Infeasible")) {
        return vec![
            Finding::broken(
                "resize-failed",
                "The requested expansion of its volume is not possible.",
            )
            .next("Request a size that the storage supports."),
        ];
    }
    match pending {
        Some(_) => vec![
            Finding::waiting(
                "resize-pending",
                "The volume is expanded; its file system is resized when a pod mounts it.",
            )
            .next("Start a pod that mounts it, or restart the pod that uses it."),
        ],
        None => Vec::new(),
    }
}
