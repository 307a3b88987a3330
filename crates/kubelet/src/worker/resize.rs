//! Giving a running pod what it was granted: the pod's cgroup makes room first, then the containers, then it fits again.

use std::sync::Arc;

use cri::v1;

use super::admit::Admission;
use super::error::TaskError;
use super::{Done, Worker};
use crate::container::resources;
use crate::moment::Moment;
use crate::plan::{Applied, Busy, Task};
use crate::pod::resources::{Compute, container_compute, pod_compute};
use crate::pod::{Container, Pod};
use crate::resize::{self, Allocation};
use crate::shared::Shared;
use crate::usage::{self, ContainerUsage, PodUsage};

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
        let changes: Vec<Change> = view
            .resizable()
            .map(|(instance, container, before)| Change {
                id: instance.id.clone(),
                container: container.clone(),
                before,
            })
            .collect();
        let (before, target) = (self.progress.pod_applied, view.pod_target());
        let (shared, pod) = (self.shared.clone(), self.pod.clone());
        self.spawn(Task::Resize, Busy::default(), async move {
            Done::Resized(apply(&shared, &pod, before, target, changes).await)
        });
    }
}

/// A running instance, the container as it was granted, and what the instance has now.
struct Change {
    id: String,
    container: Container,
    before: Compute,
}

async fn apply(
    shared: &Arc<Shared>,
    pod: &Arc<Pod>,
    before: Option<Compute>,
    target: Compute,
    changes: Vec<Change>,
) -> Result<(Compute, Vec<Applied>), TaskError> {
    let pod_limit = lowered(before.and_then(|before| before.memory_limit), target.memory_limit);
    check_memory(shared, pod, pod_limit, &changes).await?;
    let limit = async |compute: Compute| {
        let (shared, pod) = (shared.clone(), pod.clone());
        let limited = tokio::task::spawn_blocking(move || shared.cgroups.limit(&pod, compute));
        let limited = limited.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        limited.map_err(TaskError::ChangeCgroup)
    };
    limit(before.map_or(target, |before| before.max(target))).await?;
    let mut applied = Vec::new();
    for Change { id, container, .. } in changes {
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
            compute: container_compute(pod, &container),
            container: container.name,
            id,
        });
    }
    limit(target).await?;
    Ok((target, applied))
}

/// Refuses limits below what is used: the kernel would end processes of the pod to enforce them.
async fn check_memory(shared: &Shared, pod: &Pod, pod_limit: Option<i64>, changes: &[Change]) -> Result<(), TaskError> {
    let lowered: Vec<(&str, i64)> = changes
        .iter()
        .filter_map(|change| {
            let wanted = container_compute(pod, &change.container);
            let limit = lowered(change.before.memory_limit, wanted.memory_limit)?;
            Some((change.container.name.as_str(), limit))
        })
        .collect();
    if pod_limit.is_none() && lowered.is_empty() {
        return Ok(());
    }
    let usage = usage::pod(&*shared.runtime, &pod.metadata.uid).await;
    let usage = usage.map_err(TaskError::MemoryUsage)?.unwrap_or_default();
    match below_usage(pod_limit, &lowered, &usage) {
        refused if refused.is_empty() => Ok(()),
        refused => Err(TaskError::MemoryInUse(refused)),
    }
}

/// The limit that is wanted, if it is lower than the one before.
fn lowered(before: Option<i64>, wanted: Option<i64>) -> Option<i64> {
    wanted.filter(|wanted| before.is_none_or(|before| *wanted < before))
}

/// Which limits are below what is used; empty if none is.
fn below_usage(pod_limit: Option<i64>, containers: &[(&str, i64)], usage: &PodUsage) -> String {
    let used = |container: &ContainerUsage| i64::try_from(container.usage_bytes.unwrap_or(0)).unwrap_or(i64::MAX);
    let total = usage.containers.iter().map(used).fold(0, i64::saturating_add);
    let mut refused = Vec::new();
    if let Some(limit) = pod_limit.filter(|limit| total >= *limit) {
        refused.push(format!(
            "attempting to set pod memory limit ({limit}) below current usage ({total})"
        ));
    }
    for (name, limit) in containers {
        let container = usage.containers.iter().find(|container| container.name == *name);
        if let Some(used) = container.map(used).filter(|used| used >= limit) {
            refused.push(format!(
                "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
            ));
        }
    }
    match refused.len() {
        0 | 1 => refused.concat(),
        _ => format!("[{}]", refused.join(", ")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_below_usage_are_refused_by_name() {
        let container = |name: &str, bytes: u64| ContainerUsage {
            name: name.to_owned(),
            usage_bytes: Some(bytes),
            ..ContainerUsage::default()
        };
        let usage = PodUsage {
            containers: vec![container("a", 100), container("b", 50)],
            ..PodUsage::default()
        };
        assert_eq!(below_usage(Some(151), &[("a", 101), ("b", 51)], &usage), "");
        assert_eq!(
            below_usage(None, &[("a", 100), ("b", 51), ("gone", 1)], &usage),
            r#"attempting to set container "a" memory limit (100) below current usage (100)"#
        );
        assert_eq!(
            below_usage(Some(150), &[("b", 1)], &usage),
            r#"[attempting to set pod memory limit (150) below current usage (150), attempting to set container "b" memory limit (1) below current usage (50)]"#
        );
    }

    #[test]
    fn only_limits_that_become_lower_are_checked() {
        assert_eq!(lowered(None, Some(1)), Some(1));
        assert_eq!(lowered(Some(2), Some(1)), Some(1));
        assert_eq!(lowered(Some(1), Some(1)), None);
        assert_eq!(lowered(Some(1), None), None);
    }
}
