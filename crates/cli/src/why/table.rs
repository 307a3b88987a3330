//! The kinds that `karve why` explains: one row each.

use api::{Resource, Value};

use super::State;
use super::facts::Facts;
use super::finding::Finding;
use super::kinds;

/// Looks for one reason. Pure: what is not in the facts is not known.
pub type Check = fn(&Facts, &Value) -> Vec<Finding>;

pub struct Kind {
    pub resource: &'static Resource,
    /// What else has to be read to explain one. What these need is read, too.
    pub reads: &'static [&'static Resource],
    /// How an object is by its own status.
    pub state: fn(&Facts, &Value) -> State,
    pub checks: &'static [Check],
}

pub static KINDS: &[&Kind] = &[
    &kinds::api_service::ROW,
    &kinds::cron_job::ROW,
    &kinds::custom_resource_definition::ROW,
    &kinds::daemon_set::ROW,
    &kinds::deployment::ROW,
    &kinds::horizontal_pod_autoscaler::ROW,
    &kinds::ingress::ROW,
    &kinds::job::ROW,
    &kinds::namespace::ROW,
    &kinds::network_policy::ROW,
    &kinds::node::ROW,
    &kinds::persistent_volume::ROW,
    &kinds::persistent_volume_claim::ROW,
    &kinds::pod::ROW,
    &kinds::pod_disruption_budget::ROW,
    &kinds::replica_set::ROW,
    &kinds::resource_quota::ROW,
    &kinds::service::ROW,
    &kinds::stateful_set::ROW,
    &kinds::webhook::MUTATING,
    &kinds::webhook::VALIDATING,
];

/// The kind that a user calls so: `deployment`, `deployments`, `deploy` or `deployments.apps`, in any case.
pub fn called(name: &str) -> Option<&'static Kind> {
    let name = name.to_lowercase();
    let (plain, group) = name.split_once('.').unwrap_or((&name, ""));
    find(|resource| {
        let names = [resource.singular, resource.plural];
        let is_named = names.contains(&plain) || resource.short_names.contains(&plain);
        is_named && (group.is_empty() || group == resource.group)
    })
}

pub fn named(singular: &str) -> Option<&'static Kind> {
    find(|resource| resource.singular == singular)
}

pub fn served_as(group: &str, plural: &str) -> Option<&'static Kind> {
    find(|resource| resource.group == group && resource.plural == plural)
}

pub fn known_kinds() -> String {
    let names: Vec<&str> = KINDS.iter().map(|kind| kind.resource.singular).collect();
    names.join(", ")
}

fn find(is_wanted: impl Fn(&Resource) -> bool) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| is_wanted(kind.resource))
}
