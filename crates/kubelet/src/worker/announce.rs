//! What a worker tells users: its pod's status, and events about what the pod waits for and why it ends.

use std::collections::HashMap;

use super::message::Message;
use super::{Worker, report};
use crate::limits;
use crate::moment::Moment;
use crate::plan::{Image, Stop};
use crate::status::{self, Phase};

/// What has been said already, so that it is said once.
#[derive(Default)]
pub struct Announced {
    /// What was last told about each container that waits.
    pub waiting: HashMap<String, Moment>,
    pub ready: bool,
    pub running: bool,
}

impl Worker {
    /// Computes the status and has it written if the API does not have it yet.
    pub(super) fn report(&mut self, now: Moment) -> Option<Moment> {
        if self.progress.stop == Some(Stop::Gone) {
            return None;
        }
        self.announce(now);
        let status = status::compute(self.view(), &self.shared.around, &self.reporter.conditions, now);
        let ready = status
            .conditions
            .iter()
            .any(|c| c.kind == "Ready" && c.status == "True");
        if ready && !self.announced.ready {
            trace::mark("kubelet/ready", self.pod.mark_name(), self.pod.metadata.uid.clone());
        }
        self.announced.ready = ready;
        if status.phase == Phase::Running && !self.announced.running {
            self.announced.running = true;
            // A pod that ran before this kubelet did was not started by it.
            if self.pod.status.phase != "Running" {
                self.shared.figures.pod_running(now.since(self.first_seen));
            }
        }
        let changing = !self.view().is_ending() && self.progress.changes_containers();
        let (patch, wake_at) = self.reporter.next(&self.pod, &status, changing, now);
        if let Some(patch) = patch {
            self.reporter.begin(now);
            let (shared, pod, sender) = (self.shared.clone(), self.pod.clone(), self.tasks.sender());
            tokio::spawn(async move {
                let begun = tokio::time::Instant::now();
                let result = report::write(&shared, &pod, patch).await;
                shared.figures.status_written(begun.elapsed());
                let _ = sender.send(Message::StatusWritten(result)).await;
            });
        }
        wake_at
    }

    /// Says once per wait that a container waits, and for what.
    pub(super) fn announce(&mut self, now: Moment) {
        let view = self.view();
        let mut told = Vec::new();
        for (kind, container) in self.pod.all_containers() {
            let name = &container.name;
            let progress = self.progress.container(name);
            if let Some(Image::Failed(failure)) = progress.map(|progress| &progress.image) {
                let shown = now.since(failure.failed_at) >= limits::PULL_ERROR_SHOWN;
                if failure.reason == "ErrImagePull"
                    && shown
                    && self.announced.waiting.get(name) != Some(&failure.failed_at)
                {
                    let message = format!("Back-off pulling image {:?}", container.image);
                    self.shared.normal(&self.pod, name, "BackOff", message);
                    self.shared
                        .warning(&self.pod, name, "Failed", "Error: ImagePullBackOff");
                    told.push((name.clone(), failure.failed_at));
                }
            }
            let Some(instance) = view.observed.latest(name).filter(|_| !view.is_ending()) else {
                continue;
            };
            let restarts = instance
                .exit()
                .is_some_and(|exit| view.restarts(kind, container, exit.code));
            let waits = restarts && view.crash_wait(instance, now).is_some();
            if waits && self.announced.waiting.get(name) != Some(&instance.created_at) {
                let message = format!(
                    "Back-off restarting failed container {name} in pod {}",
                    self.pod.full_name()
                );
                self.shared.warning(&self.pod, name, "BackOff", message);
                told.push((name.clone(), instance.created_at));
            }
        }
        self.announced.waiting.extend(told);
    }

    pub(super) fn announce_stop(&self, stop: &Stop) {
        match stop {
            Stop::Gone => {}
            Stop::Deadline => {
                let message = "Pod was active on the node longer than the specified deadline";
                self.shared.normal(&self.pod, "", "DeadlineExceeded", message);
            }
            Stop::Evicted { message } => self.shared.warning(&self.pod, "", "Evicted", message.clone()),
            Stop::Rejected { reason, message } => {
                self.shared.figures.rejected(reason);
                self.shared.warning(&self.pod, "", reason, message.clone());
            }
        }
    }
}
