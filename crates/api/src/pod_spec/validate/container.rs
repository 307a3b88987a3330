//! Containers, init containers and ephemeral containers.

use std::collections::HashSet;

use super::volume::Volumes;
use super::{Context, handler, mount, resource, security};
use crate::names::{config_key, dns1123_label, dns1123_subdomain, environment_name, label_key, port_name, port_number};
use crate::{FieldError, Fields, Path, Problems, Value, texts};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const RESTART_POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
/// What an environment variable may take from its pod.
const POD_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// What containers refer to in their pod.
struct PodReferences<'a> {
    volumes: &'a Volumes<'a>,
    claims: resource::Claims<'a>,
}

pub fn validate_containers(context: &Context, volumes: &Volumes, path: &Path, problems: &mut Problems) {
    let spec = context.spec;
    let of_pod = PodReferences {
        volumes,
        claims: resource::Claims::from_pod_spec(spec),
    };
    let mut names = HashSet::new();
    let containers_path = path.child("containers");
    if spec.list("containers").is_empty() {
        problems.required(&containers_path, "", "");
    }
    for (index, container) in spec.list("containers").iter().enumerate() {
        let path = containers_path.index(index);
        validate_common(context, &of_pod, container, &path, problems);
        validate_ports_on_host(context, container, &path, problems);
        validate_restart_rules(container, &path, problems);
        validate_unique_name(container, &path, &mut names, problems);
        handler::validate_lifecycle(context, container, &path, problems);
        handler::validate_probes(container, &path, problems);
        problems.optional_one_of(container, &path, "restartPolicy", &RESTART_POLICIES);
    }
    validate_host_ports(spec.list("containers"), &containers_path, problems);
    for (index, container) in spec.list("initContainers").iter().enumerate() {
        let path = path.child("initContainers").index(index);
        validate_common(context, &of_pod, container, &path, problems);
        validate_restart_rules(container, &path, problems);
        validate_unique_name(container, &path, &mut names, problems);
        validate_init(context, container, &path, problems);
    }
    let mut targets = texts(spec.list("containers"), "name");
    targets.extend(texts(spec.list("initContainers"), "name"));
    for (index, container) in spec.list("ephemeralContainers").iter().enumerate() {
        let path = path.child("ephemeralContainers").index(index);
        validate_common(context, &of_pod, container, &path, problems);
        validate_unique_name(container, &path, &mut names, problems);
        validate_ephemeral(&targets, container, &path, problems);
    }
}

fn validate_common(context: &Context, of_pod: &PodReferences, container: &Value, path: &Path, problems: &mut Problems) {
    let name = container.text("name");
    if problems.needs(container, path, "name") {
        problems.form(path, "name", name, dns1123_label(name, false));
    }
    let image = container.text("image");
    if problems.needs(container, path, "image") && context.is_pod && image.trim() != image {
        problems.invalid(path, "image", image, "must not have leading or trailing whitespace");
    }
    problems.one_of(
        container,
        path,
        "terminationMessagePolicy",
        &["File", "FallbackToLogsOnError"],
    );
    problems.one_of(container, path, "imagePullPolicy", &PULL_POLICIES);
    validate_ports(container, path, problems);
    validate_environment(of_pod.volumes, container, path, problems);
    mount::validate(of_pod.volumes, container, path, problems);
    validate_resize_policy(container, path, problems);
    if container["securityContext"].text("procMount") == "Unmasked" && context.spec["hostUsers"] != false {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        problems.invalid(&path.child("securityContext"), "procMount", "Unmasked", detail);
    }
    resource::validate_requirements(&container["resources"], &path.child("resources"), problems);
    resource::validate_claims(
        &of_pod.claims,
        &container["resources"],
        &path.child("resources"),
        problems,
    );
    security::validate_container_context(container, path, problems);
}

/// Exits after which a container starts again, whatever its pod's policy says.
fn validate_restart_rules(container: &Value, path: &Path, problems: &mut Problems) {
    let rules = container.list("restartPolicyRules");
    if !rules.is_empty() && !container.has("restartPolicy") {
        problems.required(
            path,
            "restartPolicy",
            "must specify restartPolicy when restart rules are used",
        );
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.child("restartPolicyRules").index(index);
        problems.optional_one_of(rule, &path, "action", &["Restart", "RestartAllContainers"]);
        let (codes, place) = (&rule["exitCodes"], path.child("exitCodes"));
        if !codes.is_object() {
            problems.required(&path, "exitCodes", "must be specified");
            continue;
        }
        problems.optional_one_of(codes, &place, "operator", &["In", "NotIn"]);
    }
}

/// What to do when an amount changes while the container runs.
fn validate_resize_policy(container: &Value, path: &Path, problems: &mut Problems) {
    let path = path.child("resizePolicy");
    let mut seen = HashSet::new();
    for (index, policy) in container.list("resizePolicy").iter().enumerate() {
        let (resource, restart) = (policy.text("resourceName"), policy.text("restartPolicy"));
        if !seen.insert(resource) {
            problems.duplicate(&path.index(index), "", resource);
        }
        for (text, supported) in [
            (resource, ["cpu", "memory"]),
            (restart, ["NotRequired", "RestartContainer"]),
        ] {
            match text {
                "" => problems.required(&path, "", ""),
                other if !supported.contains(&other) => {
                    problems.extend([FieldError::not_supported(&path, other, &supported)]);
                }
                _ => {}
            }
        }
    }
}

fn validate_unique_name<'a>(container: &'a Value, path: &Path, names: &mut HashSet<&'a str>, problems: &mut Problems) {
    let name = container.text("name");
    if !name.is_empty() && !names.insert(name) {
        problems.duplicate(path, "name", name);
    }
}

/// Only a sidecar, which keeps running, can be probed or told to stop.
fn validate_init(context: &Context, container: &Value, path: &Path, problems: &mut Problems) {
    problems.optional_one_of(container, path, "restartPolicy", &RESTART_POLICIES);
    if container.text("restartPolicy") == "Always" {
        handler::validate_lifecycle(context, container, path, problems);
        handler::validate_probes(container, path, problems);
        return;
    }
    for field in ["lifecycle"].iter().chain(&PROBES).filter(|field| container.has(field)) {
        problems.forbidden(
            path,
            field,
            "may not be set for init containers without restartPolicy=Always",
        );
    }
}

/// What a container that comes to a running pod cannot have, beside probes.
const NOT_EPHEMERAL: [&str; 5] = [
    "ports",
    "lifecycle",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
];

fn validate_ephemeral(targets: &HashSet<&str>, container: &Value, path: &Path, problems: &mut Problems) {
    let target = container.text("targetContainerName");
    if !target.is_empty() && !targets.contains(target) {
        problems.not_found(path, "targetContainerName", target);
    }
    for field in NOT_EPHEMERAL.iter().chain(&PROBES).filter(|field| container.has(field)) {
        problems.forbidden(path, field, "cannot be set for an Ephemeral Container");
    }
    for (index, mount) in container.list("volumeMounts").iter().enumerate() {
        let path = path.child("volumeMounts").index(index);
        for field in ["subPath", "subPathExpr"] {
            if !mount.text(field).is_empty() {
                problems.forbidden(&path, field, "cannot be set for an Ephemeral Container");
            }
        }
    }
    for list in ["limits", "requests"] {
        if container["resources"].entries(list).next().is_some() {
            problems.forbidden(path, "resources", "cannot be set for an Ephemeral Container");
            break;
        }
    }
}

fn validate_ports(container: &Value, path: &Path, problems: &mut Problems) {
    let mut names = HashSet::new();
    for (index, port) in container.list("ports").iter().enumerate() {
        let path = path.child("ports").index(index);
        let name = port.text("name");
        if !name.is_empty() {
            problems.form(&path, "name", name, port_name(name));
            if !names.insert(name) {
                problems.duplicate(&path, "name", name);
            }
        }
        let (number, host) = (port.number("containerPort"), port.number("hostPort"));
        if number == 0 {
            problems.required(&path, "containerPort", "");
        } else {
            problems.form(&path, "containerPort", number, port_number(number));
        }
        if host != 0 {
            problems.form(&path, "hostPort", host, port_number(host));
        }
        problems.one_of(port, &path, "protocol", &PROTOCOLS);
    }
}

/// On the node's network a port is the node's. Init containers are not held to it.
fn validate_ports_on_host(context: &Context, container: &Value, path: &Path, problems: &mut Problems) {
    if !context.spec.flag("hostNetwork") {
        return;
    }
    for (index, port) in container.list("ports").iter().enumerate() {
        let (number, host) = (port.number("containerPort"), port.number("hostPort"));
        if (context.is_pod || host != 0) && host != number {
            let detail = "must match `containerPort` when `hostNetwork` is true";
            problems.invalid(&path.child("ports").index(index), "hostPort", host, detail);
        }
    }
}

fn validate_host_ports(containers: &[Value], path: &Path, problems: &mut Problems) {
    let mut taken = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        for (port_index, port) in container.list("ports").iter().enumerate() {
            let number = port.number("hostPort");
            let place = format!("{}/{}/{number}", port.text("protocol"), port.text("hostIP"));
            if number != 0 && !taken.insert(place.clone()) {
                problems.duplicate(&path.index(index).child("ports").index(port_index), "hostPort", place);
            }
        }
    }
}

fn validate_environment(volumes: &Volumes, container: &Value, path: &Path, problems: &mut Problems) {
    for (index, variable) in container.list("env").iter().enumerate() {
        let path = path.child("env").index(index);
        let name = variable.text("name");
        if problems.needs(variable, &path, "name") {
            problems.form(&path, "name", name, environment_name(name));
        }
        if variable["valueFrom"].is_object() {
            validate_value_source(volumes, variable, &path.child("valueFrom"), problems);
        }
    }
    for (index, source) in container.list("envFrom").iter().enumerate() {
        let list = path.child("envFrom");
        let path = list.index(index);
        let prefix = source.text("prefix");
        if !prefix.is_empty() {
            problems.form(&path, "prefix", prefix, environment_name(prefix));
        }
        let kinds = ["configMapRef", "secretRef"].map(|kind| (kind, source.has(kind)));
        match kinds.iter().filter(|(_, set)| *set).count() {
            0 => problems.invalid(&list, "", "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => problems.invalid(&list, "", "", "may not have more than one field specified at a time"),
        }
        for (kind, _) in kinds.iter().filter(|(_, set)| *set) {
            let reference = &source[*kind];
            let path = path.child(kind);
            if problems.needs(reference, &path, "name") {
                let name = reference.text("name");
                problems.form(&path, "name", name, dns1123_subdomain(name, false));
            }
        }
    }
}

fn validate_value_source(volumes: &Volumes, variable: &Value, path: &Path, problems: &mut Problems) {
    let source = &variable["valueFrom"];
    let kinds = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    let present: Vec<&str> = kinds.into_iter().filter(|kind| source.has(kind)).collect();
    match present.as_slice() {
        [] => {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
                          `fileKeyRef`";
            problems.invalid(path, "", "", detail);
        }
        _ if !variable.text("value").is_empty() => {
            problems.invalid(path, "", "", "may not be specified when `value` is not empty");
        }
        [_] => {}
        _ => problems.invalid(path, "", "", "may not have more than one field specified at a time"),
    }
    if source.has("fieldRef") {
        validate_field_reference(&source["fieldRef"], &POD_FIELDS, &path.child("fieldRef"), problems);
    }
    if source.has("resourceFieldRef") {
        resource::validate_reference(
            &source["resourceFieldRef"],
            true,
            &path.child("resourceFieldRef"),
            problems,
        );
    }
    if source.has("fileKeyRef") {
        validate_file_key(volumes, &source["fileKeyRef"], &path.child("fileKeyRef"), problems);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        if source.has(kind) {
            let path = path.child(kind);
            let (name, key) = (source[kind].text("name"), source[kind].text("key"));
            problems.form(&path, "name", name, dns1123_subdomain(name, false));
            if problems.needs(&source[kind], &path, "key") {
                problems.form(&path, "key", key, config_key(key));
            }
        }
    }
}

/// A variable from a file that another container wrote to a volume.
fn validate_file_key(volumes: &Volumes, file: &Value, path: &Path, problems: &mut Problems) {
    let (key, volume, target) = (file.text("key"), file.text("volumeName"), file.text("path"));
    if problems.needs(file, path, "key") {
        problems.form(path, "key", key, environment_name(key));
    }
    if problems.needs(file, path, "path") {
        mount::validate_descending(target, path, "path", problems);
    }
    problems.needs(file, path, "volumeName");
    match volumes.get(volume) {
        None => problems.not_found(path, "volumeName", volume),
        Some(source) if !source.has("emptyDir") => {
            let detail = "referenced volume must be of type emptyDir";
            problems.invalid(path, "volumeName", volume, detail);
        }
        Some(_) => {}
    }
}

/// A reference to a field of the pod, for a variable or a file.
pub fn validate_field_reference(reference: &Value, supported: &[&str], path: &Path, problems: &mut Problems) {
    problems.needs(reference, path, "apiVersion");
    if !matches!(reference.text("apiVersion"), "" | "v1") && reference.has("fieldPath") {
        let detail = format!(
            "error converting fieldPath: unsupported pod version: {}",
            reference.text("apiVersion")
        );
        return problems.invalid(path, "fieldPath", reference.text("fieldPath"), detail);
    }
    if !problems.needs(reference, path, "fieldPath") {
        return;
    }
    let field = reference.text("fieldPath");
    let map = field
        .split_once('[')
        .filter(|(_, key)| key.ends_with("']") && key.starts_with('\''));
    match map {
        Some((map @ ("metadata.annotations" | "metadata.labels"), key)) => {
            let key = key.trim_start_matches('\'').trim_end_matches("']");
            let lower = key.to_lowercase();
            let checked = if map == "metadata.labels" { key } else { &lower };
            problems.form(path, "", key, label_key(checked));
        }
        Some(_) => problems.invalid(path, "", field, "does not support subscript"),
        None if supported.contains(&field) => {}
        None => {
            let known = [
                &POD_FIELDS[..],
                &["metadata.annotations", "metadata.labels", "spec.host"],
            ]
            .concat();
            if known.contains(&field) {
                problems.optional_one_of(reference, path, "fieldPath", supported);
            } else {
                let detail = format!("error converting fieldPath: field label not supported: {field}");
                problems.invalid(path, "fieldPath", field, detail);
            }
        }
    }
}
