//! What a plugin may decide: upstream's extension points as one small trait.
//!
//! A plugin implements the points it cares about; the rest have defaults. All of them are rows of
//! [`crate::plugins::table`].

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::Client;

use crate::budgets::Budgets;
use crate::dice::Dice;
use crate::failure::Failure;
use crate::nodes::{NodeId, Nodes};
use crate::pod::Pod;
use crate::queued_pod::QueuedPod;
use crate::volumes::Assignment;
use crate::waiting::WaitingPods;

pub use crate::rejection::Rejection;

/// The best score that a plugin can give.
pub const MAX_SCORE: i64 = 100;

#[async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// PreEnqueue: whether the pod may be scheduled at all yet.
    fn pre_enqueue(&self, _pod: &Pod) -> Result<(), Rejection> {
        Ok(())
    }

    /// QueueSort: which pod goes first. Exactly one plugin answers.
    fn queue_sort(&self, _one: &QueuedPod, _other: &QueuedPod) -> Option<Ordering> {
        None
    }

    /// PreFilter: looks at the pod before any node.
    fn pre_filter(&self, _pod: &Pod, _nodes: &Nodes) -> PreFilter {
        PreFilter::Skip
    }

    /// Filter: whether the pod can run on the node. Asked only after [`PreFilter::Check`].
    fn filter(&self, _pod: &Pod, _nodes: &Nodes, _node: NodeId) -> Result<(), Rejection> {
        Ok(())
    }

    /// PostFilter: no node will do as things are; what can be done about it. The first plugin that makes room decides.
    fn post_filter(&self, _pod: &Arc<Pod>, _attempt: &mut Attempt<'_>) -> PostFilter {
        PostFilter::Skip
    }

    /// PreScore: whether this plugin has anything to say about the pod's nodes.
    fn pre_score(&self, _pod: &Pod, _nodes: &Nodes) -> bool {
        false
    }

    /// Score: how good the node is; up to [`MAX_SCORE`], or anything that [`Plugin::normalize`] brings there.
    fn score(&self, _pod: &Pod, _nodes: &Nodes, _node: NodeId) -> i64 {
        0
    }

    fn normalize(&self) -> Normalize {
        Normalize::None
    }

    /// Score, for plugins that look at the pods of all nodes: one score up to [`MAX_SCORE`] for each of `feasible`.
    fn score_all(&self, _pod: &Pod, _nodes: &Nodes, _feasible: &[NodeId]) -> Option<Vec<i64>> {
        None
    }

    /// Whether a pod that this plugin rejected may fare better after the change. What concerns a node is checked
    /// against all filters of that node besides, unless the plugin says yes to [`Change::Company`] too.
    fn hint(&self, _pod: &Pod, change: &Change<'_>) -> bool {
        matches!(change, Change::Node(_))
    }

    /// Reserve: the pod is about to go to the node. A refusal undoes the reservations of all plugins.
    fn reserve(&self, _pod: &Pod, _nodes: &mut Nodes, _node: &str) -> Result<(), Rejection> {
        Ok(())
    }

    /// Undoes [`Plugin::reserve`]; must not mind if nothing was reserved.
    fn unreserve(&self, _pod: &Pod, _nodes: &mut Nodes, _node: &str) {}

    /// Permit: the last word before the binding is written. Pods that were told to wait are in `waiting`, where a
    /// plugin may allow or reject them.
    fn permit(&self, _pod: &Pod, _node: &str, _waiting: &mut WaitingPods) -> Permit {
        Permit::Allow
    }

    /// PreBind: whatever must be written before the binding.
    async fn pre_bind(&self, _client: &Client, _binding: &Binding) -> Result<(), BindError> {
        Ok(())
    }

    /// Bind: writes the binding. Returns false to leave it to the next plugin.
    async fn bind(&self, _client: &Client, _pod: &Pod, _node: &str) -> client::Result<bool> {
        Ok(false)
    }

    /// PostBind: the pod is bound.
    fn post_bind(&self, _pod: &Pod, _node: &str) {}
}

/// Something that may let a waiting pod go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// A node came or changed, or a pod left it.
    Node(NodeId),
    /// A pod came to a node, or a namespace has other labels: other pods may be near to or away from it.
    Company,
    /// The claim with this key, `namespace/name`.
    Claim(&'a str),
    /// A volume, a storage class or what a driver says about its storage.
    Storage,
}

/// A decision that is about to be written.
#[derive(Clone, Debug)]
pub struct Binding {
    pub pod: Arc<Pod>,
    pub node: String,
    /// What was decided about the claims of the pod.
    pub volumes: Vec<Assignment>,
}

/// Why a pod could not be bound to its node.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error("the volume of claim {claim} could not be made for the node")]
    NotProvisioned { claim: String },
    #[error("timed out waiting for claim {claim} to be bound")]
    VolumeTimeout { claim: String },
}

/// A row of the plugin table.
#[derive(Clone, Copy)]
pub struct Row {
    pub plugin: &'static dyn Plugin,
    /// How much the plugin's score counts; 0 where it is not asked for one.
    pub weight: i64,
    /// Whether PreFilter and Filter are asked.
    pub filters: bool,
    /// Whether PostFilter is asked.
    pub rescues: bool,
}

/// What a plugin makes of a pod before it looks at nodes.
pub enum PreFilter {
    /// Nothing about this pod concerns the plugin: its filter need not be asked.
    Skip,
    /// The plugin's filter decides, from the pod and the node alone.
    Check,
    /// The filter depends on pods of other nodes too; this is what is known of them now.
    Compare(Box<dyn Comparison>),
    /// Only these nodes come into question.
    Only(Vec<NodeId>),
    /// No node will do.
    Reject(Rejection),
}

/// A filter for one decision.
pub trait Comparison {
    fn filter(&self, nodes: &Nodes, node: NodeId) -> Result<(), Rejection>;
}

/// What there is to work with when no node will do.
pub struct Attempt<'a> {
    pub rows: &'static [Row],
    pub nodes: &'a mut Nodes,
    pub budgets: &'a Budgets,
    pub failure: &'a Failure,
    pub dice: &'a mut Dice,
}

/// What a plugin makes of a pod that no node will do for.
#[derive(Debug)]
pub enum PostFilter {
    /// The plugin has nothing to say.
    Skip,
    /// Nothing can be done, and why; where `gives_up`, the pod no longer has a node nominated.
    Unschedulable { message: String, gives_up: bool },
    /// The pod will fit on the node once the victims are gone.
    Nominate(Preemption),
}

/// Room for a pod at the expense of others.
#[derive(Clone, Debug, Default)]
pub struct Preemption {
    pub node: String,
    /// The most important first.
    pub victims: Vec<Arc<Pod>>,
}

/// A plugin's last word before the binding.
#[derive(Debug)]
pub enum Permit {
    Allow,
    /// Not yet: the pod keeps its place on the node until the plugin allows it, at most for this long.
    Wait(Duration),
    Reject(Rejection),
}

/// How raw scores become comparable with those of other plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalize {
    None,
    /// The highest raw score becomes the best.
    Highest,
    /// The highest raw score becomes zero, and zero the best.
    Lowest,
}

impl Normalize {
    pub fn apply(self, raw: i64, highest: i64) -> i64 {
        match self {
            Normalize::None => raw,
            Normalize::Highest if highest == 0 => raw,
            Normalize::Highest => raw * MAX_SCORE / highest,
            Normalize::Lowest if highest == 0 => MAX_SCORE,
            Normalize::Lowest => MAX_SCORE - raw * MAX_SCORE / highest,
        }
    }
}
