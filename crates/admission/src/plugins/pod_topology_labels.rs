//! A pod learns the zone and region of the node it is bound to, as labels of its own.

use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::{Error, Fields};
use async_trait::async_trait;

use crate::{Attributes, Lookup, Operation, Plugin};

pub struct PodTopologyLabels;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

#[async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        attributes.operation == Operation::Create && (attributes.is(&POD, "") || attributes.is(&POD, "binding"))
    }

    /// The labels of a binding are carried over to its pod.
    async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        let object = &attributes.object;
        let node = match attributes.subresource.as_str() {
            "binding" if object["target"].text("kind") == "Node" => object["target"].text("name"),
            "binding" => "",
            _ => object["spec"].text("nodeName"),
        };
        if node.is_empty() {
            return Ok(());
        }
        let labels = lookup.labels(&NODE, "", node).unwrap_or_default();
        for label in LABELS {
            if let Some(value) = labels.get(label) {
                attributes
                    .object
                    .ensure("metadata")
                    .ensure("labels")
                    .set(label, value.clone());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{Cluster, create, run};

    #[test]
    fn a_binding_carries_the_nodes_zone() {
        let node = json!({"metadata": {"name": "one", "labels": {"topology.kubernetes.io/zone": "a", "x": "y"}}});
        let binding = json!({"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "one"}});
        let attributes = Attributes {
            subresource: "binding".to_owned(),
            ..create(&POD, binding)
        };
        let admitted = run(&PodTopologyLabels, attributes, &Cluster(vec![(&NODE, node)])).unwrap();
        assert_eq!(
            admitted["metadata"]["labels"],
            json!({"topology.kubernetes.io/zone": "a"})
        );
    }
}
