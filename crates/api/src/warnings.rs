//! What upstream warns about in pods and their templates: not wrong enough to refuse, but hardly what the user meant.

mod address;
mod der;
mod files;
pub mod key_pair;

use std::collections::{BTreeSet, HashMap};

use crate::{Fields, Path, Value};

pub(crate) use address::{of_address, of_range};

/// Volumes that do nothing any more.
const OLD_VOLUMES: &[(&str, &str)] = &[
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Node labels that have a successor.
const OLD_LABELS: &[(&str, &str)] = &[
    (
        "beta.kubernetes.io/arch",
        "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
    ),
    (
        "beta.kubernetes.io/os",
        "deprecated since v1.14; use \"kubernetes.io/os\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
];

/// Annotations of pods that mean nothing any more.
const OLD_ANNOTATIONS: &[(&str, &str)] = &[
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "seccomp.security.alpha.kubernetes.io/pod",
        "non-functional in v1.27+; use the \"seccompProfile\" field instead",
    ),
];

fn of_annotations(annotations: &Value, path: &Path, warnings: &mut Vec<String>) {
    let path = path.child("metadata").child("annotations");
    for (key, text) in OLD_ANNOTATIONS.iter().filter(|(key, _)| annotations.has(key)) {
        warnings.push(format!("{}: {text}", path.key(key)));
    }
    for (key, _) in annotations.as_object().into_iter().flatten() {
        if key.starts_with("container.seccomp.security.alpha.kubernetes.io/") {
            let text = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
            warnings.push(format!("{}: {text}", path.key(key)));
        }
    }
}

/// What to say of the addresses of a list that are written in an unusual way.
pub(crate) fn of_addresses(object: &Value, list: &str, path: &Path, warnings: &mut Vec<String>) {
    for (index, address) in object.list(list).iter().enumerate() {
        let place = path.child(list).index(index);
        warnings.extend(address::of_address(address.as_str().unwrap_or_default(), &place));
    }
}

/// Terms of affinity that name old labels, or no pods at all.
fn of_affinity(affinity: &Value, path: &Path, warnings: &mut Vec<String>) {
    let (required, preferred) = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    );
    let nodes = path.child("nodeAffinity");
    let terms = affinity["nodeAffinity"][required]
        .list("nodeSelectorTerms")
        .iter()
        .enumerate();
    for (at, term) in terms {
        of_node_term(
            term,
            &nodes.child(required).child("nodeSelectorTerms").index(at),
            warnings,
        );
    }
    for (at, term) in affinity["nodeAffinity"].list(preferred).iter().enumerate() {
        let place = nodes.child(preferred).index(at).child("preference");
        of_node_term(&term["preference"], &place, warnings);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let path = path.child(kind);
        let hard = affinity[kind].list(required).iter().enumerate();
        let hard = hard.map(|(at, term)| (term, path.child(required).index(at)));
        let soft = affinity[kind].list(preferred).iter().enumerate();
        let soft = soft.map(|(at, term)| {
            let place = path.child(preferred).index(at).child("podAffinityTerm");
            (&term["podAffinityTerm"], place)
        });
        for (_, place) in hard.chain(soft).filter(|(term, _)| !term.has("labelSelector")) {
            let place = place.child("labelSelector");
            warnings.push(format!("{place}: a null labelSelector results in matching no pod"));
        }
    }
}

fn of_node_term(term: &Value, path: &Path, warnings: &mut Vec<String>) {
    for (at, requirement) in term.list("matchExpressions").iter().enumerate() {
        let key = requirement.text("key");
        if let Some((_, text)) = OLD_LABELS.iter().find(|(old, _)| *old == key) {
            let place = path.child("matchExpressions").index(at).child("key");
            warnings.push(format!("{place}: {key} is {text}"));
        }
    }
}

/// What is unusual about the template of a workload's pods, at a path of its object.
pub(crate) fn of_template(object: &Value, path: &[&str]) -> Vec<String> {
    let (mut template, mut place) = (object, Path::default());
    for step in path {
        template = &template[*step];
        place = place.child(step);
    }
    of_pod(&place, template)
}

/// What is unusual about a pod, or about a template of one.
pub(crate) fn of_pod(path: &Path, pod: &Value) -> Vec<String> {
    let (spec, place) = (&pod["spec"], path.child("spec"));
    let mut warnings = Vec::new();
    of_annotations(&pod["metadata"]["annotations"], path, &mut warnings);
    for (label, _) in spec.entries("nodeSelector") {
        if let Some((_, text)) = OLD_LABELS.iter().find(|(old, _)| old == label) {
            warnings.push(format!("{}: {text}", place.child("nodeSelector").key(label)));
        }
    }
    of_affinity(&spec["affinity"], &place.child("affinity"), &mut warnings);
    for (at, constraint) in spec.list("topologySpreadConstraints").iter().enumerate() {
        let place = place.child("topologySpreadConstraints").index(at);
        if !constraint.has("labelSelector") {
            let place = place.child("labelSelector");
            warnings.push(format!("{place}: a null labelSelector results in matching no pod"));
        }
    }
    for (at, volume) in spec.list("volumes").iter().enumerate() {
        for (old, text) in OLD_VOLUMES.iter().filter(|(old, _)| volume.has(old)) {
            // The API spells this one name otherwise than the message.
            let shown = if *old == "storageos" { "storageOS" } else { old };
            warnings.push(format!("{}: {text}", place.child("volumes").index(at).child(shown)));
        }
    }
    warnings.extend(files::overlaps(spec.list("volumes")));
    of_addresses(
        &spec["dnsConfig"],
        "nameservers",
        &place.child("dnsConfig"),
        &mut warnings,
    );
    for (at, alias) in spec.list("hostAliases").iter().enumerate() {
        let place = place.child("hostAliases").index(at).child("ip");
        warnings.extend(address::of_address(alias.text("ip"), &place));
    }
    repeated(spec, "hostAliases", "ip", &place, &mut warnings);
    for (at, secret) in spec.list("imagePullSecrets").iter().enumerate() {
        if secret.text("name").is_empty() {
            let place = place.child("imagePullSecrets").index(at).child("name");
            warnings.push(format!("{place}: invalid empty name \"\""));
        }
    }
    repeated(spec, "imagePullSecrets", "name", &place, &mut warnings);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for (at, container) in spec.list(list).iter().enumerate() {
            of_container(container, &place.child(list).index(at), &mut warnings);
        }
    }
    of_ports(spec, &place, &mut warnings);
    if spec.number("terminationGracePeriodSeconds") < 0 {
        let place = place.child("terminationGracePeriodSeconds");
        warnings.push(format!(
            "{place}: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    warnings
}

fn repeated(spec: &Value, list: &str, key: &str, path: &Path, warnings: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (at, item) in spec.list(list).iter().enumerate() {
        let value = item.text(key);
        if !seen.insert(value) && !value.is_empty() {
            let place = path.child(list).index(at).child(key);
            warnings.push(format!("{place}: duplicate {key} {value:?}"));
        }
    }
}

fn of_container(container: &Value, path: &Path, warnings: &mut Vec<String>) {
    for kind in ["limits", "requests"] {
        for resource in ["memory", "ephemeral-storage"] {
            let text = container["resources"][kind].text(resource);
            let fraction = text
                .parse::<schema::quantity::Quantity>()
                .is_ok_and(|quantity| quantity.milli_value() % 1000 != 0);
            if !text.is_empty() && fraction {
                let place = path.child("resources").child(kind).key(resource);
                warnings.push(format!(
                    "{place}: fractional byte value {text:?} is invalid, must be an integer"
                ));
            }
        }
    }
    let mut seen = BTreeSet::new();
    for (at, variable) in container.list("env").iter().enumerate() {
        let (name, value) = (variable.text("name"), variable.text("value"));
        let reference = format!("$({name})");
        let extends_it = value.contains(&reference) && value != reference && !variable.has("valueFrom");
        if !seen.insert(name) && !extends_it {
            let place = path.child("env").index(at);
            warnings.push(format!(
                "{place}: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
}

/// How many ports of a pod are compared, and how many pairs of them are told: each meets each at worst, and
/// nobody reads more.
const MAX_PORTS: usize = 1000;
const MAX_PORT_PAIRS: usize = 50;

fn of_ports(spec: &Value, path: &Path, warnings: &mut Vec<String>) {
    let mut ports: HashMap<(i64, &str), Vec<(&Value, Path)>> = HashMap::new();
    let mut names: HashMap<&str, Path> = HashMap::new();
    let (mut looked_at, mut pairs) = (0, 0);
    for list in ["initContainers", "containers"] {
        for (at, container) in spec.list(list).iter().enumerate() {
            for (index, port) in container.list("ports").iter().enumerate() {
                let place = path.child(list).index(at).child("ports").index(index);
                let same = ports
                    .entry((port.number("containerPort"), port.text("protocol")))
                    .or_default();
                for (other, there) in same.iter().filter(|_| looked_at < MAX_PORTS) {
                    if let Some(what) = port_overlap(port, other).filter(|_| pairs < MAX_PORT_PAIRS) {
                        pairs += 1;
                        warnings.push(format!("{place}: {what} with {there}"));
                    }
                }
                if !port.text("hostIP").is_empty() && port.number("hostPort") == 0 {
                    warnings.push(format!(
                        "{place}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                        port.text("name"),
                        port.number("containerPort"),
                        port.text("protocol"),
                        port.text("hostIP"),
                    ));
                }
                let name = port.text("name");
                match names.get(name).filter(|_| !name.is_empty()) {
                    Some(there) => warnings.push(format!(
                        "{place}: duplicate port name {name:?} with {there}, services and probes that select ports by \
                         name will use {there}"
                    )),
                    None => drop(names.insert(name, place.clone())),
                }
                if looked_at < MAX_PORTS {
                    looked_at += 1;
                    same.push((port, place));
                }
            }
        }
    }
}

fn port_overlap(port: &Value, other: &Value) -> Option<&'static str> {
    let (ip, other_ip) = (port.text("hostIP"), other.text("hostIP"));
    let (host, other_host) = (port.number("hostPort"), other.number("hostPort"));
    if ip == other_ip && host == other_host {
        return Some("duplicate port definition");
    }
    if host == 0 || other_host == 0 {
        return Some("overlapping port definition");
    }
    (host == other_host && ip.is_empty() != other_ip.is_empty()).then_some("dangerously ambiguous port definition")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(template: Value, expected: &[&str]) {
        let deployment = json!({ "kind": "Deployment", "spec": { "template": { "spec": template } } });
        assert_eq!(of_template(&deployment, &["spec", "template"]), expected);
    }

    #[test]
    fn a_variable_that_hides_another_is_told() {
        let env = |second: Value| json!({ "containers": [{ "env": [{ "name": "A", "value": "1" }, second] }] });
        let hidden = "spec.template.spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped \
                      when using apply";
        check(env(json!({ "name": "A", "value": "2" })), &[hidden]);
        check(env(json!({ "name": "A", "value": "$(A)" })), &[hidden]);
        check(env(json!({ "name": "A", "value": "$(A)2" })), &[]);
        check(env(json!({ "name": "B", "value": "2" })), &[]);
    }

    #[test]
    fn ports_that_meet_are_told() {
        check(
            json!({ "containers": [{ "ports": [
                { "containerPort": 80, "protocol": "TCP", "name": "a" },
                { "containerPort": 80, "protocol": "TCP", "name": "a" },
            ] }] }),
            &[
                "spec.template.spec.containers[0].ports[1]: duplicate port definition with \
                 spec.template.spec.containers[0].ports[0]",
                "spec.template.spec.containers[0].ports[1]: duplicate port name \"a\" with \
                 spec.template.spec.containers[0].ports[0], services and probes that select ports by name will use \
                 spec.template.spec.containers[0].ports[0]",
            ],
        );
    }

    #[test]
    fn volumes_of_another_time_are_told() {
        check(
            json!({ "volumes": [{ "name": "v", "gitRepo": { "repository": "r" } }], "containers": [] }),
            &["spec.template.spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+"],
        );
    }

    #[test]
    fn a_part_of_a_byte_is_told() {
        check(
            json!({ "containers": [{ "resources": { "limits": { "memory": "100m" } } }] }),
            &[
                "spec.template.spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, \
               must be an integer",
            ],
        );
    }
}
