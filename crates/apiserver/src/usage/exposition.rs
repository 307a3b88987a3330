//! The page `/metrics/resource` of a kubelet, in the text format of Prometheus.
//!
//! A node may say what it likes of itself. What cannot be true is left out, and so is what would be too much to keep.

use std::collections::{BTreeMap, HashMap};

use super::series::Reading;

/// Far more containers than a node can run.
const MAX_CONTAINERS: usize = 8192;
/// The last instant that a timestamp can say, in milliseconds: the end of the year 9999.
const LAST_MOMENT_MS: i64 = 253_402_300_799_999;
/// The longest name of a pod.
const MAX_NAME: usize = 253;

/// Namespace and name.
pub type PodKey = (String, String);

/// One look at a node.
#[derive(Debug, Default, PartialEq)]
pub struct Sample {
    pub node: Option<Reading>,
    pub pods: HashMap<PodKey, BTreeMap<String, Reading>>,
}

/// The parts of a reading, which stand in different lines.
#[derive(Default)]
struct Parts {
    cpu: Option<(u64, i64)>,
    memory_bytes: Option<u64>,
    started_ms: Option<i64>,
}

struct Line<'a> {
    metric: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    value: f64,
    at_ms: Option<i64>,
}

impl Sample {
    /// Reads a page. Values without a time of their own were measured at `now_ms`.
    pub fn parse(page: &str, now_ms: i64) -> Sample {
        let mut node = Parts::default();
        let mut containers: BTreeMap<(&str, &str, &str), Parts> = BTreeMap::new();
        for line in page.lines().filter_map(Line::parse) {
            let (prefix, quantity) = line.metric.split_once('_').unwrap_or_default();
            match prefix {
                "node" => node.take(quantity, &line, now_ms),
                "container" => {
                    let Some(key) = line.container() else { continue };
                    if containers.len() < MAX_CONTAINERS || containers.contains_key(&key) {
                        containers.entry(key).or_default().take(quantity, &line, now_ms);
                    }
                }
                _ => {}
            }
        }
        let mut sample = Sample {
            node: node.reading(),
            pods: HashMap::new(),
        };
        for ((namespace, pod, container), parts) in containers {
            if let Some(reading) = parts.reading() {
                let pod = sample.pods.entry((namespace.to_owned(), pod.to_owned())).or_default();
                pod.insert(container.to_owned(), reading);
            }
        }
        sample
    }
}

impl Parts {
    fn take(&mut self, quantity: &str, line: &Line<'_>, now_ms: i64) {
        let at_ms = line.at_ms.unwrap_or(now_ms);
        match quantity {
            "cpu_usage_seconds_total" => self.cpu = Some(((line.value * 1e9) as u64, at_ms)),
            "memory_working_set_bytes" => self.memory_bytes = Some(line.value as u64),
            "start_time_seconds" => self.started_ms = Some((line.value * 1e3) as i64),
            _ => {}
        }
    }

    fn reading(&self) -> Option<Reading> {
        let (cpu_ns, at_ms) = self.cpu?;
        Some(Reading {
            at_ms,
            cpu_ns,
            memory_bytes: self.memory_bytes?,
            started_ms: self.started_ms,
        })
    }
}

impl<'a> Line<'a> {
    /// A line with a value that can be true; nothing for comments and for all else.
    fn parse(line: &'a str) -> Option<Line<'a>> {
        let end = line.find(['{', ' '])?;
        let (metric, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => parse_labels(rest)?,
            None => (BTreeMap::new(), rest),
        };
        let mut words = rest.split_ascii_whitespace();
        let value: f64 = words.next()?.parse().ok()?;
        let at_ms = match words.next() {
            Some(text) => Some(text.parse().ok().filter(|at| (0..=LAST_MOMENT_MS).contains(at))?),
            None => None,
        };
        (value.is_finite() && value >= 0.0).then_some(Line {
            metric,
            labels,
            value,
            at_ms,
        })
    }

    /// The namespace, pod and name of the container that the line is about.
    fn container(&self) -> Option<(&'a str, &'a str, &'a str)> {
        let label = |name| {
            let value = self.labels.get(name).copied();
            value.filter(|value| (1..=MAX_NAME).contains(&value.len()))
        };
        Some((label("namespace")?, label("pod")?, label("container")?))
    }
}

/// Labels up to their closing brace, and what follows it. No name of an object needs an escape.
fn parse_labels(text: &str) -> Option<(BTreeMap<&str, &str>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = after.split_once('"')?;
        if value.contains('\\') {
            return None;
        }
        labels.insert(name.trim(), value);
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}
