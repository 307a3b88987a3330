//! Volumes of a pod: one source each, with what that source needs.

use std::collections::{HashMap, HashSet};

use schema::quantity::Quantity;

use super::Context;
use super::claim::validate_claim_spec;
use super::container::validate_field_reference;
use super::legacy;
use super::mount::validate_file_path;
use super::resource::validate_reference;
use crate::metadata::validate_template_metadata;
use crate::names::{dns1123_label, dns1123_subdomain};
use crate::{Fields, Path, Problems, Value};

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
pub type Volumes<'a> = HashMap<&'a str, &'a Value>;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
/// What a file of a downward volume may show.
const FILE_FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];
const TOKEN_SECONDS: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// The texts that a source cannot do without.
const REQUIRED: &[(&str, &[&str])] = &[
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cinder", &["volumeID"]),
    ("configMap", &["name"]),
    ("csi", &["driver"]),
    ("flexVolume", &["driver"]),
    ("gitRepo", &["repository"]),
    ("glusterfs", &["endpoints", "path"]),
    ("hostPath", &["path"]),
    ("image", &["reference"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("nfs", &["server", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("quobyte", &["volume"]),
    ("rbd", &["image"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("secret", &["secretName"]),
    ("storageos", &["volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

/// Returns the volumes that are fine, by their names: of others containers do not know.
pub fn validate_volumes<'a>(context: &Context<'a>, path: &Path, problems: &mut Problems) -> Volumes<'a> {
    let mut volumes = Volumes::new();
    for (index, volume) in context.spec.list("volumes").iter().enumerate() {
        let path = path.child("volumes").index(index);
        let name = volume.text("name");
        let before = problems.len();
        if problems.needs(volume, &path, "name") {
            problems.form(&path, "name", name, dns1123_label(name, false));
            if volumes.contains_key(name) {
                problems.duplicate(&path, "name", name);
            }
        }
        validate_source(volume, &path, problems);
        if volume["ephemeral"].is_object() && !context.pod_name.is_empty() && !name.is_empty() {
            let claim = format!("{}-{name}", context.pod_name);
            let found = dns1123_subdomain(&claim, false).into_iter();
            let found = found.map(|problem| format!("PVC name {claim:?}: {problem}"));
            problems.form(&path, "name", name, found.collect());
        }
        // A volume that is not fine does not take a name.
        if problems.len() == before {
            volumes.insert(name, volume);
        }
    }
    volumes
}

fn validate_source(volume: &Value, path: &Path, problems: &mut Problems) {
    let fields = volume.as_object().into_iter().flatten();
    let mut sources = fields.filter(|(field, source)| *field != "name" && source.is_object());
    let Some((kind, source)) = sources.next() else {
        return problems.required(path, "", "must specify a volume type");
    };
    for (other, _) in sources {
        problems.forbidden(path, other, "may not specify more than 1 volume type");
    }
    let path = path.child(kind);
    validate_required_texts(kind, source, &path, problems);
    match kind.as_str() {
        "hostPath" if !source.text("path").is_empty() => validate_host_path(source, &path, problems),
        "nfs" if !source.text("path").starts_with('/') => {
            problems.invalid(&path, "path", source.text("path"), "must be an absolute path");
        }
        "secret" | "configMap" => {
            validate_mode(source, "defaultMode", &path, problems);
            validate_items(source, &path, problems);
        }
        "downwardAPI" => {
            validate_mode(source, "defaultMode", &path, problems);
            for file in source.list("items") {
                validate_downward_file(file, &path, problems);
            }
        }
        "projected" => {
            validate_mode(source, "defaultMode", &path, problems);
            validate_projections(source, &path, problems);
        }
        "csi" if source.has("nodePublishSecretRef") => {
            legacy::validate(kind, source, &path, problems);
            problems.needs(
                &source["nodePublishSecretRef"],
                &path.child("nodePublishSecretRef"),
                "name",
            );
        }
        "ephemeral" if !source.has("volumeClaimTemplate") => {
            problems.required(&path, "volumeClaimTemplate", "");
        }
        "ephemeral" => {
            let (template, path) = (&source["volumeClaimTemplate"], path.child("volumeClaimTemplate"));
            problems.extend(validate_template_metadata(
                &template["metadata"],
                &path.child("metadata"),
            ));
            validate_claim_spec(&template["spec"], &path.child("spec"), problems);
        }
        "emptyDir" => validate_empty_dir(source, &path, problems),
        "image" => problems.optional_one_of(source, &path, "pullPolicy", &["Always", "IfNotPresent", "Never"]),
        _ => legacy::validate(kind, source, &path, problems),
    }
}

fn validate_empty_dir(source: &Value, path: &Path, problems: &mut Problems) {
    let limit = source["sizeLimit"]
        .as_str()
        .and_then(|size| size.parse::<Quantity>().ok());
    if limit.is_some_and(|size| size.is_negative()) {
        problems.forbidden(path, "sizeLimit", "SizeLimit field must be a valid resource quantity");
    }
}

/// Checks what a source needs, here and in PersistentVolumes.
pub fn validate_required_texts(kind: &str, source: &Value, path: &Path, problems: &mut Problems) {
    let fields = REQUIRED
        .iter()
        .find(|(name, _)| *name == kind)
        .map_or(&[][..], |(_, fields)| fields);
    for field in fields {
        problems.needs(source, path, field);
    }
}

fn validate_items(source: &Value, path: &Path, problems: &mut Problems) {
    for (index, item) in source.list("items").iter().enumerate() {
        let path = path.child("items").index(index);
        problems.needs(item, &path, "key");
        if problems.needs(item, &path, "path") {
            validate_file_path(item.text("path"), &path, "path", problems);
        }
        validate_mode(item, "mode", &path, problems);
    }
}

fn validate_downward_file(file: &Value, path: &Path, problems: &mut Problems) {
    if problems.needs(file, path, "path") {
        validate_file_path(file.text("path"), path, "path", problems);
    }
    match (file.has("fieldRef"), file.has("resourceFieldRef")) {
        (true, true) => {
            let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
            problems.invalid(path, "", "resource", detail);
        }
        (true, false) => {
            validate_field_reference(&file["fieldRef"], &FILE_FIELDS, &path.child("fieldRef"), problems);
        }
        (false, true) => {
            validate_reference(
                &file["resourceFieldRef"],
                false,
                &path.child("resourceFieldRef"),
                problems,
            );
        }
        (false, false) => problems.required(path, "", "one of fieldRef and resourceFieldRef is required"),
    }
    validate_mode(file, "mode", path, problems);
}

fn validate_projections(projected: &Value, path: &Path, problems: &mut Problems) {
    let mut files = HashSet::new();
    for (index, source) in projected.list("sources").iter().enumerate() {
        let source_path = path.child("sources").index(index);
        let kinds = [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ];
        let present: Vec<&str> = kinds.into_iter().filter(|kind| source.has(kind)).collect();
        if present.len() > 1 {
            problems.forbidden(&source_path, "", "may not specify more than 1 volume type");
        }
        for kind in present {
            let projection = &source[kind];
            let path_of_kind = source_path.child(kind);
            match kind {
                "secret" | "configMap" => {
                    problems.needs(projection, &path_of_kind, "name");
                    validate_items(projection, &path_of_kind, problems);
                }
                "downwardAPI" => {
                    for file in projection.list("items") {
                        validate_downward_file(file, &path_of_kind, problems);
                    }
                }
                "serviceAccountToken" => validate_token(projection, &path_of_kind, path, problems),
                _ => {}
            }
            for file in projection.list("items") {
                let target = file.text("path");
                if !target.is_empty() && !files.insert(target) {
                    let owner = match projection.text("name") {
                        "" => target,
                        name => name,
                    };
                    problems.invalid(path, "", owner, "conflicting duplicate paths");
                }
            }
        }
    }
}

fn validate_token(token: &Value, path: &Path, volume_path: &Path, problems: &mut Problems) {
    let seconds = token.number("expirationSeconds");
    if seconds < *TOKEN_SECONDS.start() {
        problems.invalid(
            path,
            "expirationSeconds",
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    }
    if seconds > *TOKEN_SECONDS.end() {
        problems.invalid(
            path,
            "expirationSeconds",
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    if token.text("path").is_empty() {
        problems.required(volume_path, "path", "");
    } else {
        validate_file_path(token.text("path"), volume_path, "path", problems);
    }
}

fn validate_mode(object: &Value, field: &str, path: &Path, problems: &mut Problems) {
    if let Some(mode) = object[field].as_i64()
        && !(0..=0o777).contains(&mode)
    {
        problems.invalid(path, field, mode, FILE_MODE);
    }
}

fn validate_no_backsteps(target: &str, path: &Path, field: &str, problems: &mut Problems) {
    if target.split('/').any(|part| part == "..") {
        problems.invalid(path, field, target, "must not contain '..'");
    }
}

/// A path of the node, for a pod or for a persistent volume.
pub fn validate_host_path(source: &Value, path: &Path, problems: &mut Problems) {
    validate_no_backsteps(source.text("path"), path, "path", problems);
    problems.optional_one_of(source, path, "type", &HOST_PATH_TYPES);
}

/// The name of a storage class or the like, where one is given.
pub fn validate_optional_name(object: &Value, field: &str, path: &Path, problems: &mut Problems) {
    let name = object.text(field);
    if !name.is_empty() {
        problems.form(path, field, name, dns1123_subdomain(name, false));
    }
}
