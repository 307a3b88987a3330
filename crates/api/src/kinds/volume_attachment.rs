//! VolumeAttachment: a volume on its way to a node, or there.

use crate::names::dns1123_subdomain;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static VOLUME_ATTACHMENT: Resource = Resource::cluster(
    "storage.k8s.io",
    "v1",
    "VolumeAttachment",
    "volumeattachments",
    "volumeattachment",
)
.with_subresources(&[Subresource::STATUS])
.requiring_revision()
.returning_deleted()
.resetting_on_status_update(&[&["spec"], &["metadata"]])
.with_rules(&VolumeAttachmentRules);

struct VolumeAttachmentRules;

impl Rules for VolumeAttachmentRules {
    fn prepare_create(&self, attachment: &mut Value) {
        attachment.set("status", json!({"attached": false}));
    }

    fn validate(&self, attachment: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&attachment["spec"], Path::new("spec"));
        if problems.needs(spec, &path, "attacher") {
            let name = spec.text("attacher");
            problems.form(&path, "attacher", name, dns1123_subdomain(&name.to_lowercase(), false));
        }
        let (source, place) = (&spec["source"], path.child("source"));
        let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (source["persistentVolumeName"].as_str(), source.has("inlineVolumeSpec")) {
            (None, false) => problems.required(&place, "", detail),
            (Some(_), true) => problems.forbidden(&place, "", detail),
            (Some(""), false) => {
                let detail = "must specify non empty persistentVolumeName";
                problems.required(&place, "persistentVolumeName", detail);
                problems.form(&place, "persistentVolumeName", "", dns1123_subdomain("", false));
            }
            (Some(name), false) => problems.form(&place, "persistentVolumeName", name, dns1123_subdomain(name, false)),
            (None, true) => {}
        }
        let node = spec.text("nodeName");
        problems.form(&path, "nodeName", node, dns1123_subdomain(node, false));
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "spec");
        problems.into_vec()
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
