//! MutatingAdmissionPolicyBinding: where a policy holds, and with which settings.

use super::mutating_admission_policy::validate_operations;
use super::validating_admission_policy_binding::{COLUMNS, cells, default_binding, validate_binding};
use crate::{Column, FieldError, Generation, Path, Resource, Rules, Value};

pub static MUTATING_ADMISSION_POLICY_BINDING: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicyBinding",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicybinding",
)
.in_categories(&["api-extensions"])
.requiring_revision()
.with_unqualified_finalizers()
.with_rules(&MutatingAdmissionPolicyBindingRules);

struct MutatingAdmissionPolicyBindingRules;

impl Rules for MutatingAdmissionPolicyBindingRules {
    fn default(&self, binding: &mut Value) {
        default_binding(binding);
    }

    fn validate(&self, binding: &Value) -> Vec<FieldError> {
        let mut problems = validate_binding(binding);
        let path = Path::new("spec").child("matchResources");
        validate_operations(&binding["spec"]["matchResources"], &path, &mut problems);
        problems.into_vec()
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
