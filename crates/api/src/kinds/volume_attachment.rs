//! VolumeAttachment: a volume on its way to a node, or there.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static VOLUME_ATTACHMENT: Resource = Resource::cluster(
    "storage.k8s.io",
    "v1",
    "VolumeAttachment",
    "volumeattachments",
    "volumeattachment",
)
.with_subresources(&[Subresource::STATUS])
.with_rules(&VolumeAttachmentRules);

struct VolumeAttachmentRules;

impl Rules for VolumeAttachmentRules {
    fn prepare_create(&self, attachment: &mut Value) {
        attachment.set("status", json!({"attached": false}));
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, attachment: &Value, now: i64) -> Vec<Value> {
        let spec = &attachment["spec"];
        vec![
            print::name(attachment),
            spec.text("attacher").into(),
            spec["source"].text("persistentVolumeName").into(),
            spec.text("nodeName").into(),
            attachment["status"].flag("attached").into(),
            print::age(attachment, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    Column {
        format: "name",
        ..print::text("Attacher", "The driver that attaches it.")
    },
    print::text("PV", "The volume."),
    print::text("Node", "The node."),
    print::boolean("Attached", "Whether it is there."),
    AGE,
];
