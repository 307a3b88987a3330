//! Labels and taints that a node registers with, as flags give them.

use std::collections::BTreeMap;

use api::names;
use serde_json::{Value, json};

const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// Labels of Kubernetes that a node may give itself; others are administrators' alone.
const KUBELET_LABELS: &[&str] = &[
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const KUBELET_NAMESPACES: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    #[error("--node-labels {label}: {problem}")]
    Label { label: String, problem: String },
    #[error(
        "--node-labels {0}: a node must not set this kubernetes.io or k8s.io label on itself; allowed are labels with the prefixes kubelet.kubernetes.io and node.kubernetes.io and the well-known labels of regions, zones, instance types, hostname, OS and architecture"
    )]
    ForbiddenLabel(String),
    #[error("--register-with-taints {taint}: {problem}")]
    Taint { taint: String, problem: String },
}

pub fn labels(given: &[String]) -> Result<BTreeMap<String, String>, RegistrationError> {
    let mut labels = BTreeMap::new();
    for label in given.iter().filter(|label| !label.is_empty()) {
        let wrong = |problem: String| RegistrationError::Label {
            label: label.clone(),
            problem,
        };
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        let problems = names::label_key(key).into_iter().chain(names::label_value(value));
        if let Some(problem) = problems.into_iter().next() {
            return Err(wrong(problem));
        }
        if !is_allowed(key) {
            return Err(RegistrationError::ForbiddenLabel(label.clone()));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

fn is_allowed(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else {
        return true;
    };
    let is_in = |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
    let is_kubernetes = is_in("kubernetes.io") || is_in("k8s.io");
    !is_kubernetes || KUBELET_LABELS.contains(&key) || KUBELET_NAMESPACES.iter().any(|allowed| is_in(allowed))
}

/// Taints as `spec.taints` has them.
pub fn taints(given: &[String]) -> Result<Vec<Value>, RegistrationError> {
    let taint = |text: &String| {
        let wrong = |problem: &str| RegistrationError::Taint {
            taint: text.clone(),
            problem: problem.to_owned(),
        };
        let (left, effect) = text.rsplit_once(':').ok_or_else(|| wrong("must be key=value:effect"))?;
        let (key, value) = left.split_once('=').unwrap_or((left, ""));
        let problems = names::label_key(key).into_iter().chain(names::label_value(value));
        if let Some(problem) = problems.into_iter().next() {
            return Err(wrong(&problem));
        }
        if !EFFECTS.contains(&effect) {
            return Err(wrong("the effect must be NoSchedule, PreferNoSchedule or NoExecute"));
        }
        let mut taint = json!({"key": key, "effect": effect});
        if !value.is_empty() {
            taint["value"] = json!(value);
        }
        Ok(taint)
    };
    given.iter().filter(|text| !text.is_empty()).map(taint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gives_itself_only_labels_that_are_its_own() {
        let read = |text: &str| labels(&[text.to_owned()]);
        assert_eq!(read("a.example/b=c").unwrap()["a.example/b"], "c");
        assert_eq!(read("topology.kubernetes.io/zone=z").unwrap().len(), 1);
        assert_eq!(read("x.node.kubernetes.io/y=z").unwrap().len(), 1);
        for forbidden in [
            "node-role.kubernetes.io/control-plane=",
            "a.k8s.io/b=c",
            "kubernetes.io/x=y",
        ] {
            assert_eq!(
                read(forbidden),
                Err(RegistrationError::ForbiddenLabel(forbidden.to_owned()))
            );
        }
        assert!(matches!(read("a b=c"), Err(RegistrationError::Label { .. })));
        assert!(matches!(read("a=b c"), Err(RegistrationError::Label { .. })));
    }

    #[test]
    fn taints_are_read_as_kubectl_writes_them() {
        let read = |text: &str| taints(&[text.to_owned()]);
        assert_eq!(
            read("a=b:NoSchedule").unwrap(),
            [json!({"key": "a", "value": "b", "effect": "NoSchedule"})]
        );
        assert_eq!(
            read("a:NoExecute").unwrap(),
            [json!({"key": "a", "effect": "NoExecute"})]
        );
        for bad in ["a=b", "a=b:Never", "=b:NoSchedule", "a b:NoSchedule"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
