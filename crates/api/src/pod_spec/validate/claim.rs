//! The spec of a claim of storage, which PersistentVolumeClaims, templates of them and ephemeral volumes share.

use schema::quantity::Quantity;

use super::validate_optional_name;
use crate::names::dns1123_subdomain;
use crate::{FieldError, Fields, Path, Problems, Value, validate_label_selector};

fn validate_sources(spec: &Value, path: &Path, problems: &mut Problems) {
    for field in ["dataSource", "dataSourceRef"] {
        let (source, place) = (&spec[field], path.child(field));
        if !source.is_object() {
            continue;
        }
        for needed in ["name", "kind"] {
            problems.needs(source, &place, needed);
        }
        let group = source["apiGroup"].as_str().unwrap_or_default();
        match group {
            "" if source.text("kind") != "PersistentVolumeClaim" => {
                let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
                problems.invalid(&place, "", source.text("kind"), detail);
            }
            "" => {}
            group => problems.form(&place, "apiGroup", group, dns1123_subdomain(group, false)),
        }
    }
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    if source.is_object() && reference.is_object() && source != reference {
        problems.invalid(path, "", source.clone(), "must match dataSourceRef");
    }
}

/// The spec of a claim, wherever it stands.
pub(crate) fn validate_claim_spec(spec: &Value, path: &Path, problems: &mut Problems) {
    validate_sources(spec, path, problems);
    validate_access_modes(spec, "at least 1 access mode is required", path, problems);
    problems.extend(validate_label_selector(&spec["selector"], &path.child("selector")));
    match spec["resources"]["requests"].text("storage") {
        "" => problems.required(&path.child("resources").key("storage"), "", ""),
        size => validate_size(size, &path.child("resources").key("storage"), problems),
    }
    validate_optional_name(spec, "storageClassName", path, problems);
    validate_optional_name(spec, "volumeAttributesClassName", path, problems);
    problems.optional_one_of(spec, path, "volumeMode", &["Block", "Filesystem"]);
}

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// How a claim or volume may be mounted.
pub(crate) fn validate_access_modes(spec: &Value, missing: &str, path: &Path, problems: &mut Problems) {
    let modes = spec.list("accessModes");
    if modes.is_empty() {
        problems.required(path, "accessModes", missing);
    }
    for mode in modes
        .iter()
        .filter_map(Value::as_str)
        .filter(|mode| !ACCESS_MODES.contains(mode))
    {
        problems.extend([FieldError::not_supported(
            &path.child("accessModes"),
            mode,
            &ACCESS_MODES,
        )]);
    }
    let known = modes
        .iter()
        .filter(|mode| mode.as_str().is_some_and(|mode| ACCESS_MODES.contains(&mode)));
    if known.count() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let detail = "may not use ReadWriteOncePod with other access modes";
        problems.forbidden(path, "accessModes", detail);
    }
}

pub(crate) fn validate_size(size: &str, path: &Path, problems: &mut Problems) {
    let amount = size.parse::<Quantity>().unwrap_or(Quantity::ZERO);
    if amount.is_zero() || amount.is_negative() {
        problems.invalid(path, "", size, "must be greater than zero");
    }
}
