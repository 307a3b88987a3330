//! NodeMetrics: what a node uses of its resources, as its kubelet measured it.

use crate::print::{self, NAME};
use crate::{Column, Fields, Resource, Rules, Value, Verb};

pub static NODE_METRICS: Resource = Resource::cluster("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes", "")
    .with_verbs(&[Verb::Get, Verb::List])
    .not_stored()
    .with_rules(&NodeMetricsRules);

struct NodeMetricsRules;

impl Rules for NodeMetricsRules {
    fn columns(&self) -> &'static [Column] {
        USAGE_COLUMNS
    }

    fn cells(&self, metrics: &Value, _now: i64) -> Vec<Value> {
        let usage = &metrics["usage"];
        vec![
            print::name(metrics),
            usage.text("cpu").into(),
            usage.text("memory").into(),
            metrics.text("window").into(),
        ]
    }
}

/// The columns by which metrics-server prints nodes and pods.
pub const USAGE_COLUMNS: &[Column] = &[
    NAME,
    with_format("cpu", "quantity", "CPU cores that are used, as a rate over the window."),
    with_format("memory", "quantity", "The working set of memory."),
    with_format(
        "Window",
        "duration",
        "The time over which the usage of CPU was measured.",
    ),
];

const fn with_format(name: &'static str, format: &'static str, description: &'static str) -> Column {
    let mut column = print::text(name, description);
    column.format = format;
    column
}
