//! The figures of work queues, under upstream's names.

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, Page, Table, exponential, head, labels, number, sample};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Upper bounds in seconds, upstream's.
const SECONDS: &[f64] = &exponential::<10>(10e-9, 10.0);

/// The work queues of a component. Those of the same name are counted together.
pub struct QueueMetrics(Table<Arc<QueueFigures>>);

pub struct QueueFigures {
    adds: Counter,
    retries: Counter,
    depth: Gauge,
    waits: Histogram,
    works: Histogram,
    /// When the work that is under way began; as many as there are workers at most.
    running: Mutex<Vec<Instant>>,
}

impl QueueMetrics {
    pub(super) fn of(&self, name: &str) -> Arc<QueueFigures> {
        self.0.find(name, || labels(&[("name", name)])).value.clone()
    }

    fn write_running(&self, text: &mut String, now: Instant) {
        let ages = |figures: &QueueFigures| -> Vec<f64> {
            let running = figures.running.lock();
            let age = |begun: &Instant| now.saturating_duration_since(*begun).as_secs_f64();
            running.iter().map(age).collect()
        };
        let name = "workqueue_unfinished_work_seconds";
        head(text, name, "gauge", "[BETA] How long the work under way has taken.");
        self.0.each(|labels, figures| {
            let total = ages(figures).iter().fold(0.0, |total, age| total + age);
            sample(text, name, labels, number(total));
        });
        let name = "workqueue_longest_running_processor_seconds";
        head(
            text,
            name,
            "gauge",
            "[BETA] How long the oldest work under way has taken.",
        );
        self.0.each(|labels, figures| {
            let longest = ages(figures).into_iter().fold(0.0, f64::max);
            sample(text, name, labels, number(longest));
        });
    }
}

impl Default for QueueMetrics {
    fn default() -> QueueMetrics {
        QueueMetrics(Table::new(Arc::default))
    }
}

impl Page for QueueMetrics {
    fn write(&self, text: &mut String) {
        let table = &self.0;
        let help = "[BETA] Keys that were added.";
        table.write(text, "workqueue_adds_total", help, |queue| Some(&queue.adds));
        let help = "[BETA] Keys that wait.";
        table.write(text, "workqueue_depth", help, |queue| Some(&queue.depth));
        let help = "[BETA] How long keys waited.";
        table.write(text, "workqueue_queue_duration_seconds", help, |queue| {
            Some(&queue.waits)
        });
        let help = "[BETA] Keys that were added for later.";
        table.write(text, "workqueue_retries_total", help, |queue| Some(&queue.retries));
        let help = "[BETA] How long work on keys took.";
        table.write(text, "workqueue_work_duration_seconds", help, |queue| {
            Some(&queue.works)
        });
        self.write_running(text, Instant::now());
    }
}

impl Default for QueueFigures {
    fn default() -> QueueFigures {
        QueueFigures {
            adds: Counter::new(),
            retries: Counter::new(),
            depth: Gauge::new(),
            waits: Histogram::of_seconds(SECONDS),
            works: Histogram::of_seconds(SECONDS),
            running: Mutex::default(),
        }
    }
}

impl QueueFigures {
    pub(super) fn added(&self) {
        self.adds.add(1);
        self.depth.add(1);
    }

    pub(super) fn postponed(&self) {
        self.retries.add(1);
    }

    pub(super) fn begun(&self, waiting_since: Instant, now: Instant) {
        self.depth.add(-1);
        self.waits
            .observe(now.saturating_duration_since(waiting_since).as_secs_f64());
        self.running.lock().push(now);
    }

    pub(super) fn done(&self, begun: Instant, now: Instant) {
        self.works.observe(now.saturating_duration_since(begun).as_secs_f64());
        self.gone(begun);
    }

    /// A queue has ended with so many keys waiting, and with work under way that began then.
    pub(super) fn ended(&self, waiting: usize, begun: impl Iterator<Item = Instant>) {
        self.depth.add(-(waiting as i64));
        begun.for_each(|begun| self.gone(begun));
    }

    fn gone(&self, begun: Instant) {
        let mut running = self.running.lock();
        if let Some(at) = running.iter().position(|other| *other == begun) {
            running.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::queue::QueueState;
    use crate::{Backoff, WorkQueue};

    const SECOND: Duration = Duration::from_secs(1);

    fn text(metrics: &QueueMetrics) -> String {
        let mut text = String::new();
        metrics.write(&mut text);
        text
    }

    #[track_caller]
    fn check(metrics: &QueueMetrics, lines: &[&str]) {
        let text = text(metrics);
        for line in lines {
            assert!(text.lines().any(|found| found == *line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn keys_are_counted_and_timed_from_being_added_to_being_done() {
        let (metrics, now) = (QueueMetrics::default(), Instant::now());
        let mut queue = QueueState::new(Backoff::new(SECOND, SECOND), metrics.of("job"));
        queue.add("a", now);
        queue.add("a", now + SECOND);
        queue.add("b", now);
        check(
            &metrics,
            &[
                "workqueue_adds_total{name=\"job\"} 2",
                "workqueue_depth{name=\"job\"} 2",
            ],
        );
        assert_eq!(queue.next(now + 2 * SECOND), Some("a"));
        queue.add("a", now + 3 * SECOND);
        queue.done(&"a", now + 6 * SECOND);
        queue.retry("c", now);
        check(
            &metrics,
            &[
                "workqueue_adds_total{name=\"job\"} 3",
                "workqueue_depth{name=\"job\"} 2",
                "workqueue_retries_total{name=\"job\"} 1",
                "workqueue_queue_duration_seconds_bucket{name=\"job\",le=\"1\"} 0",
                "workqueue_queue_duration_seconds_sum{name=\"job\"} 2",
                "workqueue_work_duration_seconds_bucket{name=\"job\",le=\"10\"} 1",
                "workqueue_work_duration_seconds_sum{name=\"job\"} 4",
                "workqueue_unfinished_work_seconds{name=\"job\"} 0",
            ],
        );
        drop(queue);
        check(&metrics, &["workqueue_depth{name=\"job\"} 0"]);
    }

    #[tokio::test]
    async fn work_under_way_is_told_until_it_is_done() {
        let metrics = QueueMetrics::default();
        let queue = WorkQueue::named("job", &metrics);
        queue.add(1);
        queue.next().await;
        let (unfinished, longest) = (
            "workqueue_unfinished_work_seconds",
            "workqueue_longest_running_processor_seconds",
        );
        let now = Instant::now() + 100 * SECOND;
        let told = |name: &str| {
            let mut text = String::new();
            metrics.write_running(&mut text, now);
            let line = text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
        };
        assert!(
            told(unfinished) >= 100.0 && told(longest) >= 100.0,
            "{}",
            text(&metrics)
        );
        queue.done(&1);
        assert_eq!((told(unfinished), told(longest)), (0.0, 0.0));
    }
}
