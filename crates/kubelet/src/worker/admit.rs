//! Letting a pod in, or turning it away.

use super::Worker;
use crate::admission::{self, Refusal};
use crate::plan::Stop;
use crate::pod::Pod;
use crate::pod::resources::{Compute, pod_compute};
use crate::shared::Shared;
use crate::status;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    #[default]
    Undecided,
    /// What it asks for is its own now.
    Admitted,
    /// Nothing of it runs any more, and what it held is others' again.
    Over,
}

impl Worker {
    /// Decides once whether the pod may run here, and gives back what it holds when it has ended: before its object goes, for
    /// then the next pod may come. A pod that runs already was let in before.
    pub(super) fn admit(&mut self) {
        let uid = &self.pod.metadata.uid;
        if self.pod.is_terminal() || status::is_over(self.view()) {
            self.shared.release(uid);
            self.admission = Admission::Over;
            return;
        }
        if self.admission != Admission::Undecided || self.view().is_ending() {
            return;
        }
        if !self.observed.is_empty() {
            self.shared.hold(uid, pod_compute(&self.pod));
        } else if let Err(Refusal { reason, message }) = self.shared.admit(&self.pod) {
            let stop = Stop::Rejected { reason, message };
            self.announce_stop(&stop);
            self.progress.stop = Some(stop);
            return;
        }
        self.admission = Admission::Admitted;
    }

    /// Keeps the pod's ports of the machine for it, or turns the pod away when another one has them.
    pub(super) fn hold_ports(&mut self) {
        if self.pod.is_terminal() {
            self.shared.host_ports.release(&self.pod.metadata.uid);
            return;
        }
        if self.view().is_ending() {
            return;
        }
        if let Err(refused) = self.shared.host_ports.claim(&self.pod, !self.observed.is_empty()) {
            let stop = Stop::Rejected {
                reason: "NodePorts".to_owned(),
                message: refused.to_string(),
            };
            self.announce_stop(&stop);
            self.progress.stop = Some(stop);
        }
    }

    /// Turns a pod away that asks the runtime for what it cannot give.
    pub(super) fn require_features(&mut self) {
        let policy = self.pod.spec.security_context.supplemental_groups_policy.as_deref();
        let strict = policy == Some("Strict") && !self.shared.around.features.supplemental_groups_policy();
        if strict && self.observed.is_empty() && !self.view().is_ending() {
            let stop = Stop::Rejected {
                reason: "SupplementalGroupsPolicyNotSupported".to_owned(),
                message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
            };
            self.announce_stop(&stop);
            self.progress.stop = Some(stop);
        }
    }
}

impl Shared {
    /// Asks whether a pod may run here; if so, what it asks for is the pod's.
    fn admit(&self, pod: &Pod) -> Result<(), Refusal> {
        let uid = &pod.metadata.uid;
        let mut held = self.held.lock();
        let others = held.iter().filter(|(other, _)| *other != uid).map(|(_, held)| *held);
        let others: Vec<Compute> = others.collect();
        let refusal = admission::refusal(
            pod,
            &admission::Surroundings {
                sysctls: &self.sysctls,
                pressure: &self.pressure.read(),
                others: &others,
                allocatable: &self.allocatable.read(),
            },
        );
        match refusal {
            Some(refusal) => Err(refusal),
            None => {
                held.insert(uid.clone(), pod_compute(pod));
                Ok(())
            }
        }
    }
}
