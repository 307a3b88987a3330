//! How long a job waits before it replaces pods that failed.

use std::time::Duration;

use client::when::Moment;

use super::model::{Job, failures_before};
use crate::model::{Pod, created};

/// The pause after the first failure; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(600);

/// What is left of the pause after the failures since the last success, as the job's pods tell of them.
pub fn remaining<'a>(job: &Job, pods: impl Iterator<Item = &'a Pod>, now: Moment) -> Duration {
    let (mut failed, mut last_success) = (Vec::new(), None);
    for pod in pods {
        let at = finished(pod);
        if pod.status.phase == "Succeeded" {
            last_success = last_success.max(Some(at));
        } else if job.is_failed(pod) {
            failed.push(at);
        }
    }
    let since = failed
        .iter()
        .filter(|at| last_success.is_none_or(|success| **at > success));
    let failures = since.clone().count();
    match since.max() {
        Some(last) => pause(failures).saturating_sub(now.since(*last)),
        None => Duration::ZERO,
    }
}

/// What is left of the pause of an index whose last pod this is.
pub fn remaining_of_index(last: &Pod, now: Moment) -> Duration {
    let (counted, ignored) = failures_before(last);
    let failures = usize::try_from(counted + ignored + 1).unwrap_or(usize::MAX);
    pause(failures).saturating_sub(now.since(finished(last)))
}

fn pause(failures: usize) -> Duration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause = 2u32.checked_pow(doublings).and_then(|factor| FIRST.checked_mul(factor));
    pause.unwrap_or(LONGEST).min(LONGEST)
}

/// When the pod ended: with its last container, or when it was found not ready, or deleted, as far as that is known.
pub fn finished(pod: &Pod) -> Moment {
    let sidecars = pod.status.init_container_statuses.iter().filter(|status| {
        let mut specs = pod.spec.init_containers.iter();
        specs.any(|container| container.name == status.name && container.restart_policy == "Always")
    });
    let ends: Option<Vec<Moment>> = pod
        .status
        .container_statuses
        .iter()
        .chain(sidecars)
        .map(|status| Moment::parse(&status.state.terminated.as_ref()?.finished_at))
        .collect();
    if let Some(last) = ends.and_then(|ends| ends.into_iter().max()) {
        return last;
    }
    if !pod.is_ready()
        && let Some(since) = pod.ready_since()
    {
        return since;
    }
    let deleted = pod.metadata.deletion_timestamp.as_deref().and_then(Moment::parse);
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    match deleted {
        Some(deleted) => Moment::from_seconds(deleted.seconds() - grace),
        None => created(&pod.metadata),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_ten_minutes() {
        let pauses: Vec<u64> = [1, 2, 3, 7, 8, 1000].map(|failures| pause(failures).as_secs()).to_vec();
        assert_eq!(pauses, [10, 20, 40, 600, 600, 600]);
    }
}
