//! The priority levels of requests.

use ::metrics::{head, labels, sample};

use crate::fairness::LevelReport;

pub fn write(text: &mut String, levels: &[LevelReport]) {
    type Read = fn(&LevelReport) -> u64;
    let metrics: [(&str, &str, &str, Read); 5] = [
        (
            "nominal_limit_seats",
            "gauge",
            "[BETA] Seats that a level owns.",
            |level| level.nominal as u64,
        ),
        ("current_executing_seats", "gauge", "[BETA] Seats in use.", |level| {
            level.executing as u64
        }),
        (
            "current_inqueue_requests",
            "gauge",
            "[BETA] Requests that wait.",
            |level| level.waiting as u64,
        ),
        (
            "dispatched_requests_total",
            "counter",
            "[BETA] Requests that had a seat.",
            |level| level.dispatched,
        ),
        (
            "rejected_requests_total",
            "counter",
            "[BETA] Requests turned away.",
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
