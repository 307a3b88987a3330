//! ResourceClaimTemplate: a claim for each pod.

use super::resource_claim::default_claim_spec;
use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static RESOURCE_CLAIM_TEMPLATE: Resource = Resource::namespaced(
    "resource.k8s.io",
    "v1",
    "ResourceClaimTemplate",
    "resourceclaimtemplates",
    "resourceclaimtemplate",
)
.with_rules(&ResourceClaimTemplateRules);

struct ResourceClaimTemplateRules;

impl Rules for ResourceClaimTemplateRules {
    fn default(&self, template: &mut Value) {
        default_claim_spec(template.ensure("spec").ensure("spec"));
    }

    fn columns(&self) -> &'static [Column] {
        &[NAME, AGE]
    }

    fn cells(&self, template: &Value, now: i64) -> Vec<Value> {
        vec![print::name(template), print::age(template, now)]
    }
}
