//! PodDisruptionBudget: how many pods may be missing at a time.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Subresource, Value};
use serde_json::json;

pub static POD_DISRUPTION_BUDGET: Resource = Resource::namespaced(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    "poddisruptionbudget",
)
.short(&["pdb"])
.with_subresources(&[Subresource::STATUS])
.with_rules(&PodDisruptionBudgetRules);

struct PodDisruptionBudgetRules;

impl Rules for PodDisruptionBudgetRules {
    fn prepare_create(&self, budget: &mut Value) {
        let zeros = ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"];
        budget.set(
            "status",
            zeros
                .iter()
                .map(|field| ((*field).to_owned(), json!(0)))
                .collect::<Value>(),
        );
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, budget: &Value, now: i64) -> Vec<Value> {
        let bound = |field: &str| match &budget["spec"][field] {
            Value::Null => "N/A".into(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        vec![
            print::name(budget),
            bound("minAvailable").into(),
            bound("maxUnavailable").into(),
            budget["status"].number("disruptionsAllowed").into(),
            print::age(budget, now),
        ]
    }
}

const COLUMNS: &[Column] = &[
    NAME,
    print::text("Min Available", "Pods that must stay."),
    print::text("Max Unavailable", "Pods that may be missing."),
    print::integer("Allowed Disruptions", "Pods that may be evicted now."),
    AGE,
];
