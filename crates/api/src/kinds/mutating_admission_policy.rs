//! MutatingAdmissionPolicy: rules that may change objects, in CEL.

use super::validating_admission_policy::default_constraints;
use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};

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
