//! MutatingAdmissionPolicy: rules that may change objects, in CEL.

use super::validating_admission_policy::{default_constraints, validate_policy};
use crate::expressions::{policy_environment, validate_expression};
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value};
use cel::Type;

pub static MUTATING_ADMISSION_POLICY: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicy",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicy",
)
.in_categories(&["api-extensions"])
.with_rules(&MutatingAdmissionPolicyRules);

struct MutatingAdmissionPolicyRules;

impl Rules for MutatingAdmissionPolicyRules {
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
        let environment = policy_environment(spec.has("paramKind")).with_structs();
        if spec.list("mutations").is_empty() {
            problems.required(&path, "mutations", "mutations must contain at least one item");
        }
        for (index, mutation) in spec.list("mutations").iter().enumerate() {
            let path = path.child("mutations").index(index);
            let field = match mutation.text("patchType") {
                "ApplyConfiguration" => "applyConfiguration",
                "JSONPatch" => "jsonPatch",
                _ => {
                    problems.one_of(mutation, &path, "patchType", &["ApplyConfiguration", "JSONPatch"]);
                    continue;
                }
            };
            let inner = &mutation[field];
            validate_expression(
                inner,
                &path.child(field),
                "expression",
                &environment,
                Type::Dyn,
                &mut problems,
            );
        }
        problems.one_of(spec, &path, "reinvocationPolicy", &["IfNeeded", "Never"]);
        problems.into_vec()
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
            spec.list("mutations").len().into(),
            parameters.into(),
            print::age(policy, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::integer("Mutations", "How many rules it has."),
    print::text("ParamKind", "The kind of object with its settings."),
    AGE,
];
