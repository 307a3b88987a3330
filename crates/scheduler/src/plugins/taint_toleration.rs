//! Taints keep away pods that do not tolerate them, some strictly, some as a preference.

use async_trait::async_trait;

use crate::framework::{Normalize, Plugin, PreFilter, Rejection};
use crate::nodes::{NodeId, Nodes};
use crate::pod::{Pod, Toleration};

pub struct TaintToleration;

#[async_trait]
impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn pre_filter(&self, _pod: &Pod, _nodes: &Nodes) -> PreFilter {
        PreFilter::Check
    }

    fn filter(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> Result<(), Rejection> {
        let tolerations = &pod.demand.tolerations;
        let mut strict = nodes.taints[node]
            .iter()
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
        if strict.all(|taint| taint.is_tolerated(tolerations)) {
            return Ok(());
        }
        Err(Rejection::unresolvable(self.name(), "node(s) had untolerated taint(s)"))
    }

    fn pre_score(&self, _pod: &Pod, nodes: &Nodes) -> bool {
        nodes.have_soft_taints()
    }

    /// How many taints the pod would have to put up with.
    fn score(&self, pod: &Pod, nodes: &Nodes, node: NodeId) -> i64 {
        let is_soft = |toleration: &&Toleration| matches!(toleration.effect.as_str(), "" | "PreferNoSchedule");
        let tolerations: Vec<Toleration> = pod.demand.tolerations.iter().filter(is_soft).cloned().collect();
        let soft = nodes.taints[node]
            .iter()
            .filter(|taint| taint.effect == "PreferNoSchedule");
        soft.filter(|taint| !taint.is_tolerated(&tolerations)).count() as i64
    }

    fn normalize(&self) -> Normalize {
        Normalize::Lowest
    }
}
