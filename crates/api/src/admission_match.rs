//! Which requests a webhook, a policy or a binding of one is for.

use std::collections::HashSet;

use crate::names::path_segment;
use crate::{FieldError, Fields, Path, Problems, Value, repeats, validate_label_selector};
use serde_json::json;

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// Fills in the parts that webhooks and policies have in common.
pub fn default_match(matcher: &mut Value) {
    matcher.fill_absent("matchPolicy", "Equivalent");
    matcher.fill_absent("namespaceSelector", json!({}));
    matcher.fill_absent("objectSelector", json!({}));
}

/// Fills in what a policy, or a binding of one, says of the objects it is for.
pub fn default_match_resources(resources: &mut Value) {
    default_match(resources);
    for list in ["resourceRules", "excludeResourceRules"] {
        default_rules(resources, list);
    }
}

pub fn default_rules(object: &mut Value, list: &str) {
    for rule in object.list_mut(list) {
        rule.fill_absent("scope", "*");
    }
}

/// What is wrong with the constraints of a policy, or of a binding of one.
pub fn validate_match_resources(resources: &Value, path: &Path, problems: &mut Problems) {
    problems.optional_one_of(resources, path, "matchPolicy", &["Equivalent", "Exact"]);
    for field in ["namespaceSelector", "objectSelector"] {
        problems.extend(validate_label_selector(&resources[field], &path.child(field)));
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (index, rule) in resources.list(list).iter().enumerate() {
            let path = path.child(list).index(index);
            validate_names(rule, &path.child("resourceNames"), problems);
            validate_rule(rule, &path, problems);
        }
    }
}

fn validate_names(rule: &Value, path: &Path, problems: &mut Problems) {
    let names: Vec<&str> = rule.list("resourceNames").iter().filter_map(Value::as_str).collect();
    let repeated = repeats(&names);
    for (index, name) in names.iter().enumerate() {
        problems.form(&path.index(index), "", *name, path_segment(name, false));
        if repeated[index] {
            problems.duplicate(&path.index(index), "", *name);
        }
    }
}

/// What is wrong with a rule: the operations and the resources that it is about.
pub fn validate_rule(rule: &Value, path: &Path, problems: &mut Problems) {
    for (field, others) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let values = rule.list(field);
        if values.is_empty() {
            problems.required(path, field, "");
        }
        if values.len() > 1 && values.iter().any(|value| value == "*") {
            let detail = format!("if '*' is present, must not specify other {others}");
            problems.invalid(path, field, values.to_vec(), detail);
        }
    }
    for (index, operation) in rule.list("operations").iter().filter_map(Value::as_str).enumerate() {
        if !OPERATIONS.contains(&operation) {
            let place = path.child("operations").index(index);
            problems.extend([FieldError::not_supported(&place, operation, &OPERATIONS)]);
        }
    }
    for (index, _) in empty_texts(rule.list("apiVersions")) {
        problems.required(&path.child("apiVersions").index(index), "", "");
    }
    validate_resources(rule.list("resources"), &path.child("resources"), problems);
    problems.optional_one_of(rule, path, "scope", &SCOPES);
}

fn empty_texts(values: &[Value]) -> impl Iterator<Item = (usize, &Value)> {
    values.iter().enumerate().filter(|(_, value)| *value == "")
}

/// A wildcard says it all, so that beside it nothing else makes sense.
fn validate_resources(resources: &[Value], path: &Path, problems: &mut Problems) {
    if resources.is_empty() {
        problems.required(path, "", "");
    }
    let names: Vec<&str> = resources.iter().filter_map(Value::as_str).collect();
    let (mut whole, mut parts) = (HashSet::new(), HashSet::new());
    for (index, name) in names.iter().enumerate() {
        let place = path.index(index);
        if name.is_empty() {
            problems.required(&place, "", "");
        }
        let Some((resource, part)) = name.split_once('/').filter(|_| *name != "*/*") else {
            continue;
        };
        if whole.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            problems.invalid(&place, "", *name, detail);
        }
        if parts.contains(part) {
            problems.invalid(
                &place,
                "",
                *name,
                format!("if '*/{part}' is present, must not specify {name}"),
            );
        }
        if part == "*" {
            whole.insert(resource);
        }
        if resource == "*" {
            parts.insert(part);
        }
    }
    if names.len() > 1 && names.contains(&"*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        problems.invalid(path, "", resources.to_vec(), detail);
    }
    let plain = |name: &&str| !name.is_empty() && !name.contains('/') && *name != "*";
    if names.contains(&"*") && names.iter().any(plain) {
        let detail = "if '*' is present, must not specify other resources without subresources";
        problems.invalid(path, "", resources.to_vec(), detail);
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(rule: Value, expect: Expect) {
        let mut problems = Problems::default();
        validate_rule(&rule, &Path::new("r"), &mut problems);
        let found: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    fn rule(resources: Value) -> Value {
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources})
    }

    #[test]
    fn a_rule_names_operations_groups_versions_and_resources() {
        check(rule(json!(["pods", "pods/status"])), expect![""]);
        check(
            json!({"scope": "Odd"}),
            expect![[r#"
                r.operations: Required value
                r.apiGroups: Required value
                r.apiVersions: Required value
                r.resources: Required value
                r.scope: Unsupported value: "Odd": supported values: "*", "Cluster", "Namespaced""#]],
        );
    }

    #[test]
    fn beside_a_wildcard_nothing_else_makes_sense() {
        check(
            rule(json!(["pods/*", "pods/status", "*", "nodes"])),
            expect![[r#"
                r.resources[1]: Invalid value: "pods/status": if 'pods/*' is present, must not specify pods/status
                r.resources: Invalid value: ["pods/*","pods/status","*","nodes"]: if '*' is present, must not specify other resources without subresources"#]],
        );
        check(
            rule(json!(["*/*", "pods"])),
            expect![[
                r#"r.resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources"#
            ]],
        );
    }

    #[test]
    fn names_of_objects_are_given_once() {
        let mut problems = Problems::default();
        let constraints = json!({"resourceRules": [{
            "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
            "resourceNames": ["a", "a", "b/c"],
        }]});
        validate_match_resources(&constraints, &Path::new("m"), &mut problems);
        let found: Vec<String> = problems.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                r#"m.resourceRules[0].resourceNames[1]: Duplicate value: "a""#,
                r#"m.resourceRules[0].resourceNames[2]: Invalid value: "b/c": may not contain '/'"#,
            ]
        );
    }
}
