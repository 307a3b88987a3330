//! ResourceQuotas.

use api::Value;
use api::kinds::resource_quota::RESOURCE_QUOTA;
use schema::quantity::Quantity;

use crate::why::State;
use crate::why::facts::Facts;
use crate::why::finding::Finding;
use crate::why::look::Look;
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &RESOURCE_QUOTA,
    reads: &[],
    state,
    checks: &[is_used_up],
};

/// What is used up, with numbers.
fn exhausted(quota: &Value) -> Vec<String> {
    let amount = |text: &str| text.parse::<Quantity>().ok();
    let used = quota.at("status.used");
    let full = quota.pairs("status.hard").into_iter().filter_map(|(resource, hard)| {
        let used = used.get(resource).and_then(Value::as_str).unwrap_or("0");
        let is_full = amount(used)? >= amount(hard)?;
        // A quota of nothing is a ban, and meant.
        (is_full && hard != "0").then(|| format!("{resource}: {used} of {hard}"))
    });
    full.collect()
}

fn state(_: &Facts, quota: &Value) -> State {
    match exhausted(quota).is_empty() {
        true => State::Healthy("no limit is reached.".to_owned()),
        false => State::Unhealthy("a limit is reached.".to_owned()),
    }
}

fn is_used_up(_: &Facts, quota: &Value) -> Vec<Finding> {
    let full = exhausted(quota);
    if full.is_empty() {
        return Vec::new();
    }
    vec![
        Finding::waiting(
            "quota-used-up",
            "The quota is exhausted, so no more of these resources can be created in the namespace:",
        )
        .details(full)
        .next(format!(
            "Raise it (kubectl -n {} edit resourcequota {}), or delete objects that count against it.",
            quota.namespace(),
            quota.name()
        )),
    ]
}
