//! A pod with scheduling gates waits until all of them are lifted.

use async_trait::async_trait;

use crate::framework::{Plugin, Rejection};
use crate::pod::Pod;

pub struct SchedulingGates;

#[async_trait]
impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Rejection> {
        if pod.gates.is_empty() {
            return Ok(());
        }
        let gates = pod.gates.join(" ");
        let reason = format!("waiting for scheduling gates: [{gates}]");
        Err(Rejection::unresolvable(self.name(), reason))
    }
}
