//! PodDisruptionBudgets.

use api::Value;
use api::kinds::pod::POD;
use api::kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET;

use crate::why::State;
use crate::why::facts::{Facts, selector, selects};
use crate::why::finding::{Finding, Reference};
use crate::why::look::Look;
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &POD_DISRUPTION_BUDGET,
    reads: &[&POD],
    state,
    checks: &[allows_nothing, cannot_be_computed, overlaps],
};

fn state(_: &Facts, budget: &Value) -> State {
    let allowed = budget.int("status.disruptionsAllowed");
    match allowed > 0 || budget.int("status.expectedPods") == 0 {
        true => State::Healthy(format!("it allows {allowed} disruptions.")),
        false => State::Unhealthy("it allows 0 disruptions, so drains are blocked.".to_owned()),
    }
}

fn selected<'a>(facts: &'a Facts, budget: &'a Value) -> Vec<&'a Value> {
    let selector = selector(budget, "spec.selector");
    facts
        .list_in(&POD, budget.namespace())
        .filter(|pod| selects(&selector, pod))
        .collect()
}

fn rule(budget: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let least = budget.at("spec.minAvailable");
    match least.is_null() {
        true => format!("maxUnavailable {}", text(budget.at("spec.maxUnavailable"))),
        false => format!("minAvailable {}", text(least)),
    }
}

fn allows_nothing(facts: &Facts, budget: &Value) -> Vec<Finding> {
    let expected = budget.int("status.expectedPods");
    if expected == 0 || budget.int("status.disruptionsAllowed") > 0 {
        return Vec::new();
    }
    let (healthy, wanted) = (budget.int("status.currentHealthy"), budget.int("status.desiredHealthy"));
    let finding = Finding::waiting(
        "no-disruption-allowed",
        format!(
            "None of its pods can be evicted: {healthy} of {expected} are healthy, and {} requires {wanted}. Draining their nodes is blocked.",
            rule(budget)
        ),
    );
    let unready = selected(facts, budget)
        .into_iter()
        .find(|pod| pod.condition_is("Ready", "True").is_none());
    vec![match (healthy >= wanted, unready) {
        (false, Some(pod)) => finding.because_of(Reference::of(&POD, pod)),
        _ if wanted >= expected => {
            finding.next("It never allows a disruption: add replicas, lower minAvailable, or set maxUnavailable: 1.")
        }
        _ => finding.next("Add replicas, or wait until more pods are healthy."),
    }]
}

fn cannot_be_computed(_: &Facts, budget: &Value) -> Vec<Finding> {
    let failed = budget
        .condition_is("DisruptionAllowed", "False")
        .filter(|condition| condition.str("reason") == "SyncFailed");
    let Some(condition) = failed else {
        return Vec::new();
    };
    vec![
        Finding::broken(
            "budget-sync-failed",
            "The disruption controller cannot compute the budget, so no pod can be evicted.",
        )
        .detail(condition.str("message"))
        .next("For pods without a scalable controller, set minAvailable to an integer."),
    ]
}

/// The eviction API refuses pods that two budgets select.
fn overlaps(facts: &Facts, budget: &Value) -> Vec<Finding> {
    let pods = selected(facts, budget);
    let others = facts.list_in(&POD_DISRUPTION_BUDGET, budget.namespace());
    let mut others = others.filter(|other| other.name() != budget.name());
    let other = others.find(|other| {
        let selector = selector(other, "spec.selector");
        pods.iter().any(|pod| selects(&selector, pod))
    });
    match other {
        Some(other) => vec![
            Finding::broken(
                "budgets-overlap",
                format!("PodDisruptionBudget \"{}\" selects some of the same pods. Pods with more than one budget cannot be evicted.", other.name()),
            )
            .next("Change the selectors so that each pod matches one budget."),
        ],
        None => Vec::new(),
    }
}
