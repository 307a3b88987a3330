//! The plugins, one file each.

mod default_binder;
mod default_preemption;
mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_balanced;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

pub use default_preemption::NAME as PREEMPTION;

use crate::framework::{Plugin, Row};

/// Every plugin in the order in which it is asked, with the weight of its score. A new plugin is one file and one row.
///
/// The order is upstream's: a node is rejected by the first plugin that does not want it, and people know the messages.
pub fn table() -> &'static [Row] {
    TABLE
}

static TABLE: &[Row] = &[
    row(&scheduling_gates::SchedulingGates, 0),
    row(&priority_sort::PrioritySort, 0),
    row(&node_unschedulable::NodeUnschedulable, 0),
    row(&node_name::NodeName, 0),
    row(&taint_toleration::TaintToleration, 3),
    row(&node_affinity::NodeAffinity, 2),
    row(&node_ports::NodePorts, 0),
    row(&node_resources_fit::NodeResourcesFit, 1),
    row(&volume_restrictions::VolumeRestrictions, 0),
    row(&node_volume_limits::NodeVolumeLimits, 0),
    row(&volume_binding::VolumeBinding, 0),
    row(&volume_zone::VolumeZone, 0),
    row(&pod_topology_spread::PodTopologySpread, 2),
    row(&inter_pod_affinity::InterPodAffinity, 2),
    row(&dynamic_resources::DynamicResources, 0),
    row(&default_preemption::DefaultPreemption, 0),
    row(&node_resources_balanced::NodeResourcesBalancedAllocation, 1),
    row(&image_locality::ImageLocality, 1),
    row(&default_binder::DefaultBinder, 0),
];

const fn row(plugin: &'static dyn Plugin, weight: i64) -> Row {
    Row {
        plugin,
        weight,
        filters: true,
        rescues: true,
    }
}
