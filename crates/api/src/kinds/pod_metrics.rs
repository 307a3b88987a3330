//! PodMetrics: what the containers of a pod use of resources, as the kubelet of their node measured it.

use schema::quantity::Quantity;

use super::node_metrics::USAGE_COLUMNS;
use crate::{Column, Fields, Resource, Rules, Value, Verb, print};

pub static POD_METRICS: Resource = Resource::namespaced("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", "")
    .with_verbs(&[Verb::Get, Verb::List])
    .not_stored()
    .with_rules(&PodMetricsRules);

struct PodMetricsRules;

impl Rules for PodMetricsRules {
    fn columns(&self) -> &'static [Column] {
        USAGE_COLUMNS
    }

    fn cells(&self, metrics: &Value, _now: i64) -> Vec<Value> {
        vec![
            print::name(metrics),
            total(metrics, "cpu").into(),
            total(metrics, "memory").into(),
            metrics.text("window").into(),
        ]
    }
}

/// What all containers use together.
fn total(metrics: &Value, resource: &str) -> String {
    let mut total = Quantity::ZERO;
    let containers = metrics.list("containers").iter();
    let amounts = containers.filter_map(|container| container["usage"].text(resource).parse::<Quantity>().ok());
    amounts.for_each(|amount| total.add(&amount));
    total.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_shows_what_all_containers_use_together() {
        let container = |cpu: &str, memory: &str| json!({"usage": {"cpu": cpu, "memory": memory}});
        let metrics = json!({
            "metadata": {"name": "web"}, "window": "15s",
            "containers": [container("1500n", "512Ki"), container("500n", "512Ki")],
        });
        let cells = POD_METRICS.rules.cells(&metrics, 0);
        assert_eq!(cells, ["web", "2u", "1Mi", "15s"].map(Value::from));
    }
}
