//! CSI drivers on this node: who they are, and volumes that they mount.
//!
//! [`registry`] finds the sockets by which drivers make themselves known and [`node_info`] tells the API what they say;
//! [`Drivers`] is the table of those that can be used. [`publish`] has them mount the volumes of a pod, [`tear_down`] unmount
//! them, [`expand`] grow them, and [`staged`] take down what is mounted for the node once no pod has it. What is mounted is written down in
//! upstream's files ([`layout`]): a kubelet that starts knows from them what one before it left.
//!
//! Drivers run in pods: every socket, name and answer of theirs is taken for what somebody wants the kubelet to believe.

mod attach;
mod driver_object;
mod drivers;
mod endings;
mod error;
mod expand;
mod layout;
mod locks;
mod node_info;
mod publish;
mod registry;
mod secrets;
mod staged;
mod stats;
mod tear_down;
mod volume;

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::Notify;

pub use drivers::Drivers;
pub use publish::set_up;
pub use registry::watch;
pub use staged::keep as keep_unstaged;
pub use stats::keep as keep_stats;
pub use tear_down::tear_down;

use attach::InUse;
use endings::Endings;
use locks::VolumeLocks;
use publish::Published;

/// Everything about CSI that the kubelet's workers share.
#[derive(Default)]
pub struct Csi {
    pub drivers: Drivers,
    /// What drivers have mounted, by the pod's UID and the volume's name in it.
    published: Mutex<BTreeMap<(String, String), Published>>,
    /// Volumes that this kubelet knows to be staged.
    staged: Mutex<BTreeSet<String>>,
    in_use: InUse,
    /// Pods that end, whose volumes no driver is waited for any more.
    pub endings: Endings,
    /// Calls about one volume come one after the other.
    locks: VolumeLocks,
    /// Told when a pod has let go of a volume.
    released: Notify,
    /// Told when a volume was mounted.
    mounted: Notify,
    /// One write of the node's CSINode at a time.
    node_info: tokio::sync::Mutex<()>,
}
