//! How health checks came out, on a page of their own.

use ::metrics::{Counter, Family, Gauge, labels, process};

pub struct HealthFigures {
    last: Family<Gauge>,
    all: Family<Counter>,
}

impl Default for HealthFigures {
    fn default() -> HealthFigures {
        HealthFigures {
            last: Family::new(
                "kubernetes_healthcheck",
                "[STABLE] This metric records the result of a single healthcheck.",
                Gauge::new,
            ),
            all: Family::new(
                "kubernetes_healthchecks_total",
                "[STABLE] This metric records the results of all healthcheck.",
                Counter::new,
            ),
        }
    }
}

impl HealthFigures {
    /// Notes how a check of an endpoint came out.
    pub fn checked(&self, endpoint: &str, name: &str, passed: bool) {
        let last = self
            .last
            .find((endpoint, name), || labels(&[("name", name), ("type", endpoint)]));
        last.value.set(i64::from(passed));
        let status = if passed { "success" } else { "error" };
        let all = self.all.find((endpoint, name, passed), || {
            labels(&[("name", name), ("status", status), ("type", endpoint)])
        });
        all.value.add(1);
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        self.last.write(&mut text);
        self.all.write(&mut text);
        // Of the process only when it began: figures from before that are another's.
        let mut process = String::new();
        process::write(&mut process);
        let start = process
            .lines()
            .filter(|line| line.contains("process_start_time_seconds"));
        start.for_each(|line| text.extend([line, "\n"]));
        text
    }
}
