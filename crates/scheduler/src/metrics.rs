//! The scheduler's figures, under upstream's names.

use std::time::Duration;

use ::metrics::{Counter, Family, Gauge, Histogram, Page, Table, exponential, head, labels, sample};
use tokio::time::Instant;

use crate::core::Decision;
use crate::queue::Pending;
use crate::queued_pod::QueuedPod;

/// Upper bounds, upstream's: of attempts in seconds, of pods in seconds, of attempts per pod, of victims.
const ATTEMPT_SECONDS: &[f64] = &exponential::<15>(0.001, 2.0);
const POD_SECONDS: &[f64] = &exponential::<20>(0.01, 2.0);
const ATTEMPTS: &[f64] = &exponential::<5>(1.0, 2.0);
const VICTIMS: &[f64] = &exponential::<7>(1.0, 2.0);

/// Pods that took so many attempts or more are told together.
const MANY_ATTEMPTS: u32 = 15;

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempted {
    Scheduled,
    Unschedulable,
    Error,
}

pub struct SchedulerMetrics {
    /// By profile and result.
    attempts: Table<Histogram>,
    decisions: Histogram,
    /// By how many attempts they took.
    pods: Family<Histogram>,
    attempts_per_pod: Histogram,
    preemptions: Counter,
    victims: Histogram,
    pending: [(&'static str, Gauge); 4],
}

impl Default for SchedulerMetrics {
    fn default() -> SchedulerMetrics {
        SchedulerMetrics {
            attempts: Table::new(|| Histogram::of_seconds(ATTEMPT_SECONDS)),
            decisions: Histogram::of_seconds(ATTEMPT_SECONDS),
            pods: Family::new(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "[BETA] How long pods waited for their nodes, by how many attempts they took.",
                || Histogram::of_seconds(POD_SECONDS),
            ),
            attempts_per_pod: Histogram::of_numbers(ATTEMPTS),
            preemptions: Counter::new(),
            victims: Histogram::of_numbers(VICTIMS),
            pending: ["active", "backoff", "gated", "unschedulable"].map(|queue| (queue, Gauge::new())),
        }
    }
}

impl SchedulerMetrics {
    /// A decision was made, which took so long.
    pub fn decided(&self, decision: &Decision, took: Duration) {
        self.decisions.observe(took.as_secs_f64());
        if let Some(preemption) = &decision.preemption {
            self.victims.observe(preemption.victims.len() as f64);
        }
        let failure = decision.result.as_ref().err();
        let asked = failure.is_some_and(|failure| !failure.post_filter.is_empty());
        if asked || decision.preemption.is_some() {
            self.preemptions.add(1);
        }
    }

    /// An attempt has ended, with the writes that it brought.
    pub fn attempted(&self, queued: &QueuedPod, what: Attempted, begun: Instant, now: Instant) {
        let result = match what {
            Attempted::Scheduled => "scheduled",
            Attempted::Unschedulable => "unschedulable",
            Attempted::Error => "error",
        };
        let profile = &queued.pod.scheduler_name;
        let made = || labels(&[("profile", profile), ("result", result)]);
        let attempts = self.attempts.find((profile, result), made);
        let seconds = |since: Instant| now.saturating_duration_since(since).as_secs_f64();
        attempts.value.observe(seconds(begun));
        if what == Attempted::Scheduled {
            self.attempts_per_pod.observe(f64::from(queued.attempts));
            let many = queued.attempts.min(MANY_ATTEMPTS);
            let pods = self.pods.find(many, || labels(&[("attempts", &attempts_label(many))]));
            pods.value.observe(seconds(queued.entered));
        }
    }

    pub fn pending(&self, pending: Pending) {
        let counts = [pending.active, pending.backoff, pending.gated, pending.unschedulable];
        for ((_, gauge), count) in self.pending.iter().zip(counts) {
            gauge.set(count as i64);
        }
    }
}

fn attempts_label(attempts: u32) -> String {
    match attempts {
        MANY_ATTEMPTS.. => format!("{MANY_ATTEMPTS}+"),
        few => few.to_string(),
    }
}

impl Page for SchedulerMetrics {
    fn write(&self, text: &mut String) {
        let name = "scheduler_schedule_attempts_total";
        head(
            text,
            name,
            "counter",
            "[STABLE] Attempts to find a node, by their results.",
        );
        self.attempts
            .each(|labels, attempts| sample(text, name, labels, attempts.count()));
        let name = "scheduler_scheduling_attempt_duration_seconds";
        let help = "[STABLE] How long attempts took with the writing of bindings.";
        self.attempts.write(text, name, help, |attempts| Some(attempts));
        self.pods.write(text);
        let name = "scheduler_pending_pods";
        head(
            text,
            name,
            "gauge",
            "[STABLE] Pods without a node, by what they wait for.",
        );
        for (queue, pods) in &self.pending {
            sample(text, name, &labels(&[("queue", queue)]), pods.get());
        }
        let name = "scheduler_scheduling_algorithm_duration_seconds";
        one(text, name, "[ALPHA] How long decisions took.", &self.decisions);
        let name = "scheduler_pod_scheduling_attempts";
        let help = "[STABLE] How many attempts it took until pods had nodes.";
        one(text, name, help, &self.attempts_per_pod);
        let name = "scheduler_preemption_attempts_total";
        one(text, name, "[STABLE] Attempts to make room.", &self.preemptions);
        let name = "scheduler_preemption_victims";
        one(
            text,
            name,
            "[STABLE] Pods that had to leave for one other.",
            &self.victims,
        );
    }
}

/// A metric without labels.
fn one<S: ::metrics::Sample>(text: &mut String, name: &str, help: &str, value: &S) {
    head(text, name, S::TYPE, help);
    value.write(text, name, "");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pod::Pod;
    use crate::queue::SchedulingQueue;

    const SECOND: Duration = Duration::from_secs(1);

    fn pod(uid: &str) -> Arc<Pod> {
        let mut pod = Pod {
            scheduler_name: "default-scheduler".to_owned(),
            ..Pod::default()
        };
        pod.metadata.uid = uid.to_owned();
        Arc::new(pod)
    }

    #[track_caller]
    fn check(metrics: &SchedulerMetrics, lines: &[&str]) {
        let mut text = String::new();
        metrics.write(&mut text);
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn attempts_are_counted_by_result_and_pods_timed_since_they_came() {
        let (metrics, now) = (SchedulerMetrics::default(), Instant::now());
        let mut queue = SchedulingQueue::default();
        queue.add(pod("a"), false, now);
        let first = queue.pop(now).unwrap();
        metrics.attempted(&first, Attempted::Unschedulable, now, now + SECOND);
        queue.unschedulable(first, now + SECOND);
        queue.unblock(|_| true, now + 4 * SECOND);
        let second = queue.pop(now + 4 * SECOND).unwrap();
        metrics.attempted(&second, Attempted::Scheduled, now + 4 * SECOND, now + 5 * SECOND);
        let scheduled = "profile=\"default-scheduler\",result=\"scheduled\"";
        check(
            &metrics,
            &[
                "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"unschedulable\"} 1",
                &format!("scheduler_schedule_attempts_total{{{scheduled}}} 1"),
                &format!("scheduler_scheduling_attempt_duration_seconds_sum{{{scheduled}}} 1"),
                "scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"} 5",
                "scheduler_pod_scheduling_attempts_bucket{le=\"1\"} 0",
                "scheduler_pod_scheduling_attempts_bucket{le=\"2\"} 1",
            ],
        );
    }

    #[test]
    fn pods_without_a_node_are_told_by_what_they_wait_for() {
        let (metrics, now) = (SchedulerMetrics::default(), Instant::now());
        let mut queue = SchedulingQueue::default();
        queue.add(pod("a"), false, now);
        queue.add(pod("b"), false, now);
        queue.add(pod("gated"), true, now);
        let tried = queue.pop(now).unwrap();
        queue.failed(tried, now);
        metrics.pending(queue.pending());
        check(
            &metrics,
            &[
                "scheduler_pending_pods{queue=\"active\"} 1",
                "scheduler_pending_pods{queue=\"backoff\"} 1",
                "scheduler_pending_pods{queue=\"gated\"} 1",
                "scheduler_pending_pods{queue=\"unschedulable\"} 0",
            ],
        );
    }
}
