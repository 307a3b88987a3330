//! The priority levels of requests.

use ::metrics::{head, labels, sample};

use crate::fairness::LevelReport;

pub fn write(text: &mut String, levels: &[LevelReport]) {
    type Read = fn(&LevelReport) -> u64;
    let metrics: [(&str, &str, &str, Read); 5] = [
        (
            "nominal_limit_seats",
            "gauge",
            "[BETA] Nominal number of execution seats of the priority level.",
            |level| level.nominal as u64,
        ),
        (
            "current_executing_seats",
            "gauge",
            "[BETA] Execution seats in use.",
            |level| level.executing as u64,
        ),
        (
            "current_inqueue_requests",
            "gauge",
            "[BETA] Requests waiting in queues.",
            |level| level.waiting as u64,
        ),
        (
            "dispatched_requests_total",
            "counter",
            "[BETA] Requests that were executed.",
            |level| level.dispatched,
        ),
        (
            "rejected_requests_total",
            "counter",
            "[BETA] Requests that were rejected.",
            |level| level.rejected,
        ),
    ];
    for (name, kind, help, read) in metrics {
        let name = format!("apiserver_flowcontrol_{name}");
        head(text, &name, kind, help);
        for level in levels {
            sample(text, &name, &labels(&[("priority_level", &level.level)]), read(level));
        }
    }
}
