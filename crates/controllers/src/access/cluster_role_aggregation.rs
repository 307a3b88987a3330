//! ClusterRoles that are made of others hold the rules of all that their selectors name.

use std::sync::Arc;

use api::kinds::cluster_role::CLUSTER_ROLE;
use api::selector::Selector;
use api::{LabelSelector, ObjectMeta, Value};
use async_trait::async_trait;
use client::{Cache, Key};
use serde::Deserialize;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::with_metadata;
use crate::plan::{Action, Patch, Plan};

pub const ROW: Row = Row {
    name: "clusterrole-aggregation",
    account: "clusterrole-aggregation-controller",
    queue: "ClusterRoleAggregator",
    workers: 5,
    start,
};

struct Controller {
    roles: Arc<Cache<ClusterRole>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterRole {
    metadata: ObjectMeta,
    /// As they are written, so that they are copied whole; null until a role that is made of others has been filled.
    rules: Option<Vec<Value>>,
    aggregation_rule: Option<AggregationRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AggregationRule {
    cluster_role_selectors: Vec<LabelSelector>,
}

with_metadata!(ClusterRole);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let roles = setup.cache::<ClusterRole>(&CLUSTER_ROLE);
    let (queue, known) = (setup.queue(), Arc::downgrade(&roles));
    // Any role may be, or may have been, part of any that is made of others.
    roles.on_change(move |_, new| {
        new.into_iter().for_each(|role| queue.add(client::Object::key(&**role)));
        let all = known.upgrade().map(|roles| roles.all()).unwrap_or_default();
        for role in all.iter().filter(|role| role.aggregation_rule.is_some()) {
            queue.add(client::Object::key(&**role));
        }
    });
    Box::new(Controller { roles })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let role = self.roles.get_key(key.as_str());
        Ok(role.map_or_else(Plan::nothing, |role| plan(&role, &self.roles.all())))
    }
}

/// `all` is sorted by name, which makes the order of the rules stable.
fn plan(role: &ClusterRole, all: &[Arc<ClusterRole>]) -> Plan {
    let mut plan = Plan::default();
    let Some(aggregation) = &role.aggregation_rule else {
        return plan;
    };
    let mut rules: Vec<&Value> = Vec::new();
    for selector in aggregation.cluster_role_selectors.iter().map(Selector::from) {
        let selected = all
            .iter()
            .filter(|other| other.metadata.name != role.metadata.name && selector.matches(&other.metadata.labels));
        for rule in selected.flat_map(|other| other.rules.iter().flatten()) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    if !rules.iter().copied().eq(role.rules.iter().flatten()) {
        let patch = Patch::new(&CLUSTER_ROLE, &role.metadata, json!({"rules": rules}));
        plan.actions.push(Action::Patch(patch.at_revision(&role.metadata)));
    }
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::{object, objects};

    const SUM: &str = "
metadata: {name: sum, resourceVersion: '3', labels: {part: 'yes'}}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {part: 'yes'}}]}
rules: []
";

    #[test]
    fn a_role_made_of_others_has_their_rules_once_each() {
        let parts = objects(
            "
metadata: {name: a, labels: {part: 'yes'}}
rules: [{resources: [pods], verbs: [get]}]
---
metadata: {name: b, labels: {part: 'yes'}}
rules: [{resources: [pods], verbs: [get]}, {resources: [secrets], verbs: [list]}]
---
metadata: {name: c}
rules: [{resources: [nodes], verbs: [get]}]",
        );
        expect![[r#"
            patch clusterroles sum: {"metadata":{"resourceVersion":"3"},"rules":[{"resources":["pods"],"verbs":["get"]},{"resources":["secrets"],"verbs":["list"]}]}
        "#]]
        .assert_eq(&plan(&object(SUM), &parts).to_string());
        assert_eq!(plan(&object(SUM), &[object(SUM)]).to_string(), "");
        let unfilled = SUM.replace("rules: []", "rules: null");
        assert_eq!(
            plan(&object(&unfilled), &parts).to_string(),
            plan(&object(SUM), &parts).to_string()
        );
    }
}
