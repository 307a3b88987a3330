//! What the server has done and is doing, under upstream's names.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use crate::fairness::LevelReport;
use crate::request::RequestInfo;

/// Series beyond this bound are counted together, so that made-up paths cannot fill memory.
const MAX_SERIES: usize = 4096;

/// Upper bounds in seconds, upstream's.
const BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

#[derive(Default)]
pub struct Metrics {
    totals: Family<AtomicU64>,
    durations: Family<Histogram>,
    long_running: Family<AtomicI64>,
    reads: AtomicI64,
    writes: AtomicI64,
}

/// The time series of one metric.
struct Family<T> {
    /// By the hash of their labels.
    series: RwLock<HashMap<u64, Arc<Series<T>>>>,
}

struct Series<T> {
    labels: String,
    value: T,
}

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
}

/// Counts a request as being handled until it is dropped.
pub struct InFlight {
    metrics: Arc<Metrics>,
    series: Option<Arc<Series<AtomicI64>>>,
    mutating: bool,
}

impl Metrics {
    /// A request has arrived.
    pub fn enter(self: &Arc<Self>, info: &RequestInfo, long_running: bool) -> InFlight {
        let mutating = !matches!(info.verb, "get" | "list" | "watch" | "head");
        let series = long_running.then(|| self.long_running.find(info, 0));
        match &series {
            Some(series) => series.value.fetch_add(1, Ordering::Relaxed),
            None => self.kind(mutating).fetch_add(1, Ordering::Relaxed),
        };
        InFlight {
            metrics: self.clone(),
            series,
            mutating,
        }
    }

    /// A request was answered.
    pub fn answered(&self, info: &RequestInfo, code: u16, took: Duration, long_running: bool) {
        self.totals.find(info, code).value.fetch_add(1, Ordering::Relaxed);
        if !long_running {
            self.durations.find(info, 0).value.observe(took);
        }
    }

    fn kind(&self, mutating: bool) -> &AtomicI64 {
        if mutating { &self.writes } else { &self.reads }
    }

    /// Everything in the Prometheus text format.
    pub fn text(&self, levels: &[LevelReport]) -> String {
        let mut text = String::new();
        head(
            &mut text,
            "apiserver_request_total",
            "counter",
            "Requests answered, by what was asked and the answer's code.",
        );
        self.totals.each(|labels, count| {
            let _ = writeln!(
                text,
                "apiserver_request_total{{{labels}}} {}",
                count.load(Ordering::Relaxed)
            );
        });
        let name = "apiserver_request_duration_seconds";
        head(
            &mut text,
            name,
            "histogram",
            "How long answers took, long-running requests left out.",
        );
        self.durations
            .each(|labels, histogram| histogram.write(&mut text, name, labels));
        let name = "apiserver_longrunning_requests";
        head(&mut text, name, "gauge", "Watches and connections that are open.");
        self.long_running.each(|labels, count| {
            let _ = writeln!(text, "{name}{{{labels}}} {}", count.load(Ordering::Relaxed));
        });
        let name = "apiserver_current_inflight_requests";
        head(&mut text, name, "gauge", "Requests being handled.");
        for (kind, count) in [("mutating", &self.writes), ("readOnly", &self.reads)] {
            let _ = writeln!(
                text,
                "{name}{{request_kind=\"{kind}\"}} {}",
                count.load(Ordering::Relaxed)
            );
        }
        write_levels(&mut text, levels);
        text
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        match &self.series {
            Some(series) => series.value.fetch_sub(1, Ordering::Relaxed),
            None => self.metrics.kind(self.mutating).fetch_sub(1, Ordering::Relaxed),
        };
    }
}

impl<T: Default> Family<T> {
    /// The series of a request; `code` 0 means that the metric has no such label.
    fn find(&self, info: &RequestInfo, code: u16) -> Arc<Series<T>> {
        let mut hasher = DefaultHasher::new();
        let scope = scope(info);
        (
            info.verb,
            &info.group,
            &info.version,
            &info.resource,
            &info.subresource,
            scope,
            code,
        )
            .hash(&mut hasher);
        let key = hasher.finish();
        if let Some(series) = self.series.read().get(&key) {
            return series.clone();
        }
        let mut all = self.series.write();
        let (key, labels) = match all.len() < MAX_SERIES {
            true => (key, labels(info, scope, code)),
            false => (0, "resource=\"other\"".to_owned()),
        };
        let value = T::default();
        all.entry(key)
            .or_insert_with(|| Arc::new(Series { labels, value }))
            .clone()
    }

    fn each(&self, mut take: impl FnMut(&str, &T)) {
        let mut all: Vec<Arc<Series<T>>> = self.series.read().values().cloned().collect();
        all.sort_by(|one, other| one.labels.cmp(&other.labels));
        all.iter().for_each(|series| take(&series.labels, &series.value));
    }
}

impl<T> Default for Family<T> {
    fn default() -> Family<T> {
        Family {
            series: RwLock::default(),
        }
    }
}

impl Histogram {
    fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        if let Some(at) = BUCKETS.iter().position(|bound| seconds <= *bound) {
            self.buckets[at].fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    fn write(&self, text: &mut String, name: &str, labels: &str) {
        let mut below = 0;
        for (bound, bucket) in BUCKETS.iter().zip(&self.buckets) {
            below += bucket.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {below}");
        }
        let count = self.count.load(Ordering::Relaxed);
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}");
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn write_levels(text: &mut String, levels: &[LevelReport]) {
    type Read = fn(&LevelReport) -> u64;
    let metrics: [(&str, &str, &str, Read); 5] = [
        ("nominal_limit_seats", "gauge", "Seats that a level owns.", |level| {
            level.nominal as u64
        }),
        ("current_executing_seats", "gauge", "Seats in use.", |level| {
            level.executing as u64
        }),
        ("current_inqueue_requests", "gauge", "Requests that wait.", |level| {
            level.waiting as u64
        }),
        (
            "dispatched_requests_total",
            "counter",
            "Requests that had a seat.",
            |level| level.dispatched,
        ),
        ("rejected_requests_total", "counter", "Requests turned away.", |level| {
            level.rejected
        }),
    ];
    for (name, kind, help, read) in metrics {
        let name = format!("apiserver_flowcontrol_{name}");
        head(text, &name, kind, help);
        for level in levels {
            let _ = writeln!(text, "{name}{{priority_level=\"{}\"}} {}", level.level, read(level));
        }
    }
}

fn labels(info: &RequestInfo, scope: &str, code: u16) -> String {
    let mut labels = String::new();
    if code != 0 {
        let _ = write!(labels, "code=\"{code}\",");
    }
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let subresource = match info.is_resource {
        true => info.subresource.as_str(),
        false => first_segment(&info.path),
    };
    let _ = write!(
        labels,
        "component=\"apiserver\",group=\"{}\",resource=\"{}\",scope=\"{scope}\",subresource=\"{}\",verb=\"{}\",version=\"{}\"",
        quoted(&info.group),
        quoted(&info.resource),
        quoted(subresource),
        verb(info),
        quoted(&info.version),
    );
    labels
}

/// Upstream names the method, but tells lists and watches from other reads.
fn verb(info: &RequestInfo) -> &'static str {
    match (info.verb, info.subresource.as_str()) {
        (_, "exec" | "attach" | "portforward" | "proxy" | "log") => "CONNECT",
        ("get", _) => "GET",
        ("list", _) => "LIST",
        ("watch", _) => "WATCH",
        ("create" | "post", _) => "POST",
        ("update" | "put", _) => "PUT",
        ("patch", _) => "PATCH",
        ("delete" | "deletecollection", _) => "DELETE",
        ("head", _) => "HEAD",
        _ => "OTHER",
    }
}

fn scope(info: &RequestInfo) -> &'static str {
    match (info.is_resource, info.name.is_empty(), info.namespace.is_empty()) {
        (false, ..) => "",
        (_, false, _) => "resource",
        (_, true, false) => "namespace",
        (_, true, true) => "cluster",
    }
}

fn first_segment(path: &str) -> &str {
    path.trim_start_matches('/').split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::request::Query;

    fn info(method: Method, path: &str) -> RequestInfo {
        RequestInfo::parse(&method, path, &Query::default())
    }

    #[test]
    fn requests_are_counted_and_timed_by_what_they_ask() {
        let metrics = Arc::new(Metrics::default());
        let get = info(Method::GET, "/api/v1/namespaces/a/pods/p");
        metrics.answered(&get, 200, Duration::from_millis(30), false);
        metrics.answered(&get, 404, Duration::from_secs(100), false);
        let text = metrics.text(&[]);
        let labels = "component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
        for line in [
            format!("apiserver_request_total{{code=\"200\",{labels}}} 1"),
            format!("apiserver_request_total{{code=\"404\",{labels}}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.025\"}} 0"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.05\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"60\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn open_requests_are_counted_while_they_last() {
        let metrics = Arc::new(Metrics::default());
        let post = info(Method::POST, "/api/v1/namespaces/a/pods");
        let held = metrics.enter(&post, false);
        assert!(metrics.text(&[]).contains("{request_kind=\"mutating\"} 1"));
        drop(held);
        assert!(metrics.text(&[]).contains("{request_kind=\"mutating\"} 0"));
    }

    #[test]
    fn made_up_names_do_not_fill_memory() {
        let metrics = Metrics::default();
        for number in 0..MAX_SERIES + 100 {
            let path = format!("/apis/g/v1/made-up-{number}");
            metrics.answered(&info(Method::GET, &path), 404, Duration::ZERO, false);
        }
        assert!(metrics.totals.series.read().len() <= MAX_SERIES + 1);
        assert!(
            metrics
                .text(&[])
                .contains("apiserver_request_total{resource=\"other\"} 100")
        );
    }
}
