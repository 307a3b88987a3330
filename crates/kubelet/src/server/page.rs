//! A page of metrics in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::moment::Moment;

/// A metric's name, type and meaning.
pub type Metric = (&'static str, &'static str, &'static str);

/// Metrics, all samples of one together.
#[derive(Default)]
pub struct Page(BTreeMap<Metric, String>);

impl Page {
    pub fn add(&mut self, metric: Metric, labels: &str, value: &str, at: Option<Moment>) {
        let samples = self.0.entry(metric).or_default();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{labels}}}")
        };
        let at = at.map(|at| format!(" {}", at.0)).unwrap_or_default();
        let _ = writeln!(samples, "{}{labels} {value}{at}", metric.0);
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for ((name, kind, meaning), samples) in &self.0 {
            let _ = write!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n{samples}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_metric_stand_together() {
        let pods: Metric = ("pod_bytes", "gauge", "Bytes of a pod");
        let node: Metric = ("node_bytes", "gauge", "Bytes of the node");
        let mut page = Page::default();
        page.add(pods, "pod=\"a\"", "1", Some(Moment(5)));
        page.add(node, "", "3", None);
        page.add(pods, "pod=\"b\"", "2", None);
        expect_test::expect![[r#"
            # HELP node_bytes Bytes of the node
            # TYPE node_bytes gauge
            node_bytes 3
            # HELP pod_bytes Bytes of a pod
            # TYPE pod_bytes gauge
            pod_bytes{pod="a"} 1 5
            pod_bytes{pod="b"} 2
        "#]]
        .assert_eq(&page.text());
    }
}
