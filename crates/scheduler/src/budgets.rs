//! Pod disruption budgets: how many pods may be disturbed at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::selector::Selector;
use api::{LabelSelector, ObjectMeta};
use client::WithMetadata;
use serde::Deserialize;

use crate::pod::Pod;

/// What the scheduler reads of a PodDisruptionBudget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Budget {
    pub metadata: ObjectMeta,
    pub spec: BudgetSpec,
    pub status: BudgetStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct BudgetSpec {
    pub selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BudgetStatus {
    pub disruptions_allowed: i64,
    /// Pods whose eviction was granted already and counted.
    pub disrupted_pods: BTreeMap<String, serde::de::IgnoredAny>,
}

/// All budgets, by namespace and name.
#[derive(Default)]
pub struct Budgets {
    known: HashMap<String, BTreeMap<String, (Selector, Arc<Budget>)>>,
}

impl WithMetadata for Budget {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Budgets {
    pub fn changed(&mut self, old: Option<&Arc<Budget>>, new: Option<&Arc<Budget>>) {
        if let Some(old) = old
            && let Some(there) = self.known.get_mut(&old.metadata.namespace)
        {
            there.remove(&old.metadata.name);
            if there.is_empty() {
                self.known.remove(&old.metadata.namespace);
            }
        }
        // A budget without a selector, or with an empty one, protects nobody from preemption.
        if let Some(new) = new
            && let Some(selector) = &new.spec.selector
        {
            let selector = Selector::from(selector);
            if !selector.requirements.is_empty() {
                let there = self.known.entry(new.metadata.namespace.clone()).or_default();
                there.insert(new.metadata.name.clone(), (selector, new.clone()));
            }
        }
    }

    /// Which of the pods could not go without a budget being overdrawn, if all went in this order.
    pub fn violated_by<'a>(&self, pods: impl IntoIterator<Item = &'a Arc<Pod>>) -> BTreeSet<String> {
        let mut left: HashMap<(&str, &str), i64> = HashMap::new();
        let mut violating = BTreeSet::new();
        for pod in pods.into_iter().filter(|pod| !pod.metadata.labels.is_empty()) {
            let budgets = self.known.get(&pod.metadata.namespace);
            for (name, (selector, budget)) in budgets.into_iter().flatten() {
                let granted = budget.status.disrupted_pods.contains_key(&pod.metadata.name);
                if granted || !selector.matches(&pod.metadata.labels) {
                    continue;
                }
                let key = (budget.metadata.namespace.as_str(), name.as_str());
                let left = left.entry(key).or_insert(budget.status.disruptions_allowed);
                *left -= 1;
                if *left < 0 {
                    violating.insert(pod.uid().to_owned());
                }
            }
        }
        violating
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, app: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.metadata.uid = name.to_owned();
        pod.metadata.namespace = "default".to_owned();
        pod.metadata.labels = BTreeMap::from([("app".to_owned(), app.to_owned())]);
        Arc::new(pod)
    }

    fn budget(json: serde_json::Value) -> Arc<Budget> {
        Arc::new(serde_json::from_value(json).unwrap())
    }

    #[test]
    fn a_budget_is_spent_pod_by_pod_and_granted_evictions_do_not_count_again() {
        let mut budgets = Budgets::default();
        let web = budget(serde_json::json!({
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 1, "disruptedPods": {"granted": null}},
        }));
        budgets.changed(None, Some(&web));
        let pods = [pod("granted", "web"), pod("a", "web"), pod("db", "db"), pod("b", "web")];
        assert_eq!(budgets.violated_by(&pods), BTreeSet::from(["b".to_owned()]));
        budgets.changed(Some(&web), None);
        assert_eq!(budgets.violated_by(&pods), BTreeSet::new());
    }

    #[test]
    fn an_empty_selector_protects_nobody() {
        let mut budgets = Budgets::default();
        let all = serde_json::json!({"metadata": {"namespace": "default", "name": "all"}, "spec": {"selector": {}}});
        budgets.changed(None, Some(&budget(all)));
        assert_eq!(budgets.violated_by(&[pod("a", "web")]), BTreeSet::new());
    }
}
