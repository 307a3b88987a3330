//! PersistentVolumeClaim: a wish for storage.

use crate::pod_spec::resources::read;
use crate::pod_spec::validate_claim_spec;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};
use schema::quantity::Quantity;
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
.returning_deleted()
.with_rules(&PersistentVolumeClaimRules);

struct PersistentVolumeClaimRules;

impl Rules for PersistentVolumeClaimRules {
    fn default(&self, claim: &mut Value) {
        default_claim(claim);
    }

    fn prepare_create(&self, claim: &mut Value) {
        claim.set("status", json!({"phase": "Pending"}));
        let spec = claim.ensure("spec");
        drop_sources(spec, &Value::Null);
        align_sources(spec);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let spec = new.ensure("spec");
        drop_sources(spec, &old["spec"]);
        align_sources(spec);
    }

    fn validate(&self, claim: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        validate_claim_spec(&claim["spec"], &Path::new("spec"), &mut problems);
        problems.into_vec()
    }

    /// A claim is bound by its controller, and can then grow.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("spec");
        let fixed = |claim: &Value| {
            let mut spec = claim["spec"].clone();
            if old["spec"].text("volumeName").is_empty() {
                spec.remove("volumeName");
            }
            if old["status"].text("phase") == "Bound" {
                spec.ensure("resources").remove("requests");
            }
            spec.remove("volumeAttributesClassName");
            if old["spec"]["storageClassName"].is_null() {
                spec.remove("storageClassName");
            }
            spec
        };
        if fixed(new) != fixed(old) {
            let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                          bound claims";
            problems.forbidden(&path, "", detail);
        }
        // Upstream leaves the spec out of this path.
        problems.immutable(&new["spec"], &old["spec"], &Path::default(), "volumeMode");
        let size = |of: &Value| of.text("storage").parse::<Quantity>().unwrap_or(Quantity::ZERO);
        let requested = size(&new["spec"]["resources"]["requests"]);
        let path = path.child("resources").child("requests");
        // A request that could not be met may be lowered again, but not below what there is.
        let shrinks = requested < size(&old["spec"]["resources"]["requests"]);
        if shrinks && requested <= size(&old["status"]["capacity"]) {
            problems.forbidden(&path, "storage", "field can not be less than status.capacity");
        }
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let path = Path::new("status").child("capacity");
        for (resource, amount) in &read(&new["status"], "capacity") {
            if amount.is_negative() {
                let detail = "must be a valid resource quantity";
                let number = amount.milli_value() / 1000;
                problems.invalid(&path.key(resource), "", number, detail);
            }
        }
        problems.into_vec()
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

    fn warnings(&self, claim: &Value) -> Vec<String> {
        if !claim["metadata"]["annotations"].has(OLD_STORAGE_CLASS) {
            return Vec::new();
        }
        let instead = "deprecated since v1.8; use \"storageClassName\" attribute instead";
        vec![format!("metadata.annotations[{OLD_STORAGE_CLASS}]: {instead}")]
    }
}

const OLD_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// The older field knows claims and snapshots alone; the newer one reaches into other namespaces only where upstream is
/// told so.
fn drop_sources(spec: &mut Value, old: &Value) {
    let source = &spec["dataSource"];
    let kind = (source["apiGroup"].as_str().unwrap_or_default(), source.text("kind"));
    let known = [
        ("", "PersistentVolumeClaim"),
        ("snapshot.storage.k8s.io", "VolumeSnapshot"),
    ];
    if !known.contains(&kind) && !old.has("dataSource") {
        spec.remove("dataSource");
    }
    if !spec["dataSourceRef"].text("namespace").is_empty() && old["dataSourceRef"].text("namespace").is_empty() {
        spec.remove("dataSourceRef");
    }
}

/// Either field says what the other does.
fn align_sources(spec: &mut Value) {
    match (spec["dataSource"].clone(), spec["dataSourceRef"].clone()) {
        (source @ Value::Object(_), Value::Null) => spec.set("dataSourceRef", source),
        (Value::Null, source @ Value::Object(_)) if source.text("namespace").is_empty() => {
            spec.set("dataSource", source);
        }
        _ => {}
    }
}

/// A claim, or a template of one.
pub(super) fn default_claim(claim: &mut Value) {
    claim.ensure("spec").fill_absent("volumeMode", "Filesystem");
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
