//! PodDisruptionBudget: how many pods may be missing at a time.

use crate::names::path_segment;
use crate::print::{self, AGE, NAME};
use crate::workload::{validate_condition, validate_counts, validate_share};
use crate::{
    Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Subresource, Value,
    validate_label_selector,
};
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
.requiring_revision()
.with_unqualified_finalizers()
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

    fn validate(&self, budget: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&budget["spec"], Path::new("spec"));
        if spec.has("minAvailable") && spec.has("maxUnavailable") {
            let detail = "minAvailable and maxUnavailable cannot be both set";
            problems.invalid(&path, "", spec.clone(), detail);
        }
        for field in ["minAvailable", "maxUnavailable"] {
            validate_share(spec, field, &path, &mut problems);
        }
        problems.extend(validate_label_selector(&spec["selector"], &path.child("selector")));
        problems.optional_one_of(
            spec,
            &path,
            "unhealthyPodEvictionPolicy",
            &["AlwaysAllow", "IfHealthyBudget"],
        );
        problems.into_vec()
    }

    fn validate_status_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
        let mut problems = validate_counts(new, &counts);
        for (index, condition) in new["status"].list("conditions").iter().enumerate() {
            let path = Path::new("status").child("conditions").index(index);
            validate_condition(condition, &path, &mut problems);
        }
        problems.into_vec()
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        path_segment(name, prefix)
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
