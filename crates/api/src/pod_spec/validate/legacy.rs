//! Volume sources of storage that Kubernetes once knew itself.

use crate::{FieldError, Fields, Path, Problems, Value};

const BLOB_DISK: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
const MANAGED_DISK: &str =
    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const NUMBERS: std::ops::RangeInclusive<i64> = 0..=255;

/// What a source needs beyond the texts that it cannot do without.
pub fn validate(kind: &str, source: &Value, path: &Path, problems: &mut Problems) {
    match kind {
        "azureDisk" => validate_azure_disk(source, path, problems),
        "cephfs" | "rbd" if source.list("monitors").is_empty() => problems.required(path, "monitors", ""),
        "csi" => {
            let driver = source.text("driver");
            if !driver.is_empty() {
                let found = crate::names::dns1123_subdomain(&driver.to_lowercase(), false);
                problems.form(path, "driver", driver, found);
            }
        }
        "fc" => validate_fibre_channel(source, path, problems),
        "flocker" => validate_flocker(source, path, problems),
        "gcePersistentDisk" => {
            // The path is that of an older name.
            let shown = path.to_string();
            let path = Path::new(&shown.replace("gcePersistentDisk", "persistentDisk"));
            validate_google_disk(source, &path, problems);
        }
        "gitRepo" if source.text("directory").split('/').any(|part| part == "..") => {
            problems.invalid(path, "directory", source.text("directory"), "must not contain '..'");
        }
        "iscsi" => validate_iscsi(source, path, problems),
        "quobyte" if source.text("registry").is_empty() => {
            let detail = "must be a host:port pair or multiple pairs separated by commas";
            problems.required(path, "registry", detail);
        }
        _ => {}
    }
}

fn validate_azure_disk(source: &Value, path: &Path, problems: &mut Problems) {
    let (uri, managed) = (source.text("diskURI"), source.text("kind") == "Managed");
    if managed && !uri.starts_with("/subscriptions/") {
        problems.extend([FieldError::not_supported(&path.child("diskURI"), uri, &[MANAGED_DISK])]);
    }
    if !managed && !uri.starts_with("https://") {
        problems.extend([FieldError::not_supported(&path.child("diskURI"), uri, &[BLOB_DISK])]);
    }
}

fn validate_fibre_channel(source: &Value, path: &Path, problems: &mut Problems) {
    let (targets, ids) = (source.list("targetWWNs"), source.list("wwids"));
    let detail = "must specify either targetWWNs or wwids, but not both";
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => problems.required(path, "targetWWNs", detail),
        (false, false) => problems.invalid(path, "targetWWNs", source["targetWWNs"].clone(), detail),
        (false, true) => match source["lun"].as_i64() {
            Some(lun) => validate_number(lun, path, "lun", problems),
            None => problems.required(path, "lun", "lun is required if targetWWNs is specified"),
        },
        (true, false) => {}
    }
}

fn validate_flocker(source: &Value, path: &Path, problems: &mut Problems) {
    let (name, id) = (source.text("datasetName"), source.text("datasetUUID"));
    if name.is_empty() && id.is_empty() {
        problems.required(path, "", "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !id.is_empty() {
        let detail = "resource";
        problems.invalid(
            path,
            "",
            detail,
            "datasetName and datasetUUID can not be specified simultaneously",
        );
    }
    if name.contains('/') {
        problems.invalid(path, "datasetName", name, "must not contain '/'");
    }
}

fn validate_google_disk(source: &Value, path: &Path, problems: &mut Problems) {
    if source.text("pdName").is_empty() {
        problems.required(path, "pdName", "");
    }
    let partition = source.number("partition");
    if !NUMBERS.contains(&partition) {
        problems.invalid(path, "partition", partition, "must be between 1 and 255, inclusive");
    }
}

fn validate_iscsi(source: &Value, path: &Path, problems: &mut Problems) {
    let name = source.text("iqn");
    let known = ["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix));
    if !name.is_empty() && !known {
        problems.invalid(path, "iqn", name, "must be valid format starting with iqn, eui, or naa");
    }
    validate_number(source.number("lun"), path, "lun", problems);
    let asks = source.flag("chapAuthDiscovery") || source.flag("chapAuthSession");
    if asks && !source.has("secretRef") {
        problems.required(path, "secretRef", "");
    }
}

fn validate_number(number: i64, path: &Path, field: &str, problems: &mut Problems) {
    if !NUMBERS.contains(&number) {
        problems.invalid(path, field, number, "must be between 0 and 255, inclusive");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(kind: &str, source: Value) -> Vec<String> {
        let mut problems = Problems::default();
        validate(kind, &source, &Path::new("v").child(kind), &mut problems);
        problems.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn sources_say_what_they_need() {
        assert_eq!(found("rbd", json!({})), ["v.rbd.monitors: Required value"]);
        assert_eq!(
            found("iscsi", json!({"iqn": "bad", "lun": 300})),
            [
                "v.iscsi.iqn: Invalid value: \"bad\": must be valid format starting with iqn, eui, or naa",
                "v.iscsi.lun: Invalid value: 300: must be between 0 and 255, inclusive",
            ]
        );
        assert_eq!(
            found("gcePersistentDisk", json!({"partition": 300})),
            [
                "v.persistentDisk.pdName: Required value",
                "v.persistentDisk.partition: Invalid value: 300: must be between 1 and 255, inclusive",
            ]
        );
        assert!(found("fc", json!({"wwids": ["a"]})).is_empty());
    }
}
