//! Telling the API how a pod is: one write at a time, only what changed, the newest state when the last one is done.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Patch;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::limits;
use crate::moment::Moment;
use crate::plan::Failure;
use crate::pod::{KnownCondition, Pod};
use crate::shared::Shared;
use crate::status::{Phase, PodStatus, patch};

/// The steps of a pod's start are told together, for a moment later there is more to tell. Nobody sees the difference,
/// and of many pods that start at once most need one write instead of three.
const BETWEEN_STEPS: Duration = Duration::from_millis(250);
/// A running pod whose containers are being started or replaced is told about afterwards, unless that takes longer: a
/// container that is there again after a few milliseconds was never away. Upstream's kubelet looks once a second.
const WHILE_CHANGING: Duration = Duration::from_secs(1);

pub struct Reporter {
    /// When the pod was first seen, and then when it was last written about.
    told_at: Moment,
    /// The conditions as last computed; they date the next ones.
    pub conditions: Vec<KnownCondition>,
    /// The newest status known to be in the API.
    base: Base,
    /// What was compared last: the wanted status and the base's revision.
    compared: Option<u64>,
    /// Whether the API lacks something that was computed.
    pending: bool,
    /// Since when this waits for a change of containers.
    held_since: Option<Moment>,
    writing: bool,
    failure: Option<Failure>,
}

#[derive(Default)]
struct Base {
    revision: u64,
    status: Bytes,
}

/// An object as far as the reporter reads it.
#[derive(Deserialize)]
pub struct Written<'a> {
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    metadata: WrittenMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMetadata {
    resource_version: String,
}

impl Reporter {
    pub fn new(pod: &Pod, now: Moment) -> Reporter {
        Reporter {
            told_at: now,
            conditions: pod.status.conditions.clone(),
            base: Base::default(),
            compared: None,
            pending: false,
            held_since: None,
            writing: false,
            failure: None,
        }
    }

    /// Takes note of an object that the API has.
    pub fn saw(&mut self, object: &[u8]) {
        let Ok(written) = serde_json::from_slice::<Written<'_>>(object) else {
            return;
        };
        let revision = written.metadata.resource_version.parse().unwrap_or(0);
        if revision >= self.base.revision {
            let status = written.status.map_or("{}", RawValue::get);
            self.base = Base {
                revision,
                status: Bytes::copy_from_slice(status.as_bytes()),
            };
        }
    }

    /// Everything computed so far is in the API.
    pub fn is_settled(&self) -> bool {
        !self.pending && !self.writing
    }

    /// The patch to write now, if there is one, and when to look again. `changing`: containers are being started or
    /// replaced.
    pub fn next(
        &mut self,
        pod: &Pod,
        status: &PodStatus,
        changing: bool,
        now: Moment,
    ) -> (Option<Value>, Option<Moment>) {
        self.conditions = status.conditions.iter().map(known).collect();
        let mut hasher = DefaultHasher::new();
        serde_json::to_vec(status).unwrap_or_default().hash(&mut hasher);
        self.base.revision.hash(&mut hasher);
        let compared = Some(hasher.finish());
        let Some(uid) = pod.api_uid() else {
            (self.compared, self.pending) = (None, false);
            return (None, None);
        };
        if self.compared == compared && !self.pending {
            return (None, None);
        }
        self.compared = compared;
        let current = serde_json::from_slice(&self.base.status).unwrap_or(Value::Null);
        let patch = patch::patch(uid, &current, status);
        self.pending = patch.is_some();
        self.held_since = self.held_since.or(Some(now)).filter(|_| self.pending && changing);
        if patch.is_none() || self.writing {
            return (None, None);
        }
        match self.due(pod, status).filter(|due| now < *due) {
            Some(due) => (None, Some(due)),
            None => (patch, None),
        }
    }

    /// A write has begun.
    pub fn begin(&mut self, now: Moment) {
        self.writing = true;
        self.told_at = now;
        self.held_since = None;
    }

    /// A write has ended.
    pub fn done(&mut self, result: Result<Bytes, client::Error>, now: Moment) {
        self.writing = false;
        match result {
            Ok(object) => {
                self.failure = None;
                self.saw(&object);
            }
            // The pod is gone, or a namesake has its place: there is nothing left to tell.
            Err(error) if error.is_not_found() || error.is_conflict() => {
                self.pending = false;
                self.failure = None;
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to update a pod's status; retrying");
                let failure = Failure::after(self.failure.as_ref(), limits::RETRY, limits::RETRY_MAX, now);
                self.failure = Some(failure);
            }
        }
    }

    fn due(&self, pod: &Pod, status: &PodStatus) -> Option<Moment> {
        if let Some(failure) = &self.failure {
            return Some(failure.retry_at());
        }
        match status.phase {
            _ if pod.is_deleting() || !status.reason.is_empty() => None,
            Phase::Pending => Some(self.told_at.plus(BETWEEN_STEPS)),
            Phase::Running => self.held_since.map(|since| since.plus(WHILE_CHANGING)),
            _ => None,
        }
    }
}

/// Writes a patch to the API; the answer is the object as it is then.
pub async fn write(shared: &Arc<Shared>, pod: &Pod, patch: Value) -> Result<Bytes, client::Error> {
    // The semaphore is never closed.
    let _permit = shared.status_writes.acquire().await;
    let pods = shared.client.resource(&api::kinds::pod::POD);
    let api = pods.in_namespace(pod.metadata.namespace.clone()).subresource("status");
    let object: Box<RawValue> = api.patch(&pod.metadata.name, Patch::strategic(&patch)).await?;
    trace::mark("kubelet/status-sent", pod.mark_name(), pod.metadata.uid.clone());
    Ok(Bytes::from(Box::<str>::from(object).into_string().into_bytes()))
}

fn known(condition: &crate::status::Condition) -> KnownCondition {
    KnownCondition {
        kind: condition.kind.to_owned(),
        status: condition.status.to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        last_transition_time: Some(condition.last_transition_time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Origin;
    use crate::testing::NOW;

    /// The pauses after which each status is due, in milliseconds; `step` passes between them.
    fn pauses(pod: &Pod, step: u64, changing: bool, phases: &[Phase]) -> Vec<i64> {
        let mut reporter = Reporter::new(pod, NOW);
        let mut now = NOW;
        let due = phases.iter().enumerate().map(|(number, phase)| {
            now = now.plus(Duration::from_millis(step));
            let status = PodStatus {
                phase: *phase,
                message: number.to_string(),
                ..PodStatus::default()
            };
            let (patch, due) = reporter.next(pod, &status, changing, now);
            if patch.is_some() {
                reporter.begin(now);
                reporter.done(Ok(Bytes::new()), now);
            }
            due.map_or(0, |due| due.0 - now.0)
        });
        due.collect()
    }

    #[test]
    fn steps_of_a_start_wait_for_each_other_and_nothing_else_waits() {
        use Phase::{Failed, Pending, Running};
        let pod = Pod::default();
        assert_eq!(
            pauses(&pod, 100, true, &[Pending, Pending, Pending, Pending]),
            [150, 50, 0, 150]
        );
        assert_eq!(
            pauses(&pod, 100, false, &[Pending, Running, Running, Failed]),
            [150, 0, 0, 0]
        );
        let mut deleted = Pod::default();
        deleted.metadata.deletion_timestamp = Some(NOW);
        assert_eq!(pauses(&deleted, 100, true, &[Pending, Running]), [0, 0]);
    }

    #[test]
    fn a_running_pod_whose_containers_change_waits_for_them_but_not_for_long() {
        use Phase::{Failed, Running};
        let pod = Pod::default();
        assert_eq!(
            pauses(&pod, 400, true, &[Running, Running, Running, Running, Running]),
            [1000, 600, 200, 0, 1000]
        );
        assert_eq!(pauses(&pod, 400, true, &[Running, Failed]), [1000, 0]);
    }

    #[test]
    fn a_static_pod_is_told_of_by_its_mirror_pod_alone() {
        let status = PodStatus {
            phase: Phase::Running,
            ..PodStatus::default()
        };
        let mut pod = Pod::default();
        pod.metadata.uid = "hash".to_owned();
        pod.origin = Origin::Static { mirror_uid: None };
        let mut reporter = Reporter::new(&pod, NOW);
        assert_eq!(reporter.next(&pod, &status, false, NOW), (None, None));
        let mirror_uid = Some("mirror".to_owned());
        pod.origin = Origin::Static { mirror_uid };
        let (patch, _) = reporter.next(&pod, &status, false, NOW);
        assert_eq!(patch.unwrap()["metadata"]["uid"], "mirror");
    }

    #[test]
    fn what_was_held_is_told_when_the_change_is_over() {
        let (pod, mut reporter) = (Pod::default(), Reporter::new(&Pod::default(), NOW));
        let status = PodStatus {
            phase: Phase::Running,
            ..PodStatus::default()
        };
        assert!(reporter.next(&pod, &status, true, NOW).0.is_none());
        let (patch, due) = reporter.next(&pod, &status, false, NOW.plus(Duration::from_millis(5)));
        assert!(patch.is_some() && due.is_none());
    }
}
