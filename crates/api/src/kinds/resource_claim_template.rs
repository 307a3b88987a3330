//! ResourceClaimTemplate: a claim for each pod.

use super::resource_claim::default_claim_spec;
use crate::devices::validate_claim;
use crate::metadata::validate_template_metadata;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static RESOURCE_CLAIM_TEMPLATE: Resource = Resource::namespaced(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    "resourceclaimtemplate",
)
.returning_deleted()
.with_rules(&ResourceClaimTemplateRules);

struct ResourceClaimTemplateRules;

impl Rules for ResourceClaimTemplateRules {
    fn default(&self, template: &mut Value) {
        default_claim_spec(template.ensure("spec").ensure("spec"));
    }

    fn validate(&self, template: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let metadata = Path::new("spec").child("metadata");
        problems.extend(validate_template_metadata(&template["spec"]["metadata"], &metadata));
        let path = Path::new("spec").child("spec").child("devices");
        validate_claim(&template["spec"]["spec"]["devices"], &path, &mut problems);
        problems.into_vec()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable(new, old, &Path::default(), "spec");
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        &[NAME, AGE]
    }

    fn cells(&self, template: &Value, now: i64) -> Vec<Value> {
        vec![print::name(template), print::age(template, now)]
    }
}
