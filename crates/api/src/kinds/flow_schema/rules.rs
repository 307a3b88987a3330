//! Which requests a schema is about.

use crate::names::dns1123_label;
use crate::{FieldError, Fields, Path, Problems, Value};

const KINDS: [&str; 3] = ["Group", "ServiceAccount", "User"];

pub fn validate(rule: &Value, path: &Path, problems: &mut Problems) {
    if rule.list("subjects").is_empty() {
        problems.required(path, "subjects", "subjects must contain at least one value");
    }
    for (index, subject) in rule.list("subjects").iter().enumerate() {
        validate_subject(subject, &path.child("subjects").index(index), problems);
    }
    if rule.list("resourceRules").is_empty() && rule.list("nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        problems.required(path, "", detail);
    }
    for (index, resources) in rule.list("resourceRules").iter().enumerate() {
        validate_resources(resources, &path.child("resourceRules").index(index), problems);
    }
    for (index, urls) in rule.list("nonResourceRules").iter().enumerate() {
        let path = path.child("nonResourceRules").index(index);
        validate_verbs(urls, &path, problems);
        if urls.list("nonResourceURLs").is_empty() {
            let detail = "nonResourceURLs must contain at least one value";
            problems.required(&path, "nonResourceURLs", detail);
        }
    }
}

fn validate_subject(subject: &Value, path: &Path, problems: &mut Problems) {
    let kind = subject.text("kind");
    if !KINDS.contains(&kind) {
        return problems.extend([FieldError::not_supported(&path.child("kind"), kind, &KINDS)]);
    }
    for (other, field, shown) in [
        ("ServiceAccount", "serviceAccount", "serviceAccount"),
        ("User", "user", "user"),
        ("Group", "group", "group"),
    ] {
        if other != kind && subject.has(field) {
            let detail = format!("{shown} is forbidden when subject kind is not '{other}'");
            problems.forbidden(path, field, detail);
        }
        if other == kind && !subject.has(field) {
            let detail = format!("{shown} is required when subject kind is '{other}'");
            problems.required(path, field, &detail);
        }
        if other == kind && subject.has(field) {
            problems.needs(&subject[field], &path.child(field), "name");
        }
    }
    let account = &subject["serviceAccount"];
    if kind == "ServiceAccount" && account.is_object() && account.text("namespace").is_empty() {
        let place = path.child("serviceAccount");
        problems.required(&place, "namespace", "must specify namespace for service account");
    }
}

fn validate_resources(rule: &Value, path: &Path, problems: &mut Problems) {
    validate_verbs(rule, path, problems);
    for (field, detail) in [
        ("apiGroups", "resource rules must supply at least one api group"),
        ("resources", "resource rules must supply at least one resource"),
    ] {
        if rule.list(field).is_empty() {
            problems.required(path, field, detail);
        }
    }
    if rule.list("namespaces").is_empty() && !rule.flag("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        problems.required(path, "namespaces", detail);
    }
    for (index, name) in rule.list("namespaces").iter().filter_map(Value::as_str).enumerate() {
        for problem in dns1123_label(name, false).into_iter().filter(|_| name != "*") {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            problems.invalid(&path.child("namespaces").index(index), "", name, detail);
        }
    }
}

fn validate_verbs(rule: &Value, path: &Path, problems: &mut Problems) {
    if rule.list("verbs").is_empty() {
        problems.required(path, "verbs", "verbs must contain at least one value");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_subject_is_what_its_kind_says() {
        let found = |subject: Value| {
            let mut problems = Problems::default();
            validate_subject(&subject, &Path::new("s"), &mut problems);
            problems.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(found(json!({"kind": "User", "user": {"name": "u"}})).is_empty());
        assert_eq!(
            found(json!({"kind": "User"})),
            ["s.user: Required value: user is required when subject kind is 'User'"]
        );
        assert_eq!(
            found(json!({"kind": "ServiceAccount", "serviceAccount": {"name": "s"}})),
            ["s.serviceAccount.namespace: Required value: must specify namespace for service account"]
        );
    }
}
