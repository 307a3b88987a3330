//! ValidatingAdmissionPolicy: rules that may refuse objects, in CEL.

use crate::admission_match::{default_match_resources, validate_match_resources};
use crate::expressions::{
    admission_environment, expression_is_there, policy_environment, validate_conditions, validate_expression,
};
use crate::names::{dns1035_label, dns1123_subdomain, label_key};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value, repeats};
use cel::{Environment, Type};
use serde_json::json;

pub static VALIDATING_ADMISSION_POLICY: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    "validatingadmissionpolicy",
)
.in_categories(&["api-extensions"])
.with_subresources(&[Subresource::STATUS])
.requiring_revision()
.with_unqualified_finalizers()
.resetting_on_status_update(&[&["spec"], &["metadata"]])
.with_rules(&ValidatingAdmissionPolicyRules);

struct ValidatingAdmissionPolicyRules;

impl Rules for ValidatingAdmissionPolicyRules {
    fn default(&self, policy: &mut Value) {
        let spec = policy.ensure("spec");
        default_policy(spec);
    }

    fn validate(&self, policy: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &policy["spec"];
        let path = Path::new("spec");
        validate_policy(spec, &path, &mut problems);
        if spec.list("validations").is_empty() && spec.list("auditAnnotations").is_empty() {
            let detail = "validations or auditAnnotations must contain at least one item";
            problems.required(&path, "validations", detail);
            problems.required(&path, "auditAnnotations", detail);
        }
        let environment = policy_environment(spec.has("paramKind"));
        for (index, validation) in spec.list("validations").iter().enumerate() {
            let path = path.child("validations").index(index);
            validate_validation(validation, &path, &environment, &mut problems);
        }
        let name = policy["metadata"].text("name");
        validate_annotations(name, spec, &path.child("auditAnnotations"), &environment, &mut problems);
        problems.into_vec()
    }

    fn prepare_create(&self, policy: &mut Value) {
        policy.set("status", json!({}));
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, policy: &Value, now: i64) -> Vec<Value> {
        let spec = &policy["spec"];
        let kind = &spec["paramKind"];
        let parameters = match kind.is_object() {
            true => format!("{}/{}", kind.text("apiVersion"), kind.text("kind")),
            false => "<unset>".to_owned(),
        };
        vec![
            print::name(policy),
            spec.list("validations").len().into(),
            parameters.into(),
            print::age(policy, now),
        ]
    }
}

/// The defaults of both kinds of policies.
pub(super) fn default_policy(spec: &mut Value) {
    spec.fill_absent("failurePolicy", "Fail");
    if let Some(constraints) = spec.child_mut("matchConstraints") {
        default_match_resources(constraints);
    }
}

/// What both kinds of policies have: constraints, conditions, parameters and variables.
pub(super) fn validate_policy(spec: &Value, path: &Path, problems: &mut Problems) {
    problems.optional_one_of(spec, path, "failurePolicy", &["Fail", "Ignore"]);
    let constraints = &spec["matchConstraints"];
    if constraints.is_object() {
        let path = path.child("matchConstraints");
        validate_match_resources(constraints, &path, problems);
        if constraints.list("resourceRules").is_empty() {
            problems.required(&path, "resourceRules", "");
        }
    } else {
        problems.required(path, "matchConstraints", "");
    }
    let kind = &spec["paramKind"];
    if kind.is_object() {
        validate_param_kind(kind, &path.child("paramKind"), problems);
    }
    let conditions = spec.list("matchConditions");
    let environment = admission_environment(kind.is_object());
    validate_conditions(conditions, &path.child("matchConditions"), &environment, problems);
    let environment = policy_environment(kind.is_object());
    for (index, variable) in spec.list("variables").iter().enumerate() {
        validate_variable(variable, &path.child("variables").index(index), &environment, problems);
    }
}

fn validate_variable(variable: &Value, path: &Path, environment: &Environment, problems: &mut Problems) {
    let name = variable.text("name");
    if name.trim().is_empty() {
        problems.required(path, "name", "name is not specified");
    } else if !is_identifier(name) {
        problems.invalid(path, "name", name, "must be a valid CEL identifier");
    }
    if expression_is_there(variable, path, "expression", "expression is not specified", problems) {
        validate_expression(variable, path, "expression", environment, &[], problems);
    }
}

/// The name of a variable, without the words that the language keeps for itself.
fn is_identifier(name: &str) -> bool {
    let usual = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let kept = ["true", "false", "null", "in"];
    starts && name.bytes().all(usual) && !kept.contains(&name) && !cel::RESERVED.contains(&name)
}

fn validate_param_kind(kind: &Value, path: &Path, problems: &mut Problems) {
    if problems.needs(kind, path, "apiVersion") {
        let text = kind.text("apiVersion");
        let (group, version) = text.split_once('/').unwrap_or(("", text));
        if version.contains('/') {
            let detail = format!("unexpected GroupVersion string: {text}");
            problems.invalid(path, "apiVersion", text, detail);
        } else {
            let of_group = dns1123_subdomain(group, false).join(",");
            if !group.is_empty() && !of_group.is_empty() {
                problems.invalid(path, "apiVersion", group, of_group);
            }
            let of_version = dns1035_label(version, false).join(",");
            if version.is_empty() {
                problems.invalid(path, "apiVersion", text, "version must be specified");
            } else if !of_version.is_empty() {
                problems.invalid(path, "apiVersion", version, of_version);
            }
        }
    }
    if problems.needs(kind, path, "kind") {
        let name = kind.text("kind");
        let found = dns1035_label(&name.to_lowercase(), false).join(",");
        if !found.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {found}");
            problems.invalid(path, "kind", name, detail);
        }
    }
}

fn validate_validation(validation: &Value, path: &Path, environment: &Environment, problems: &mut Problems) {
    if expression_is_there(validation, path, "expression", "expression is not specified", problems) {
        validate_expression(validation, path, "expression", environment, &[Type::Bool], problems);
    }
    let expression = validation.text("messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "must be non-empty if specified";
        problems.invalid(path, "messageExpression", expression, detail);
    } else if !expression.is_empty() {
        let wanted = [Type::String];
        validate_expression(validation, path, "messageExpression", environment, &wanted, problems);
    }
    let message = validation.text("message");
    if !message.is_empty() && message.trim().is_empty() {
        problems.invalid(path, "message", message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        problems.invalid(path, "message", message, "must not contain line breaks");
    }
    let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    problems.optional_one_of(validation, path, "reason", &reasons);
}

/// The most annotations that a policy may make.
const MAX_ANNOTATIONS: usize = 20;
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

/// An annotation's key becomes that of an audit event together with the name of the policy.
fn validate_annotations(name: &str, spec: &Value, path: &Path, environment: &Environment, problems: &mut Problems) {
    let annotations = spec.list("auditAnnotations");
    if annotations.len() > MAX_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        problems.invalid(path, "", annotations.to_vec(), detail);
    }
    let repeated = repeats(annotations.iter().map(|annotation| annotation.text("key")));
    for (index, annotation) in annotations.iter().enumerate() {
        let path = path.index(index);
        let key = annotation.text("key");
        if name.is_empty() {
            problems.invalid(&path, "key", key, "requires metadata.name be non-empty");
        } else {
            let whole = format!("{name}/{key}");
            problems.form(&path, "key", whole.as_str(), label_key(&whole));
        }
        if repeated[index] {
            problems.duplicate(&path, "key", key);
        }
        let missing = "valueExpression is not specified";
        if !expression_is_there(annotation, &path, "valueExpression", missing, problems) {
            continue;
        }
        if annotation.text("valueExpression").trim().len() > MAX_ANNOTATION_BYTES {
            let detail = format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length");
            problems.required(&path, "valueExpression", &detail);
            continue;
        }
        let wanted = [Type::String, Type::Null];
        validate_expression(annotation, &path, "valueExpression", environment, &wanted, problems);
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Validations", "How many rules it has."),
    print::text("ParamKind", "The kind of object with its settings."),
    AGE,
];

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(spec: Value, expect: Expect) {
        let policy = json!({"metadata": {"name": "p"}, "spec": spec});
        let found = ValidatingAdmissionPolicyRules.validate(&policy);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect.assert_eq(&found.join("\n"));
    }

    fn constraints() -> Value {
        json!({"resourceRules": [{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
        }]})
    }

    #[test]
    fn a_policy_says_what_it_is_for_and_what_it_wants() {
        check(
            json!({"failurePolicy": ""}),
            expect![[r#"
                spec.failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore"
                spec.matchConstraints: Required value
                spec.validations: Required value: validations or auditAnnotations must contain at least one item
                spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item"#]],
        );
        check(
            json!({"matchConstraints": {}, "validations": [{"expression": "true"}]}),
            expect!["spec.matchConstraints.resourceRules: Required value"],
        );
    }

    #[test]
    fn validations_have_an_expression_and_one_of_three_reasons() {
        check(
            json!({
                "matchConstraints": constraints(),
                "validations": [
                    {"expression": " "},
                    {"expression": "'x'", "messageExpression": " ", "message": "two\nlines", "reason": "Unauthorized"},
                ],
            }),
            expect![[r#"
                spec.validations[0].expression: Required value: expression is not specified
                spec.validations[1].expression: Invalid value: "'x'": must evaluate to bool but got string
                spec.validations[1].messageExpression: Invalid value: " ": must be non-empty if specified
                spec.validations[1].message: Invalid value: "two\nlines": must not contain line breaks
                spec.validations[1].reason: Unsupported value: "Unauthorized": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge""#]],
        );
    }

    #[test]
    fn variables_are_identifiers_and_annotations_unique_keys() {
        check(
            json!({
                "matchConstraints": constraints(),
                "variables": [{"name": "in", "expression": "1"}, {"name": "_a1", "expression": "1"}],
                "auditAnnotations": [
                    {"key": "k", "valueExpression": "null"},
                    {"key": "k", "valueExpression": "''"},
                ],
            }),
            expect![[r#"
                spec.variables[0].name: Invalid value: "in": must be a valid CEL identifier
                spec.auditAnnotations[1].key: Duplicate value: "k""#]],
        );
    }

    #[test]
    fn parameters_have_a_kind_of_some_version() {
        check(
            json!({
                "matchConstraints": constraints(), "validations": [{"expression": "true"}],
                "paramKind": {"apiVersion": "example.com/", "kind": "A B"},
            }),
            expect![[r#"
                spec.paramKind.apiVersion: Invalid value: "example.com/": version must be specified
                spec.paramKind.kind: Invalid value: "A B": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"#]],
        );
    }
}
