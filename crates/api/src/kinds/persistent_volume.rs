//! PersistentVolume: a piece of storage.

use super::persistent_volume_claim::{access_modes, or_unset, storage_class};
use crate::names::dns1123_subdomain;
use crate::pod_spec::default_legacy_volume;
use crate::pod_spec::{validate_access_modes, validate_size};
use crate::pod_spec::{validate_host_path, validate_node_selector, validate_optional_name, validate_required_texts};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static PERSISTENT_VOLUME: Resource =
    Resource::cluster("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume")
        .short(&["pv"])
        .with_subresources(&[Subresource::STATUS])
        .returning_deleted()
        .with_rules(&PersistentVolumeRules);

struct PersistentVolumeRules;

impl Rules for PersistentVolumeRules {
    fn default(&self, volume: &mut Value) {
        volume.ensure("status").fill("phase", "Pending");
        let spec = volume.ensure("spec");
        spec.fill("persistentVolumeReclaimPolicy", "Retain");
        spec.fill_absent("volumeMode", "Filesystem");
        if let Some(host_path) = spec.child_mut("hostPath")
            && !host_path.has("type")
        {
            host_path.set("type", "");
        }
        default_legacy_volume(spec);
    }

    fn prepare_create(&self, volume: &mut Value) {
        let created = volume["metadata"]["creationTimestamp"].clone();
        volume.set("status", json!({"phase": "Pending"}));
        if !created.is_null() {
            volume.ensure("status").set("lastPhaseTransitionTime", created);
        }
    }

    fn validate(&self, volume: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&volume["spec"], Path::new("spec"));
        validate_access_modes(spec, "", &path, &mut problems);
        match spec["capacity"].text("storage") {
            "" => problems.required(&path, "capacity", ""),
            size => validate_size(size, &path.child("capacity").key("storage"), &mut problems),
        }
        let amounts = spec.entries("capacity").count();
        if !spec["capacity"].has("storage") || amounts > 1 {
            let capacity = spec["capacity"].clone();
            let path = path.child("capacity");
            problems.extend([FieldError::not_supported(&path, capacity, &["storage"])]);
        }
        problems.optional_one_of(
            spec,
            &path,
            "persistentVolumeReclaimPolicy",
            &["Delete", "Recycle", "Retain"],
        );
        validate_source(spec, &path, &mut problems);
        validate_optional_name(spec, "storageClassName", &path, &mut problems);
        validate_attributes_class(spec, &path, &mut problems);
        problems.optional_one_of(spec, &path, "volumeMode", &["Block", "Filesystem"]);
        let required = &spec["nodeAffinity"]["required"];
        if spec.has("nodeAffinity") {
            let path = path.child("nodeAffinity");
            match required.is_object() {
                true => validate_node_selector(required, &path.child("required"), &mut problems),
                false => problems.required(&path, "required", "must specify required node constraints"),
            }
        }
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new, old, path) = (&new["spec"], &old["spec"], Path::new("spec"));
        let source = |spec: &Value| {
            let sources = SOURCES
                .iter()
                .filter_map(|kind| spec.get(*kind).map(|source| (*kind, source.clone())));
            sources.collect::<Vec<_>>()
        };
        if source(new) != source(old) {
            let detail = "spec.persistentvolumesource is immutable after creation";
            problems.forbidden(&path, "persistentvolumesource", detail);
        }
        // Upstream leaves the spec out of this path.
        problems.immutable(new, old, &Path::default(), "volumeMode");
        let terms = |spec: &Value| spec["nodeAffinity"]["required"]["nodeSelectorTerms"].clone();
        // A claim that was made before labels had their present names may be told the new ones.
        if old.has("nodeAffinity")
            && new["nodeAffinity"] != old["nodeAffinity"]
            && !only_renames(&terms(new), &terms(old))
        {
            let detail = "field is immutable, except for updating from beta label to GA";
            problems.invalid(&Path::default(), "nodeAffinity", new["nodeAffinity"].clone(), detail);
        }
        problems.into_vec()
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

/// Labels that are known under a newer name.
const RENAMED: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

fn only_renames(new: &Value, old: &Value) -> bool {
    let terms = new.as_array().into_iter().flatten();
    // A key that is missing is told as that alone.
    if terms
        .flat_map(|term| term.list("matchExpressions"))
        .any(|one| one.text("key").is_empty())
    {
        return true;
    }
    let mut renamed = old.clone();
    for term in renamed.as_array_mut().into_iter().flatten() {
        for expression in term.list_mut("matchExpressions") {
            let newer = RENAMED.iter().find(|(old, _)| *old == expression.text("key"));
            if let Some((_, newer)) = newer {
                expression.set("key", *newer);
            }
        }
    }
    renamed == *new
}

const SOURCES: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "hostPath",
    "iscsi",
    "local",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Only drivers know attributes that can be changed.
fn validate_attributes_class(spec: &Value, path: &Path, problems: &mut Problems) {
    let field = "volumeAttributesClassName";
    match spec[field].as_str() {
        None => return,
        Some("") => problems.required(path, field, "an empty string is disallowed"),
        Some(_) => validate_optional_name(spec, field, path, problems),
    }
    if !spec.has("csi") {
        problems.required(path, "csi", "has to be specified when using volumeAttributesClassName");
    }
}

fn validate_source(spec: &Value, path: &Path, problems: &mut Problems) {
    let mut present = SOURCES.into_iter().filter(|kind| spec[*kind].is_object());
    let Some(kind) = present.next() else {
        return problems.required(path, "", "must specify a volume type");
    };
    for other in present {
        problems.forbidden(path, other, "may not specify more than 1 volume type");
    }
    let (source, source_path) = (&spec[kind], path.child(kind));
    validate_required_texts(kind, source, &source_path, problems);
    match kind {
        "csi" => {
            let driver = source.text("driver");
            if !driver.is_empty() {
                let found = dns1123_subdomain(&driver.to_lowercase(), false);
                problems.form(&source_path, "driver", driver, found);
            }
            problems.needs(source, &source_path, "volumeHandle");
        }
        "local" => {
            if problems.needs(source, &source_path, "path") && source.text("path").split('/').any(|part| part == "..") {
                problems.invalid(&source_path, "path", source.text("path"), "must not contain '..'");
            }
            if !spec.has("nodeAffinity") {
                problems.required(path, "nodeAffinity", "Local volume requires node affinity");
            }
        }
        "hostPath" => {
            validate_host_path(source, &source_path, problems);
            if source.text("path") == "/" && spec.text("persistentVolumeReclaimPolicy") == "Recycle" {
                let detail = "may not be 'recycle' for a hostPath mount of '/'";
                problems.forbidden(path, "persistentVolumeReclaimPolicy", detail);
            }
        }
        _ => {}
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
