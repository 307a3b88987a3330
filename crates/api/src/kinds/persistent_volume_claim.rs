//! PersistentVolumeClaim: a wish for storage.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static PERSISTENT_VOLUME_CLAIM: Resource = Resource::namespaced(
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    "persistentvolumeclaim",
)
.short(&["pvc"])
.with_subresources(&[Subresource::STATUS])
.with_rules(&PersistentVolumeClaimRules);

struct PersistentVolumeClaimRules;

impl Rules for PersistentVolumeClaimRules {
    fn default(&self, claim: &mut Value) {
        default_claim(claim);
    }

    fn prepare_create(&self, claim: &mut Value) {
        claim.set("status", json!({"phase": "Pending"}));
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, claim: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&claim["spec"], &claim["status"]);
        let bound = !spec.text("volumeName").is_empty();
        let phase = if claim["metadata"].has("deletionTimestamp") {
            "Terminating"
        } else {
            status.text("phase")
        };
        let capacity = if bound {
            status["capacity"]["storage"].as_str().unwrap_or("0")
        } else {
            ""
        };
        vec![
            print::name(claim),
            phase.into(),
            spec.text("volumeName").into(),
            capacity.into(),
            if bound { access_modes(status).into() } else { "".into() },
            storage_class(claim).into(),
            or_unset(spec, "volumeAttributesClassName"),
            print::age(claim, now),
            or_unset(spec, "volumeMode"),
        ]
    }
}

/// A claim, or a template of one.
pub(super) fn default_claim(claim: &mut Value) {
    claim.ensure("spec").fill("volumeMode", "Filesystem");
    let status = claim.ensure("status");
    status.fill("phase", "Pending");
}

/// The access modes in their short forms.
pub(super) fn access_modes(object: &Value) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = object.list("accessModes");
    let present = short.iter().filter(|(mode, _)| modes.iter().any(|held| held == mode));
    present.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

/// The class of a claim or volume; the annotation is the field's ancestor and still wins.
pub fn storage_class(object: &Value) -> String {
    match object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str() {
        Some(class) => class.to_owned(),
        None => object["spec"].text("storageClassName").to_owned(),
    }
}

pub(super) fn or_unset(object: &Value, field: &str) -> Value {
    object[field].as_str().unwrap_or("<unset>").into()
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Status", "Whether a volume is bound to the claim."),
    print::text("Volume", "The volume that is bound."),
    print::text("Capacity", "The volume's size."),
    print::text("Access Modes", "How the volume may be mounted."),
    print::text("StorageClass", "The class that provides the volume."),
    print::text(
        "VolumeAttributesClass",
        "The class of the volume's changeable attributes.",
    ),
    AGE,
    print::text("VolumeMode", "A file system or a bare block device.").wide(),
];
