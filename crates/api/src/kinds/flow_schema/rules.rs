//! Which requests a schema is about.

use crate::names::{dns1123_label, dns1123_subdomain};
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
        validate_urls(urls, &path, problems);
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
    if kind == "ServiceAccount" && subject["serviceAccount"].is_object() {
        validate_account(&subject["serviceAccount"], &path.child("serviceAccount"), problems);
    }
}

fn validate_account(account: &Value, path: &Path, problems: &mut Problems) {
    let name = account.text("name");
    if !matches!(name, "" | "*") {
        problems.form(path, "name", name, dns1123_subdomain(name, false));
    }
    match account.text("namespace") {
        "" => problems.required(path, "namespace", "must specify namespace for service account"),
        namespace => problems.form(path, "namespace", namespace, dns1123_label(namespace, false)),
    }
}

fn validate_resources(rule: &Value, path: &Path, problems: &mut Problems) {
    validate_verbs(rule, path, problems);
    for (field, detail, others) in [
        (
            "apiGroups",
            "resource rules must supply at least one api group",
            "api groups",
        ),
        (
            "resources",
            "resource rules must supply at least one resource",
            "resources",
        ),
    ] {
        if rule.list(field).is_empty() {
            problems.required(path, field, detail);
        }
        validate_wildcard(rule, path, field, others, problems);
    }
    validate_wildcard(rule, path, "namespaces", "namespaces", problems);
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

const VERBS: [&str; 9] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
];

fn validate_verbs(rule: &Value, path: &Path, problems: &mut Problems) {
    let verbs = rule.list("verbs");
    let is_known = |verb: &Value| verb.as_str().is_some_and(|verb| VERBS.contains(&verb));
    if verbs.is_empty() {
        problems.required(path, "verbs", "verbs must contain at least one value");
    } else if verbs.iter().any(|verb| verb == "*") {
        validate_wildcard(rule, path, "verbs", "verbs", problems);
    } else if !verbs.iter().all(is_known) {
        let place = path.child("verbs");
        problems.extend([FieldError::not_supported(&place, verbs.to_vec(), &VERBS)]);
    }
}

fn validate_urls(rule: &Value, path: &Path, problems: &mut Problems) {
    let urls = rule.list("nonResourceURLs");
    if urls.is_empty() {
        let detail = "nonResourceURLs must contain at least one value";
        problems.required(path, "nonResourceURLs", detail);
    } else if urls.iter().any(|url| url == "*") {
        validate_wildcard(rule, path, "nonResourceURLs", "non-resource URLs", problems);
    } else {
        for (index, url) in urls.iter().filter_map(Value::as_str).enumerate() {
            if let Some(detail) = wrong_url(url) {
                problems.invalid(&path.child("nonResourceURLs").index(index), "", url, detail);
            }
        }
    }
}

/// Everything below a path may be meant, but nothing else with a wildcard.
fn wrong_url(url: &str) -> Option<&'static str> {
    let below = url.strip_suffix("/*").unwrap_or(url);
    [
        (url.is_empty(), "must not be empty"),
        (!url.starts_with('/'), "must start with slash"),
        (url.contains(' '), "must not contain white-space"),
        (url.contains("//"), "must not contain double slash"),
        (below.contains('*'), "wildcard can only do suffix matching"),
    ]
    .into_iter()
    .find_map(|(wrong, detail)| wrong.then_some(detail))
}

/// Whoever says all says nothing beside it.
fn validate_wildcard(rule: &Value, path: &Path, field: &str, others: &str, problems: &mut Problems) {
    let values = rule.list(field);
    if values.len() > 1 && values.iter().any(|value| value == "*") {
        let detail = format!("if '*' is present, must not specify other {others}");
        problems.invalid(path, field, values.to_vec(), detail);
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

    #[test]
    fn wildcards_stand_alone_and_paths_are_absolute() {
        let found = |rule: Value| {
            let mut problems = Problems::default();
            validate_urls(&rule, &Path::new("r"), &mut problems);
            validate_verbs(&rule, &Path::new("r"), &mut problems);
            problems.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(found(json!({"nonResourceURLs": ["/x/*"], "verbs": ["*"]})).is_empty());
        assert_eq!(
            found(json!({"nonResourceURLs": ["x", "/a*b", "/a//b"], "verbs": ["get"]})),
            [
                r#"r.nonResourceURLs[0]: Invalid value: "x": must start with slash"#,
                r#"r.nonResourceURLs[1]: Invalid value: "/a*b": wildcard can only do suffix matching"#,
                r#"r.nonResourceURLs[2]: Invalid value: "/a//b": must not contain double slash"#,
            ]
        );
        assert_eq!(
            found(json!({"nonResourceURLs": ["*", "/x"], "verbs": ["fetch"]})),
            [
                r#"r.nonResourceURLs: Invalid value: ["*","/x"]: if '*' is present, must not specify other non-resource URLs"#,
                r#"r.verbs: Unsupported value: ["fetch"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch""#,
            ]
        );
    }
}
