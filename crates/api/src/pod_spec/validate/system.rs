//! What goes with the operating system of a pod, and with users of its own.

use crate::{FieldError, Fields, Path, Problems, Value};

/// What is Linux' alone in the context of a pod, and in that of a container.
const POD_LINUX: [&str; 9] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
];
const CONTAINER_LINUX: [&str; 9] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
];
const NO_WINDOWS: &str = "cannot be set for a windows pod";
const OWN_USERS: &str = "when `hostUsers` is false";

pub fn validate(spec: &Value, path: &Path, problems: &mut Problems) {
    if spec["os"].is_object() {
        match spec["os"].text("name") {
            "linux" => validate_linux(spec, path, problems),
            "windows" => validate_windows(spec, path, problems),
            "" => problems.required(&path.child("os"), "name", ""),
            other => problems.extend([FieldError::not_supported(
                &path.child("os"),
                other,
                &["linux", "windows"],
            )]),
        }
    }
    if spec["hostUsers"] == false {
        validate_own_users(spec, path, problems);
    }
    validate_host_name(spec, path, problems);
}

fn validate_linux(spec: &Value, path: &Path, problems: &mut Problems) {
    let detail = "windows options cannot be set for a linux pod";
    if spec["securityContext"].has("windowsOptions") {
        problems.forbidden(&path.child("securityContext"), "windowsOptions", detail);
    }
    for (container, path) in containers(spec, path) {
        if container["securityContext"].has("windowsOptions") {
            problems.forbidden(&path.child("securityContext"), "windowsOptions", detail);
        }
    }
}

fn validate_windows(spec: &Value, path: &Path, problems: &mut Problems) {
    let (context, place) = (&spec["securityContext"], path.child("securityContext"));
    for field in POD_LINUX.iter().take(3).filter(|field| context.has(field)) {
        problems.forbidden(&place, field, NO_WINDOWS);
    }
    for field in ["hostPID", "hostIPC"].iter().filter(|field| spec.flag(field)) {
        problems.forbidden(path, field, NO_WINDOWS);
    }
    for field in POD_LINUX.iter().skip(3).take(3).filter(|field| context.has(field)) {
        problems.forbidden(&place, field, NO_WINDOWS);
    }
    if spec.has("shareProcessNamespace") {
        problems.forbidden(path, "shareProcessNamespace", NO_WINDOWS);
    }
    for field in POD_LINUX.iter().skip(6).filter(|field| context.has(field)) {
        problems.forbidden(&place, field, NO_WINDOWS);
    }
    for (container, path) in containers(spec, path) {
        let (context, path) = (&container["securityContext"], path.child("securityContext"));
        for field in CONTAINER_LINUX.iter().filter(|field| context.has(field)) {
            problems.forbidden(&path, field, NO_WINDOWS);
        }
        if context.has("runAsGroup") {
            problems.forbidden(&path, "runAsGroup", NO_WINDOWS);
        }
    }
}

/// A pod with users of its own has namespaces of its own, and no devices.
fn validate_own_users(spec: &Value, path: &Path, problems: &mut Problems) {
    for (container, path) in containers(spec, path) {
        if !container.list("volumeDevices").is_empty() {
            problems.forbidden(&path, "volumeDevices", OWN_USERS);
        }
    }
    for (field, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if spec.flag(field) {
            problems.forbidden(path, shown, OWN_USERS);
        }
    }
}

fn validate_host_name(spec: &Value, path: &Path, problems: &mut Problems) {
    let name = spec.text("hostnameOverride");
    if name.is_empty() {
        return;
    }
    if spec.flag("setHostnameAsFQDN") {
        problems.forbidden(
            path,
            "hostnameOverride",
            "may not be specified when setHostnameAsFQDN is true",
        );
    }
    problems.form(
        path,
        "hostnameOverride",
        name,
        crate::names::dns1123_subdomain(name, false),
    );
    if spec.flag("hostNetwork") {
        problems.forbidden(
            path,
            "hostnameOverride",
            "may not be specified when hostNetwork is true",
        );
    }
}

fn containers<'a>(spec: &'a Value, path: &Path) -> impl Iterator<Item = (&'a Value, Path)> {
    ["containers", "initContainers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |list| {
            let path = path.child(list);
            let items = spec.list(list).iter().enumerate();
            items.map(move |(index, container)| (container, path.index(index)))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(spec: Value) -> Vec<String> {
        let mut problems = Problems::default();
        validate(&spec, &Path::new("spec"), &mut problems);
        problems.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn windows_knows_no_capabilities() {
        let context = json!({"capabilities": {}, "runAsUser": 1});
        assert_eq!(
            found(json!({"os": {"name": "windows"}, "hostPID": true, "containers": [{"securityContext": context}]})),
            [
                "spec.hostPID: Forbidden: cannot be set for a windows pod",
                "spec.containers[0].securityContext.capabilities: Forbidden: cannot be set for a windows pod",
                "spec.containers[0].securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            ]
        );
    }

    #[test]
    fn users_of_its_own_go_with_a_network_of_its_own() {
        assert_eq!(
            found(json!({"hostUsers": false, "hostNetwork": true})),
            ["spec.hostNetwork: Forbidden: when `hostUsers` is false"]
        );
    }
}
