//! ServiceCIDR: a range of addresses for services.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value};
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

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, range: &Value, now: i64) -> Vec<Value> {
        let cidrs: Vec<&str> = range["spec"].list("cidrs").iter().filter_map(Value::as_str).collect();
        vec![print::name(range), cidrs.join(",").into(), print::age(range, now)]
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("CIDRs", "The range, or one for each family."), AGE];
