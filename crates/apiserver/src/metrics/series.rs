//! Time series and how they are written in the Prometheus text format.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;

/// Series beyond this bound are counted together, so that made-up paths cannot fill memory.
pub const MAX_SERIES: usize = 4096;

/// The time series of one metric.
pub struct Family<T> {
    name: &'static str,
    help: &'static str,
    make: fn() -> T,
    /// By the hash of their labels.
    series: RwLock<HashMap<u64, Arc<Series<T>>>>,
}

pub struct Series<T> {
    labels: String,
    pub value: T,
}

/// A value that a series can have.
pub trait Sample {
    const TYPE: &'static str;

    fn write(&self, text: &mut String, name: &str, labels: &str);
}

/// Only ever grows.
pub struct Counter(AtomicU64);

pub struct Gauge(AtomicI64);

pub struct Histogram {
    bounds: &'static [f64],
    buckets: Vec<AtomicU64>,
    count: AtomicU64,
    sum_millionths: AtomicU64,
}

impl<T: Sample> Family<T> {
    pub fn new(name: &'static str, help: &'static str, make: fn() -> T) -> Family<T> {
        Family {
            name,
            help,
            make,
            series: RwLock::default(),
        }
    }

    /// The series that `key` stands for; its labels are made when it is new.
    pub fn find(&self, key: impl Hash, labels: impl FnOnce() -> String) -> Arc<Series<T>> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let key = hasher.finish();
        if let Some(series) = self.series.read().get(&key) {
            return series.clone();
        }
        let mut all = self.series.write();
        let (key, labels) = match all.len() < MAX_SERIES {
            true => (key, labels()),
            false => (0, "resource=\"other\"".to_owned()),
        };
        let value = (self.make)();
        all.entry(key)
            .or_insert_with(|| Arc::new(Series { labels, value }))
            .clone()
    }

    pub fn write(&self, text: &mut String) {
        head(text, self.name, T::TYPE, self.help);
        let mut all: Vec<Arc<Series<T>>> = self.series.read().values().cloned().collect();
        all.sort_by(|one, other| one.labels.cmp(&other.labels));
        for series in all {
            series.value.write(text, self.name, &series.labels);
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.series.read().len()
    }
}

impl Counter {
    pub fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

impl Sample for Counter {
    const TYPE: &'static str = "counter";

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        sample(text, name, labels, self.0.load(Ordering::Relaxed));
    }
}

impl Gauge {
    pub fn new() -> Gauge {
        Gauge(AtomicI64::new(0))
    }

    pub fn add(&self, more: i64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Sample for Gauge {
    const TYPE: &'static str = "gauge";

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        sample(text, name, labels, self.get());
    }
}

impl Histogram {
    /// `bounds` are the upper bounds of its buckets, in order.
    pub fn new(bounds: &'static [f64]) -> Histogram {
        Histogram {
            bounds,
            buckets: bounds.iter().map(|_| AtomicU64::new(0)).collect(),
            count: AtomicU64::new(0),
            sum_millionths: AtomicU64::new(0),
        }
    }

    pub fn observe(&self, value: f64) {
        if let Some(at) = self.bounds.iter().position(|bound| value <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_millionths.fetch_add((value * 1e6) as u64, Ordering::Relaxed);
    }
}

impl Sample for Histogram {
    const TYPE: &'static str = "histogram";

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let mut below = 0;
        for (bound, bucket) in self.bounds.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        }
        let count = self.count.load(Ordering::Relaxed);
        let sum = self.sum_millionths.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
        sample(text, &format!("{name}_sum"), labels, sum);
        sample(text, &format!("{name}_count"), labels, count);
    }
}

/// The lines above the samples of a metric.
pub fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

pub fn sample(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = match labels {
        "" => writeln!(text, "{name} {value}"),
        labels => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}

/// Labels in the order in which they are given.
pub fn labels(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (at, (name, value)) in pairs.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_what_is_at_most_each_bound() {
        let histogram = Histogram::new(&[0.5, 1.0]);
        [0.5, 0.7, 3.0].into_iter().for_each(|value| histogram.observe(value));
        let mut text = String::new();
        histogram.write(&mut text, "h", "a=\"b\"");
        let expected = "h_bucket{a=\"b\",le=\"0.5\"} 1\nh_bucket{a=\"b\",le=\"1\"} 2\nh_bucket{a=\"b\",le=\"+Inf\"} 3\n\
                        h_sum{a=\"b\"} 4.2\nh_count{a=\"b\"} 3\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn labels_are_quoted() {
        assert_eq!(labels(&[("a", "x\"y\\z\n"), ("b", "")]), r#"a="x\"y\\z\n",b="""#);
    }
}
