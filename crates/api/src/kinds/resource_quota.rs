//! ResourceQuota: how much a namespace may use.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static RESOURCE_QUOTA: Resource =
    Resource::namespaced("", "v1", "ResourceQuota", "resourcequotas", "resourcequota")
        .short(&["quota"])
        .with_subresources(&[Subresource::STATUS])
        .with_rules(&ResourceQuotaRules);

struct ResourceQuotaRules;

impl Rules for ResourceQuotaRules {
    fn prepare_create(&self, quota: &mut Value) {
        quota.set("status", json!({}));
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, quota: &Value, now: i64) -> Vec<Value> {
        let status = &quota["status"];
        let used = |resource: &str| status["used"][resource].as_str().unwrap_or("0");
        let shown = |limits: bool| {
            let entries = status
                .entries("hard")
                .filter(|(resource, _)| resource.starts_with("limits.") == limits);
            let texts: Vec<String> = entries
                .map(|(resource, hard)| format!("{resource}: {}/{}", used(resource), hard.as_str().unwrap_or("0")))
                .collect();
            Value::from(texts.join(", "))
        };
        vec![print::name(quota), shown(false), shown(true), print::age(quota, now)]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Request", "Requests and counts that are used, of those allowed."),
    print::text("Limit", "Limits that are used, of those allowed."),
    AGE,
];
