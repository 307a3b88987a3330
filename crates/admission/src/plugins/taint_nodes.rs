//! A new node takes no pods until it has said that it is ready.

use api::kinds::node::NODE;
use api::{Error, Fields};
use async_trait::async_trait;
use serde_json::json;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct TaintNodesByCondition;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

#[async_trait]
impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && attributes.is(&NODE, "")
    }

    async fn mutate(&self, attributes: &mut Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        let spec = attributes.object.ensure("spec");
        let mut taints = spec.list("taints").to_vec();
        let is_there = |key: &str, effect: &str| {
            taints
                .iter()
                .any(|taint| taint.text("key") == key && taint.text("effect") == effect)
        };
        if !is_there(NOT_READY, "NoSchedule") {
            taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
            spec.set("taints", taints);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Cluster, create, run};

    #[test]
    fn a_new_node_is_not_ready() {
        let node = create(&NODE, json!({"metadata": {"name": "one"}}));
        let admitted = run(&TaintNodesByCondition, node, &Cluster::default()).unwrap();
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        assert_eq!(admitted["spec"]["taints"], json!([taint]));
        let again = run(
            &TaintNodesByCondition,
            create(&NODE, admitted.clone()),
            &Cluster::default(),
        )
        .unwrap();
        assert_eq!(again, admitted);
    }
}
