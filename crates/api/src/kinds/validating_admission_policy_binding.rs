//! ValidatingAdmissionPolicyBinding: where a policy holds, and with which settings.

use super::validating_admission_policy::default_constraints;
use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};

pub static VALIDATING_ADMISSION_POLICY_BINDING: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicybinding",
)
.in_categories(&["api-extensions"])
.with_rules(&ValidatingAdmissionPolicyBindingRules);

struct ValidatingAdmissionPolicyBindingRules;

impl Rules for ValidatingAdmissionPolicyBindingRules {
    fn default(&self, binding: &mut Value) {
        default_binding(binding);
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, binding: &Value, now: i64) -> Vec<Value> {
        cells(binding, now)
    }
}

pub(super) fn default_binding(binding: &mut Value) {
    if let Some(resources) = binding
        .child_mut("spec")
        .and_then(|spec| spec.child_mut("matchResources"))
    {
        default_constraints(resources);
    }
}

pub(super) fn cells(binding: &Value, now: i64) -> Vec<Value> {
    let spec = &binding["spec"];
    let reference = &spec["paramRef"];
    let parameters = match (reference.text("namespace"), reference.text("name")) {
        (_, "") if reference.has("selector") => print::selector(&reference["selector"]),
        (_, "") => "<unset>".into(),
        ("", name) => format!("*/{name}").into(),
        (namespace, name) => format!("{namespace}/{name}").into(),
    };
    vec![
        print::name(binding),
        spec.text("policyName").into(),
        parameters,
        print::age(binding, now),
    ]
}

pub(super) const COLUMNS: &[Column] = &[
    NAME,
    print::text("PolicyName", "The policy."),
    print::text("ParamRef", "The object with its settings."),
    AGE,
];
