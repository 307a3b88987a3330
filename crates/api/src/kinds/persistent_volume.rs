//! PersistentVolume: a piece of storage.

use super::persistent_volume_claim::{access_modes, or_unset, storage_class};
use crate::pod_spec::default_legacy_volume;
use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static PERSISTENT_VOLUME: Resource =
    Resource::cluster("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume")
        .short(&["pv"])
        .with_subresources(&[Subresource::STATUS])
        .with_rules(&PersistentVolumeRules);

struct PersistentVolumeRules;

impl Rules for PersistentVolumeRules {
    fn default(&self, volume: &mut Value) {
        volume.ensure("status").fill("phase", "Pending");
        let spec = volume.ensure("spec");
        spec.fill("persistentVolumeReclaimPolicy", "Retain");
        spec.fill("volumeMode", "Filesystem");
        if let Some(host_path) = spec.child_mut("hostPath")
            && !host_path.has("type")
        {
            host_path.set("type", "");
        }
        default_legacy_volume(spec);
    }

    fn prepare_create(&self, volume: &mut Value) {
        volume.set("status", json!({"phase": "Pending"}));
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, volume: &Value, now: i64) -> Vec<Value> {
        let (spec, status) = (&volume["spec"], &volume["status"]);
        let phase = if volume["metadata"].has("deletionTimestamp") {
            "Terminating"
        } else {
            status.text("phase")
        };
        let claim = match &spec["claimRef"] {
            Value::Object(_) => format!(
                "{}/{}",
                spec["claimRef"].text("namespace"),
                spec["claimRef"].text("name")
            ),
            _ => String::new(),
        };
        vec![
            print::name(volume),
            spec["capacity"]["storage"].as_str().unwrap_or("0").into(),
            access_modes(spec).into(),
            spec.text("persistentVolumeReclaimPolicy").into(),
            phase.into(),
            claim.into(),
            storage_class(volume).into(),
            or_unset(spec, "volumeAttributesClassName"),
            status.text("reason").into(),
            print::age(volume, now),
            or_unset(spec, "volumeMode"),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Capacity", "The volume's size."),
    print::text("Access Modes", "How the volume may be mounted."),
    print::text("Reclaim Policy", "What happens to the volume when its claim goes."),
    print::text("Status", "Whether a claim is bound to the volume."),
    print::text("Claim", "The claim that is bound."),
    print::text("StorageClass", "The class the volume belongs to."),
    print::text(
        "VolumeAttributesClass",
        "The class of the volume's changeable attributes.",
    ),
    print::text("Reason", "Why the volume is in its state."),
    AGE,
    print::text("VolumeMode", "A file system or a bare block device.").wide(),
];
