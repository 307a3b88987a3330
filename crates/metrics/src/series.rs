//! Time series and their values.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::number;

/// Series beyond this bound are counted together, so that made-up paths cannot fill memory.
pub const MAX_SERIES: usize = 4096;

/// Time series by their labels. Each may have values of several metrics.
pub struct Table<T> {
    make: fn() -> T,
    /// By the hash of their labels.
    series: RwLock<HashMap<u64, Arc<Series<T>>>>,
}

/// The time series of one metric.
pub struct Family<T> {
    name: &'static str,
    help: &'static str,
    table: Table<T>,
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
    /// One for each bound, and one for what is above all of them.
    buckets: Box<[AtomicU64]>,
    /// In units of `1 / scale`, so that adding needs no loop.
    sum: AtomicU64,
    scale: f64,
}

impl<T> Table<T> {
    pub fn new(make: fn() -> T) -> Table<T> {
        Table {
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

    /// One metric of all series that have it.
    pub fn write<S: Sample>(&self, text: &mut String, name: &str, help: &str, pick: impl Fn(&T) -> Option<&S>) {
        head(text, name, S::TYPE, help);
        self.each(|labels, value| {
            if let Some(value) = pick(value) {
                value.write(text, name, labels);
            }
        });
    }

    /// Shows all series in the order of their labels.
    pub fn each(&self, mut show: impl FnMut(&str, &T)) {
        let mut all: Vec<Arc<Series<T>>> = self.series.read().values().cloned().collect();
        all.sort_by(|one, other| one.labels.cmp(&other.labels));
        all.iter().for_each(|series| show(&series.labels, &series.value));
    }

    pub fn len(&self) -> usize {
        self.series.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T: Sample> Family<T> {
    pub fn new(name: &'static str, help: &'static str, make: fn() -> T) -> Family<T> {
        Family {
            name,
            help,
            table: Table::new(make),
        }
    }

    /// See [`Table::find`].
    pub fn find(&self, key: impl Hash, labels: impl FnOnce() -> String) -> Arc<Series<T>> {
        self.table.find(key, labels)
    }

    pub fn write(&self, text: &mut String) {
        self.table.write(text, self.name, self.help, |value| Some(value));
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl Default for Counter {
    fn default() -> Counter {
        Counter::new()
    }
}

impl Counter {
    pub fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }
}

impl Sample for Counter {
    const TYPE: &'static str = "counter";

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        sample(text, name, labels, self.get());
    }
}

impl Default for Gauge {
    fn default() -> Gauge {
        Gauge::new()
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
    /// Of seconds. `bounds` are the upper bounds of its buckets, in order.
    pub fn of_seconds(bounds: &'static [f64]) -> Histogram {
        Histogram::new(bounds, 1e9)
    }

    /// Of whole numbers, such as bytes.
    pub fn of_numbers(bounds: &'static [f64]) -> Histogram {
        Histogram::new(bounds, 1.0)
    }

    fn new(bounds: &'static [f64], scale: f64) -> Histogram {
        Histogram {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            scale,
        }
    }

    pub fn observe(&self, value: f64) {
        let at = self.bounds.iter().position(|bound| value <= *bound);
        self.buckets[at.unwrap_or(self.bounds.len())].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add((value * self.scale) as u64, Ordering::Relaxed);
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

impl Sample for Histogram {
    const TYPE: &'static str = "histogram";

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bounds = self.bounds.iter().map(|bound| number(*bound));
        let mut below = 0;
        for (bound, bucket) in bounds.chain(["+Inf".to_owned()]).zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {below}");
        }
        let sum = self.sum.load(Ordering::Relaxed) as f64 / self.scale;
        sample(text, &format!("{name}_sum"), labels, number(sum));
        sample(text, &format!("{name}_count"), labels, below);
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
        let histogram = Histogram::of_seconds(&[0.5, 1.0]);
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
