//! What a driver's node service can do.

use crate::v1;
use crate::v1::node_service_capability::{Type, rpc};

/// What a driver's node service says that it can do. What it does not say, it is not asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCapabilities {
    /// Volumes are staged once for a node before they are published for its pods.
    pub stage_unstage: bool,
    pub volume_stats: bool,
    pub expand: bool,
    /// It tells volumes for one pod from volumes for all pods of a node.
    pub single_node_multi_writer: bool,
    /// It gives a volume's files to a group itself.
    pub volume_mount_group: bool,
}

impl From<v1::NodeGetCapabilitiesResponse> for NodeCapabilities {
    fn from(answer: v1::NodeGetCapabilitiesResponse) -> NodeCapabilities {
        let mut found = NodeCapabilities::default();
        for capability in answer.capabilities {
            let Some(Type::Rpc(capability)) = capability.r#type else {
                continue;
            };
            match capability.r#type() {
                rpc::Type::StageUnstageVolume => found.stage_unstage = true,
                rpc::Type::GetVolumeStats => found.volume_stats = true,
                rpc::Type::ExpandVolume => found.expand = true,
                rpc::Type::SingleNodeMultiWriter => found.single_node_multi_writer = true,
                rpc::Type::VolumeMountGroup => found.volume_mount_group = true,
                rpc::Type::Unknown | rpc::Type::VolumeCondition => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_are_not_known_are_left_out() {
        let capability = |number| v1::NodeServiceCapability {
            r#type: Some(Type::Rpc(v1::node_service_capability::Rpc { r#type: number })),
        };
        let mut capabilities: Vec<_> = [1, 6, 99, -1].map(capability).into();
        capabilities.push(v1::NodeServiceCapability { r#type: None });
        let found = NodeCapabilities::from(v1::NodeGetCapabilitiesResponse { capabilities });
        let wanted = NodeCapabilities {
            stage_unstage: true,
            volume_mount_group: true,
            ..NodeCapabilities::default()
        };
        assert_eq!(found, wanted);
    }
}
