//! Giving a running pod what it was granted: the pod's cgroup makes room first, then the containers, then it fits again.

use std::sync::Arc;

use cri::v1;

use super::admit::Admission;
use super::error::TaskError;
use super::{Done, Worker};
use crate::container::resources;
use crate::moment::Moment;
use crate::plan::{Applied, Busy, Task};
use crate::pod::resources::{Compute, pod_compute};
use crate::pod::{Container, Pod};
use crate::resize::{self, Allocation};
use crate::shared::Shared;

/// How often a pod that has to wait for room asks again.
const RECONSIDER: std::time::Duration = std::time::Duration::from_secs(10);

/// What the pod may use of the node.
#[derive(Default)]
pub struct Grant {
    /// What the node has granted the pod; set with the first input.
    pub allocation: Option<Allocation>,
    /// When to ask again for what the node had no room for.
    pub reconsider_at: Option<Moment>,
}

impl Worker {
    /// Lets a pod run with what it was granted, after deciding about what it asks for.
    pub(super) fn allocate(&mut self, pod: &mut Arc<Pod>) {
        let wanted = Allocation::wanted(pod);
        let Some(granted) = &self.grant.allocation else {
            let first = match self.observed.is_empty() && pod.status.container_statuses.is_empty() {
                true => wanted,
                false => Allocation::known(pod),
            };
            self.grant.allocation = Some(first);
            return self.allocate(pod);
        };
        self.progress.resize_pending = None;
        self.grant.reconsider_at = None;
        if !granted.is_same(&wanted) {
            match self.shared.claim(&pod.metadata.uid, pod) {
                Ok(()) => self.grant.allocation = Some(wanted),
                Err(pending) => {
                    let deferred = pending.reason == "Deferred";
                    self.grant.reconsider_at = deferred.then(|| Moment::now().plus(RECONSIDER));
                    self.progress.resize_pending = Some(pending);
                }
            }
        }
        if let Some(granted) = &self.grant.allocation {
            granted.apply(Arc::make_mut(pod));
        }
        if self.admission == Admission::Admitted {
            self.shared.hold(&pod.metadata.uid, pod_compute(pod));
        }
    }

    pub(super) fn resize(&mut self) {
        let view = self.view();
        let changes: Vec<(String, Container)> = view
            .resizable()
            .map(|(instance, container)| (instance.id.clone(), container.clone()))
            .collect();
        let before = self.progress.pod_applied;
        let (shared, pod) = (self.shared.clone(), self.pod.clone());
        self.spawn(Task::Resize, Busy::default(), async move {
            Done::Resized(apply(&shared, &pod, before, changes).await)
        });
    }
}

async fn apply(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    before: Option<Compute>,
    changes: Vec<(String, Container)>,
) -> Result<(Compute, Vec<Applied>), TaskError> {
    let wanted = pod_compute(pod);
    let limit = async |compute: Compute| {
        let (shared, pod) = (shared.clone(), pod.clone());
        let limited = tokio::task::spawn_blocking(move || shared.cgroups.limit(&pod, compute));
        let limited = limited.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        limited.map_err(TaskError::ChangeCgroup)
    };
    limit(before.map_or(wanted, |before| before.max(wanted))).await?;
    let mut applied = Vec::new();
    for (id, container) in changes {
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.clone(),
            linux: Some(resources::of_container(pod, &container, shared.machine)),
            ..v1::UpdateContainerResourcesRequest::default()
        };
        let updated = shared.runtime.update_container_resources(request).await;
        updated.map_err(|source| TaskError::ChangeContainer {
            container: container.name.clone(),
            source,
        })?;
        applied.push(Applied {
            container: container.name,
            id,
            compute: Compute::of(&container.resources),
        });
    }
    limit(wanted).await?;
    Ok((wanted, applied))
}

impl Shared {
    /// Asks whether the node has what a pod wants; if so, it is the pod's.
    fn claim(&self, uid: &str, pod: &Pod) -> Result<(), resize::Pending> {
        let mut held = self.held.lock();
        let others: Vec<Compute> = held
            .iter()
            .filter(|(other, _)| *other != uid)
            .map(|(_, held)| *held)
            .collect();
        resize::judge(pod, &others, &self.allocatable.read())?;
        held.insert(uid.to_owned(), pod_compute(pod));
        Ok(())
    }

    pub(super) fn hold(&self, uid: &str, compute: Compute) {
        self.held.lock().insert(uid.to_owned(), compute);
    }

    /// What a pod held is free again.
    pub fn release(&self, uid: &str) {
        self.held.lock().remove(uid);
    }
}
