//! PodSecurity: what pods of a namespace may do to their node, by the labels of the namespace.
//!
//! `checks` is the table of the standards, `standard` reads the labels. Pods that break the enforced standard are refused;
//! templates of pods only bring warnings, because their controller would be the one to fail.

mod checks;
mod find;
mod standard;
mod words;

use api::kinds::namespace::NAMESPACE;
use api::kinds::pod::POD;
use api::{Error, FieldError, Fields, Path, Resource, Value};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};
use standard::{Level, Mode, Policy, Standard};

pub struct PodSecurity;

/// The most pods of a namespace that are looked at when its standard becomes stricter.
const MAX_EXISTING_PODS: usize = 3000;

/// Kinds that make pods, and where they keep the pod.
const TEMPLATES: &[(&str, &str, &[&str])] = &[
    ("", "podtemplates", &["template"]),
    ("", "replicationcontrollers", &["spec", "template"]),
    ("apps", "daemonsets", &["spec", "template"]),
    ("apps", "deployments", &["spec", "template"]),
    ("apps", "replicasets", &["spec", "template"]),
    ("apps", "statefulsets", &["spec", "template"]),
    ("batch", "cronjobs", &["spec", "jobTemplate", "spec", "template"]),
    ("batch", "jobs", &["spec", "template"]),
];

#[async_trait]
impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        let plain = attributes.subresource.is_empty() || attributes.is(&POD, "ephemeralcontainers");
        writes
            && plain
            && (attributes.concerns(&POD)
                || attributes.concerns(&NAMESPACE)
                || template_path(attributes.resource).is_some())
    }

    async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        if attributes.concerns(&NAMESPACE) {
            return validate_namespace(attributes, lookup);
        }
        let Some(namespace) = lookup.get(&NAMESPACE, "", &attributes.namespace) else {
            return Ok(());
        };
        let (policy, _) = Policy::parse(&namespace);
        if attributes.concerns(&POD) {
            return validate_pod(&policy, attributes);
        }
        let mut pod = &attributes.object;
        for field in template_path(attributes.resource).unwrap_or_default() {
            pod = &pod[*field];
        }
        if pod.is_object() {
            remark(&policy, pod, attributes);
        }
        Ok(())
    }
}

fn template_path(resource: &Resource) -> Option<&'static [&'static str]> {
    let row = TEMPLATES
        .iter()
        .find(|(group, plural, _)| (*group, *plural) == (resource.group, resource.plural));
    row.map(|(_, _, path)| *path)
}

fn validate_pod(policy: &Policy, attributes: &Attributes) -> Result<(), Error> {
    let pod = &attributes.object;
    if attributes.operation == Operation::Update && !is_significant(pod, &attributes.old_object) {
        return Ok(());
    }
    let enforced = policy.standard(Mode::Enforce);
    attributes
        .remarks
        .annotate("pod-security.kubernetes.io/enforce-policy", enforced.to_string());
    let violations = checks::violations(enforced, pod);
    if !violations.is_empty() {
        return Err(attributes.forbidden(format!(
            "violates PodSecurity \"{enforced}\": {}",
            violations.join(", ")
        )));
    }
    remark(policy, pod, attributes);
    Ok(())
}

/// Tells of violations that do not refuse the request.
fn remark(policy: &Policy, pod: &Value, attributes: &Attributes) {
    let said = |standard: Standard| {
        let violations = checks::violations(standard, pod);
        (!violations.is_empty()).then(|| format!("would violate PodSecurity \"{standard}\": {}", violations.join(", ")))
    };
    if let Some(text) = said(policy.standard(Mode::Audit)) {
        attributes
            .remarks
            .annotate("pod-security.kubernetes.io/audit-violations", text);
    }
    if let Some(text) = said(policy.standard(Mode::Warn)) {
        attributes.remarks.warn(text);
    }
}

/// Updates that cannot change what a pod may do: other images, tolerations or deadlines.
fn is_significant(new: &Value, old: &Value) -> bool {
    let relevant = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in [
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
            "schedulingGates",
            "nodeName",
        ] {
            spec.remove(field);
        }
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            for container in spec.list_mut(list) {
                container.remove("image");
                container.remove("resources");
            }
        }
        let annotations: Vec<(String, Value)> = pod["metadata"]
            .entries("annotations")
            .filter(|(key, _)| key.starts_with("container.apparmor.") || key.contains("seccomp.security"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        (spec, annotations)
    };
    relevant(new) != relevant(old)
}

/// Labels must be valid, and a stricter standard tells which pods it would have refused.
fn validate_namespace(attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
    let (policy, problems) = Policy::parse(&attributes.object);
    let (old, old_problems) = match attributes.operation {
        Operation::Update => Policy::parse(&attributes.old_object),
        _ => (Policy::default(), Vec::new()),
    };
    if !problems.is_empty() && problems != old_problems {
        let path = Path::new("metadata").child("labels");
        let problems = problems
            .into_iter()
            .map(|(label, value, detail)| FieldError::invalid(&path.key(&label), value, detail));
        return Err(Error::invalid(
            attributes.resource,
            attributes.object_name(),
            problems.collect(),
        ));
    }
    let enforced = policy.standard(Mode::Enforce);
    let unchanged = enforced == old.standard(Mode::Enforce);
    if attributes.operation == Operation::Update && !unchanged && enforced.level != Level::Privileged {
        warn_of_existing(enforced, attributes, lookup);
    }
    Ok(())
}

fn warn_of_existing(enforced: Standard, attributes: &Attributes, lookup: &dyn Lookup) {
    let name = attributes.object_name();
    let pods = lookup.list(&POD, name);
    let mut found: Vec<(String, String)> = Vec::new();
    for pod in pods.iter().take(MAX_EXISTING_PODS) {
        let violations = checks::reasons(enforced, pod);
        if !violations.is_empty() {
            found.push((violations.join(", "), pod["metadata"].text("name").to_owned()));
        }
    }
    if found.is_empty() {
        return;
    }
    let intro = format!("existing pods in namespace {name:?} violate the new PodSecurity enforce level \"{enforced}\"");
    attributes.remarks.warn(intro);
    found.sort();
    let mut rest = found.as_slice();
    while let Some((violations, first)) = rest.first() {
        let same = rest.iter().take_while(|(other, _)| other == violations).count();
        let others = match same {
            1 => String::new(),
            2 => " (and 1 other pod)".to_owned(),
            many => format!(" (and {} other pods)", many - 1),
        };
        attributes.remarks.warn(format!("{first}{others}: {violations}"));
        rest = &rest[same..];
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod upstream_tests;
