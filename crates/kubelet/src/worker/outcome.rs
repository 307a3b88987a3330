//! What follows from the end of a task.

use super::Worker;
use super::error::TaskError;
use super::image::{NoImage, ReadyImage};
use super::message::Done;
use super::start::StartError;
use crate::limits;
use crate::moment::Moment;
use crate::plan::{Failure, Image, Task, Volumes};

impl Worker {
    /// Takes in how a task ended: what there is now, or when it is tried again.
    pub(super) fn settle_end(&mut self, task: Task, done: Done) {
        let now = Moment::now();
        let retry = |before: Option<&Failure>| Failure::after(before, limits::RETRY, limits::RETRY_MAX, now);
        match done {
            Done::Mounted(Ok(volumes)) => {
                self.shared.volumes.put(&self.pod, volumes.clone());
                self.volumes.mounted = volumes;
                self.progress.volumes = Volumes::Mounted;
                self.volumes.refresh_at = Some(self.next_refresh(now));
            }
            Done::Mounted(Err(error)) => {
                let (reason, error) = (error.reason(), error.to_string());
                self.shared.warning(&self.pod, "", reason, error.clone());
                if self.progress.volumes == Volumes::Mounted {
                    // They are there, only out of date.
                    self.volumes.refresh_at = Some(now.plus(limits::RETRY_MAX));
                    return;
                }
                let before = match &self.progress.volumes {
                    Volumes::Failed(before) => Some(before),
                    _ => None,
                };
                self.progress.volumes = Volumes::Failed(retry(before).because("FailedMount", error));
            }
            Done::Unmounted(Ok(())) => {
                self.shared.volumes.remove(&self.pod.metadata.uid);
                self.progress.volumes = Volumes::Unmounted;
            }
            Done::SandboxCreated(Ok(sandbox)) => {
                self.progress.sandbox = None;
                self.take_sandbox(sandbox);
            }
            Done::SandboxCreated(Err(error)) => {
                let error = error.to_string();
                let message = format!("Failed to create pod sandbox: {error}");
                self.shared.warning(&self.pod, "", "FailedCreatePodSandBox", message);
                if self.progress.sandbox.is_none() {
                    self.shared.figures.pod_failed(&self.pod);
                }
                let failure = retry(self.progress.sandbox.as_ref());
                self.progress.sandbox = Some(failure.because("CreatePodSandboxError", error));
            }
            Done::Image(container, result) => self.image_done(container, result, now),
            Done::Started(container, result) => {
                self.count_start(&container, result.as_ref().err().map(StartError::reason));
                let progress = self.progress.container_mut(&container);
                if result.is_err() && progress.failure.is_none() {
                    self.shared.figures.pod_failed(&self.pod);
                }
                progress.image = Image::Unknown;
                progress.failure = result
                    .err()
                    .map(|error| retry(progress.failure.as_ref()).because(error.reason(), error.to_string()));
            }
            Done::Resized(Ok((pod, applied))) => {
                self.progress.pod_applied = Some(pod);
                for applied in applied {
                    let progress = self.progress.container_mut(&applied.container);
                    progress.applied = Some(applied);
                }
                self.settle(task, Ok(()), now);
            }
            Done::Resized(Err(error)) => self.settle(task, Err(error), now),
            Done::Plain(result) | Done::Unmounted(result) => self.settle(task, result, now),
            Done::Cleaned(Ok(())) => self.finished = true,
            Done::Cleaned(result) => self.settle(task, result, now),
        }
    }

    fn count_start(&self, container: &str, failed: Option<&str>) {
        let figures = &self.shared.figures;
        match (self.pod.container(container), failed) {
            (Some((kind, _)), None) => figures.container_started(kind),
            (Some((kind, _)), Some(reason)) => figures.container_failed(kind, reason),
            (None, _) => {}
        }
    }

    fn settle(&mut self, task: Task, result: Result<(), TaskError>, now: Moment) {
        match result {
            Ok(()) => _ = self.progress.failed.remove(&task),
            Err(error) => {
                tracing::warn!(pod = self.pod.key(), ?task, %error, "A task failed and will be retried");
                let before = self.progress.failed.get(&task);
                let failure = Failure::after(before, limits::RETRY, limits::RETRY_MAX, now);
                self.progress
                    .failed
                    .insert(task, failure.because("", error.to_string()));
            }
        }
    }

    fn image_done(&mut self, container: String, result: Result<ReadyImage, NoImage>, now: Moment) {
        let progress = self.progress.container_mut(&container);
        match result {
            Ok(image) => {
                trace::mark(
                    "kubelet/image-ready",
                    self.pod.mark_name(),
                    self.pod.metadata.uid.clone(),
                );
                progress.image = Image::Ready(image.reference.clone());
                self.images.insert(container, image);
            }
            Err(error) => {
                let before = match &progress.image {
                    Image::Failed(before) => Some(before),
                    _ => None,
                };
                let failure = Failure::after(before, limits::PULL_BACKOFF, limits::PULL_BACKOFF_MAX, now);
                progress.image = Image::Failed(failure.because(error.reason, error.message));
            }
        }
    }
}
