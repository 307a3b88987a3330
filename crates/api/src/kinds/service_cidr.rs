//! ServiceCIDR: a range of addresses for services.

use crate::names::cidr;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static SERVICE_CIDR: Resource =
    Resource::cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "servicecidr")
        .with_subresources(&[Subresource::STATUS])
        .with_rules(&ServiceCidrRules);

struct ServiceCidrRules;

impl Rules for ServiceCidrRules {
    fn prepare_create(&self, range: &mut Value) {
        range.set("status", json!({}));
    }

    fn validate(&self, range: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&range["spec"], Path::new("spec").child("cidrs"));
        let cidrs = spec.list("cidrs");
        if cidrs.is_empty() {
            problems.required(&path, "", "at least one CIDR required");
        }
        if cidrs.len() > 2 {
            problems.invalid(&path, "", spec.clone(), "may only hold up to 2 values");
            return problems.into_vec();
        }
        for (index, text) in cidrs.iter().enumerate() {
            let text = text.as_str().unwrap_or_default();
            problems.form(&path.index(index), "", text, cidr(text));
        }
        problems.into_vec()
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, range: &Value, now: i64) -> Vec<Value> {
        let cidrs: Vec<&str> = range["spec"].list("cidrs").iter().filter_map(Value::as_str).collect();
        vec![print::name(range), cidrs.join(",").into(), print::age(range, now)]
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("CIDRs", "The range, or one for each family."), AGE];
