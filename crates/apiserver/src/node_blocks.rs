//! A node does not choose the addresses of its pods where a controller gives them out.
//!
//! All other nodes route a node's block to it. One that chose the address of somebody else's pod, or half of all addresses,
//! would be sent what is meant for others. Not one of the plugins that can be switched off.

use admission::{Attributes, Lookup, Operation, Plugin};
use api::kinds::node::NODE;
use api::{Error, Fields, Value};
use async_trait::async_trait;

use crate::bootstrap::LocalNode;

pub struct NodeBlocks {
    /// The one node whose block was chosen by whoever started the server.
    pub local_node: Option<LocalNode>,
}

#[async_trait]
impl Plugin for NodeBlocks {
    fn name(&self) -> &'static str {
        "NodeBlocks"
    }

    fn handles(&self, attributes: &Attributes) -> bool {
        matches!(attributes.operation, Operation::Create | Operation::Update)
            && attributes.is(&NODE, "")
            && attributes.user.node_name().is_some()
    }

    async fn validate(&self, attributes: &Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        let (new, old) = (blocks(&attributes.object), blocks(&attributes.old_object));
        let is_local = self.local_node.as_ref().is_some_and(|local| {
            attributes.user.node_name() == Some(&local.name) && attributes.name == local.name && new == local.pod_cidrs
        });
        if new == old || new.is_empty() || is_local {
            return Ok(());
        }
        let node = attributes.user.node_name().unwrap_or_default();
        Err(Error::forbidden(
            attributes.resource,
            &attributes.name,
            format!(
                "node {node:?} is not allowed to set spec.podCIDRs: the node IPAM controller gives nodes their blocks"
            ),
        ))
    }
}

fn blocks(node: &Value) -> Vec<&str> {
    let spec = &node["spec"];
    let all = spec.list("podCIDRs").iter().filter_map(Value::as_str);
    let first = std::iter::once(spec.text("podCIDR")).filter(|block| !block.is_empty());
    let mut blocks: Vec<&str> = first.chain(all).collect();
    blocks.dedup();
    blocks
}
