//! Where volumes appear in a container.

use super::volume::Volumes;
use crate::{Fields, Path, Problems, Value, repeats, texts};

const PROPAGATIONS: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];

pub fn validate(volumes: &Volumes, container: &Value, path: &Path, problems: &mut Problems) {
    let volume = |name: &str| volumes.get(name);
    let devices = container.list("volumeDevices");
    let list_path = path.child("volumeMounts");
    let mounts = container.list("volumeMounts");
    let repeated = repeats(mounts.iter().map(|mount| mount.text("mountPath")));
    let (device_names, device_paths) = (texts(devices, "name"), texts(devices, "devicePath"));
    for (index, mount) in mounts.iter().enumerate() {
        let path = list_path.index(index);
        let (name, place) = (mount.text("name"), mount.text("mountPath"));
        problems.needs(mount, &path, "name");
        if volume(name).is_none() {
            problems.not_found(&path, "name", name);
        }
        problems.needs(mount, &path, "mountPath");
        if repeated[index] {
            problems.invalid(&path, "mountPath", place, "must be unique");
        }
        if device_names.contains(name) {
            problems.invalid(&path, "name", name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(place) {
            problems.invalid(
                &path,
                "mountPath",
                place,
                "must not already exist as a path in volumeDevices",
            );
        }
        validate_sub_path(mount, &list_path, problems);
        validate_mount(container, mount, &path, &list_path, problems);
    }
    let names = repeats(devices.iter().map(|device| device.text("name")));
    let targets = repeats(devices.iter().map(|device| device.text("devicePath")));
    for (index, device) in devices.iter().enumerate() {
        let path = path.child("volumeDevices").index(index);
        let name = device.text("name");
        problems.needs(device, &path, "name");
        problems.needs(device, &path, "devicePath");
        if names[index] {
            problems.invalid(&path, "name", name, "must be unique");
        }
        let target = device.text("devicePath");
        if !target.is_empty() && targets[index] {
            problems.invalid(&path, "devicePath", target, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            problems.invalid(&path, "devicePath", target, "can not contain backsteps ('..')");
        }
        match volume(name) {
            None => problems.not_found(&path, "name", name),
            Some(volume) if volume.has("persistentVolumeClaim") || volume.has("ephemeral") => {}
            Some(_) => {
                let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                problems.invalid(&path, "name", name, detail);
            }
        }
    }
}

/// Upstream names the list here and not the mount, so that clients know no other path.
fn validate_sub_path(mount: &Value, path: &Path, problems: &mut Problems) {
    validate_descending(mount.text("subPath"), path, "subPath", problems);
    validate_descending(mount.text("subPathExpr"), path, "subPathExpr", problems);
}

fn validate_mount(container: &Value, mount: &Value, path: &Path, list: &Path, problems: &mut Problems) {
    let (sub_path, expression) = (mount.text("subPath"), mount.text("subPathExpr"));
    if !sub_path.is_empty() && !expression.is_empty() {
        problems.invalid(
            path,
            "subPathExpr",
            expression,
            "subPathExpr and subPath are mutually exclusive",
        );
    }
    // Here, too, upstream names the list.
    let path = list;
    problems.optional_one_of(mount, path, "mountPropagation", &PROPAGATIONS);
    if mount.text("mountPropagation") == "Bidirectional" && !container["securityContext"].flag("privileged") {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        problems.forbidden(path, "mountPropagation", detail);
    }
    if matches!(mount.text("recursiveReadOnly"), "Enabled" | "IfPossible") {
        if !mount.flag("readOnly") {
            problems.forbidden(path, "recursiveReadOnly", "may only be specified when readOnly is true");
        }
        if !matches!(mount.text("mountPropagation"), "" | "None") {
            let detail = "may only be specified when mountPropagation is None or not specified";
            problems.forbidden(path, "recursiveReadOnly", detail);
        }
    } else {
        problems.optional_one_of(mount, path, "recursiveReadOnly", &["Disabled", "Enabled", "IfPossible"]);
    }
}

/// A path that leads down from where it starts.
pub fn validate_descending(target: &str, path: &Path, field: &str, problems: &mut Problems) {
    if target.starts_with('/') {
        problems.invalid(path, field, target, "must be a relative path");
    }
    if target.split('/').any(|part| part == "..") {
        problems.invalid(path, field, target, "must not contain '..'");
    }
}

/// A path of a file that a volume creates, which may not be one of those that the volume keeps for itself.
pub fn validate_file_path(target: &str, path: &Path, field: &str, problems: &mut Problems) {
    validate_descending(target, path, field, problems);
    if target.starts_with("..") && !target.starts_with("../") {
        problems.invalid(path, field, target, "must not start with '..'");
    }
}
