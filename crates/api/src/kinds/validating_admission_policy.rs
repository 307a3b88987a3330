//! ValidatingAdmissionPolicy: rules that may refuse objects, in CEL.

use super::mutating_webhook_configuration::default_match;
use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};
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
