//! Nodes are told how long they may keep what they have read of secrets and config maps: the longer, the more of them
//! there are.

use std::sync::Arc;

use api::kinds::node::NODE;
use async_trait::async_trait;
use client::{Cache, Key};
use parking_lot::Mutex;
use serde_json::json;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::Node;
use crate::plan::{Action, Patch, Plan};

pub const ROW: Row = Row {
    name: "ttl",
    account: "ttl-controller",
    queue: "ttlcontroller",
    workers: 5,
    start,
};

const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// Sizes of a cluster, which overlap so that one node more or less does not change every node, and their time to live.
const STEPS: [Step; 5] = [
    Step::new(0, 100, 0),
    Step::new(90, 500, 15),
    Step::new(450, 1000, 30),
    Step::new(900, 2000, 60),
    Step::new(1800, usize::MAX, 300),
];

struct Step {
    least: usize,
    most: usize,
    seconds: u32,
}

impl Step {
    const fn new(least: usize, most: usize, seconds: u32) -> Step {
        Step { least, most, seconds }
    }
}

struct Controller {
    nodes: Arc<Cache<Node>>,
    /// The step that holds now.
    step: Mutex<usize>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let nodes = setup.cache::<Node>(&NODE);
    setup.watch_own(&nodes);
    Box::new(Controller {
        nodes,
        step: Mutex::new(0),
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(node) = self.nodes.get_key(key.as_str()) else {
            return Ok(Plan::nothing());
        };
        let mut step = self.step.lock();
        *step = next_step(*step, self.nodes.len());
        Ok(plan(&node, STEPS[*step].seconds))
    }
}

fn next_step(mut step: usize, nodes: usize) -> usize {
    while nodes > STEPS[step].most {
        step += 1;
    }
    while nodes < STEPS[step].least {
        step -= 1;
    }
    step
}

fn plan(node: &Node, seconds: u32) -> Plan {
    let mut plan = Plan::default();
    let text = seconds.to_string();
    if node.metadata.annotations.get(TTL) != Some(&text) {
        let body = json!({"metadata": {"annotations": {TTL: text}}});
        plan.actions
            .push(Action::Patch(Patch::new(&NODE, &node.metadata, body)));
    }
    plan
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::testing::object;

    #[test]
    fn nodes_keep_what_they_read_for_longer_in_larger_clusters() {
        expect![[r#"
            patch nodes one: {"metadata":{"annotations":{"node.alpha.kubernetes.io/ttl":"15"}}}
        "#]]
        .assert_eq(&plan(&object("metadata: {name: one}"), 15).to_string());
        let told = "metadata: {name: one, annotations: {node.alpha.kubernetes.io/ttl: '15'}}";
        assert_eq!(plan(&object(told), 15).to_string(), "");
    }

    #[test]
    fn sizes_overlap() {
        assert_eq!(
            [next_step(0, 100), next_step(0, 101), next_step(1, 95), next_step(1, 89)],
            [0, 1, 1, 0]
        );
        assert_eq!([next_step(0, 100_000), next_step(4, 1)], [4, 0]);
    }
}
