//! ValidatingAdmissionPolicy: rules that may refuse objects, in CEL.

use super::mutating_webhook_configuration::default_match;
use crate::expressions::{admission_environment, policy_environment, validate_conditions, validate_expression};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value};
use cel::Type;
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
.with_rules(&ValidatingAdmissionPolicyRules);

struct ValidatingAdmissionPolicyRules;

impl Rules for ValidatingAdmissionPolicyRules {
    fn default(&self, policy: &mut Value) {
        let spec = policy.ensure("spec");
        spec.fill("failurePolicy", "Fail");
        if let Some(constraints) = spec.child_mut("matchConstraints") {
            default_constraints(constraints);
        }
    }

    fn validate(&self, policy: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &policy["spec"];
        let path = Path::new("spec");
        validate_policy(spec, &path, &mut problems);
        let environment = policy_environment(spec.has("paramKind"));
        if spec.list("validations").is_empty() && spec.list("auditAnnotations").is_empty() {
            problems.required(
                &path,
                "validations",
                "validations or auditAnnotations must contain at least one item",
            );
        }
        for (index, validation) in spec.list("validations").iter().enumerate() {
            let path = path.child("validations").index(index);
            validate_expression(validation, &path, "expression", &environment, Type::Bool, &mut problems);
            if !validation.text("messageExpression").is_empty() {
                validate_expression(
                    validation,
                    &path,
                    "messageExpression",
                    &environment,
                    Type::String,
                    &mut problems,
                );
            }
            let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];
            problems.optional_one_of(validation, &path, "reason", &reasons);
        }
        for (index, annotation) in spec.list("auditAnnotations").iter().enumerate() {
            let path = path.child("auditAnnotations").index(index);
            problems.needs(annotation, &path, "key");
            validate_expression(
                annotation,
                &path,
                "valueExpression",
                &environment,
                Type::Dyn,
                &mut problems,
            );
        }
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

/// What both kinds of policies have: constraints, conditions, parameters and variables.
pub(super) fn validate_policy(spec: &Value, path: &Path, problems: &mut Problems) {
    problems.optional_one_of(spec, path, "failurePolicy", &["Fail", "Ignore"]);
    if spec["matchConstraints"].list("resourceRules").is_empty() {
        problems.required(&path.child("matchConstraints"), "resourceRules", "");
    }
    let kind = &spec["paramKind"];
    if kind.is_object() {
        problems.needs(kind, &path.child("paramKind"), "apiVersion");
        problems.needs(kind, &path.child("paramKind"), "kind");
    }
    let conditions = spec.list("matchConditions");
    let environment = admission_environment(kind.is_object());
    validate_conditions(conditions, &path.child("matchConditions"), &environment, problems);
    let environment = policy_environment(kind.is_object());
    for (index, variable) in spec.list("variables").iter().enumerate() {
        let path = path.child("variables").index(index);
        problems.needs(variable, &path, "name");
        validate_expression(variable, &path, "expression", &environment, Type::Dyn, problems);
    }
}

/// Which requests a policy or a binding of one is for.
pub(super) fn default_constraints(constraints: &mut Value) {
    default_match(constraints);
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in constraints.list_mut(list) {
            rule.fill("scope", "*");
        }
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Validations", "How many rules it has."),
    print::text("ParamKind", "The kind of object with its settings."),
    AGE,
];
