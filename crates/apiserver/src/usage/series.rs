//! Rates of CPU from readings of a counter, by the rules of metrics-server.

use std::collections::{BTreeMap, HashMap};

use tokio::time::Instant;

use super::exposition::{PodKey, Sample};

/// The age at which a container that was read once has run long enough for an average since its start.
const FRESH_MS: std::ops::RangeInclusive<i64> = 10_000..=60_000;

/// What a kubelet said of a container or of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When it was measured, by the node's clock.
    pub at_ms: i64,
    /// CPU time used since the start.
    pub cpu_ns: u64,
    pub memory_bytes: u64,
    pub started_ms: Option<i64>,
}

/// What is used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub cpu_nano_cores: u64,
    pub memory_bytes: u64,
    pub at_ms: i64,
    pub window_ms: i64,
}

/// The same for each container of a pod.
#[derive(Debug, PartialEq, Eq)]
pub struct PodUsage<'a> {
    pub containers: Vec<(&'a str, Usage)>,
    /// Of the container that was measured first.
    pub at_ms: i64,
    pub window_ms: i64,
}

/// The last two readings.
#[derive(Clone, Copy, Debug)]
struct Series {
    newest: Reading,
    previous: Option<Reading>,
}

/// A node and what runs on it.
pub struct NodeFigures {
    pub read: Instant,
    node: Option<Series>,
    pods: HashMap<PodKey, BTreeMap<String, Series>>,
}

impl NodeFigures {
    /// The figures after one more look. What is not there any more is forgotten.
    pub fn next(before: Option<&NodeFigures>, sample: Sample, read: Instant) -> NodeFigures {
        let node_before = before.and_then(|before| before.node.as_ref());
        let pods = sample.pods.into_iter().map(|(key, containers)| {
            let pod_before = before.and_then(|before| before.pods.get(&key));
            let containers = containers.into_iter().map(|(name, reading)| {
                let series = pod_before.and_then(|pod| pod.get(&name));
                (name, Series::next(series, reading))
            });
            let containers = containers.collect();
            (key, containers)
        });
        NodeFigures {
            read,
            node: sample.node.map(|reading| Series::next(node_before, reading)),
            pods: pods.collect(),
        }
    }

    pub fn usage(&self) -> Option<Usage> {
        self.node.as_ref()?.usage()
    }

    /// What a pod uses; nothing until it is known of all of its containers that run.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<PodUsage<'_>> {
        let series = self.pods.get(&(namespace.to_owned(), name.to_owned()))?;
        let usages = series
            .iter()
            .map(|(name, series)| Some((name.as_str(), series.usage()?)));
        let containers: Vec<(&str, Usage)> = usages.collect::<Option<_>>()?;
        let (_, first) = containers.iter().min_by_key(|(_, usage)| usage.at_ms)?;
        Some(PodUsage {
            at_ms: first.at_ms,
            window_ms: first.window_ms,
            containers,
        })
    }
}

impl Series {
    fn next(before: Option<&Series>, reading: Reading) -> Series {
        let Some(before) = before else {
            return Series::first(reading);
        };
        let last = &before.newest;
        if reading.at_ms <= last.at_ms && !reading.has_restarted_since(last) {
            // Kubelets measure when it suits them, and tell the same until they measure again.
            return *before;
        }
        if reading.has_restarted_since(last) {
            return Series::first(reading);
        }
        Series {
            newest: reading,
            previous: Some(*last),
        }
    }

    fn first(reading: Reading) -> Series {
        let start = reading.started_ms.filter(|start| {
            let age = reading.at_ms.checked_sub(*start);
            age.is_some_and(|age| FRESH_MS.contains(&age))
        });
        Series {
            newest: reading,
            previous: start.map(|at_ms| Reading {
                at_ms,
                cpu_ns: 0,
                ..reading
            }),
        }
    }

    fn usage(&self) -> Option<Usage> {
        let previous = self.previous?;
        let window_ms = self
            .newest
            .at_ms
            .checked_sub(previous.at_ms)
            .filter(|window| *window > 0)?;
        let used_ns = u128::from(self.newest.cpu_ns.checked_sub(previous.cpu_ns)?);
        let cpu_nano_cores = used_ns * 1000 / u128::try_from(window_ms).ok()?;
        Some(Usage {
            cpu_nano_cores: u64::try_from(cpu_nano_cores).unwrap_or(u64::MAX),
            memory_bytes: self.newest.memory_bytes,
            at_ms: self.newest.at_ms,
            window_ms,
        })
    }
}

impl Reading {
    fn has_restarted_since(&self, last: &Reading) -> bool {
        let starts = self.started_ms.zip(last.started_ms);
        self.cpu_ns < last.cpu_ns || starts.is_some_and(|(now, then)| now > then)
    }
}
