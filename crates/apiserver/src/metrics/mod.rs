//! What the server has done and is doing, under upstream's names.
//!
//! [`Metrics`] is told what happens; [`Metrics::text`] writes all of it down. What the server knows anyway (its objects,
//! its levels, its process) is read when it is asked for.

mod admission;
mod levels;
mod process;
mod series;

use std::sync::Arc;
use std::time::Duration;

use self::series::{Family, Gauge, Histogram, head, labels, sample};
use crate::fairness::LevelReport;
use crate::request::RequestInfo;

pub use self::admission::Timed;
pub use self::series::{Counter, Series};

/// Upper bounds in seconds, upstream's.
const REQUEST_SECONDS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
const SLI_SECONDS: &[f64] = &[
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
const ADMISSION_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const EXPIRATION_SECONDS: &[f64] = &[
    0.0, 1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0, 172800.0, 345600.0, 604800.0, 2592000.0, 7776000.0,
    15552000.0, 31104000.0,
];

/// Users with a series of their own; all others are counted together.
const KNOWN_USERS: [&str; 5] = [
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
];

pub struct Metrics {
    totals: Family<Counter>,
    durations: Family<Histogram>,
    own_durations: Family<Histogram>,
    long_running: Family<Gauge>,
    in_flight: Family<Gauge>,
    deprecated: Family<Gauge>,
    watch_events: Family<Counter>,
    admissions: Family<Histogram>,
    authentications: Family<Counter>,
    users: Family<Counter>,
    authorizations: Family<Counter>,
    certificate_expirations: Family<Histogram>,
    handshake_errors: Family<Counter>,
}

/// Counts a request as being handled until it is dropped.
pub struct InFlight(Arc<Series<Gauge>>);

/// How many objects there are of a resource.
pub struct Stock {
    pub group: &'static str,
    pub resource: &'static str,
    pub objects: usize,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let seconds = || Histogram::new(REQUEST_SECONDS);
        Metrics {
            totals: Family::new(
                "apiserver_request_total",
                "Requests answered, by what was asked and the answer's code.",
                Counter::new,
            ),
            durations: Family::new(
                "apiserver_request_duration_seconds",
                "How long answers took, long-running requests left out.",
                seconds,
            ),
            own_durations: Family::new(
                "apiserver_request_sli_duration_seconds",
                "The same without waiting for a turn and for webhooks.",
                || Histogram::new(SLI_SECONDS),
            ),
            long_running: Family::new(
                "apiserver_longrunning_requests",
                "Watches and connections that are open.",
                Gauge::new,
            ),
            in_flight: Family::new(
                "apiserver_current_inflight_requests",
                "Requests being handled.",
                Gauge::new,
            ),
            deprecated: Family::new(
                "apiserver_requested_deprecated_apis",
                "Deprecated resources that were asked for.",
                Gauge::new,
            ),
            watch_events: Family::new("apiserver_watch_events_total", "Events sent to watches.", Counter::new),
            admissions: Family::new(
                "apiserver_admission_controller_admission_duration_seconds",
                "How long each admission plugin took.",
                || Histogram::new(ADMISSION_SECONDS),
            ),
            authentications: Family::new(
                "authentication_attempts",
                "Requests whose user was looked for, by whether it was found.",
                Counter::new,
            ),
            users: Family::new(
                "authenticated_user_requests",
                "Requests by user; most are counted together.",
                Counter::new,
            ),
            authorizations: Family::new(
                "authorization_attempts_total",
                "Requests whose rights were looked for, by what was decided.",
                Counter::new,
            ),
            certificate_expirations: Family::new(
                "apiserver_client_certificate_expiration_seconds",
                "For how long the certificates of requests were still good.",
                || Histogram::new(EXPIRATION_SECONDS),
            ),
            handshake_errors: Family::new(
                "apiserver_tls_handshake_errors_total",
                "Connections that failed before their first request.",
                Counter::new,
            ),
        }
    }
}

impl Metrics {
    /// A request has arrived.
    pub fn enter(&self, info: &RequestInfo, long_running: bool) -> InFlight {
        let series = if long_running {
            self.long_running.find(request_key(info, 0), || request_labels(info, 0))
        } else {
            let kind = match info.verb {
                "get" | "list" | "watch" | "head" => "readOnly",
                _ => "mutating",
            };
            self.in_flight.find(kind, || labels(&[("request_kind", kind)]))
        };
        series.value.add(1);
        InFlight(series)
    }

    /// A request was answered. It was `waiting` for its turn or for webhooks during a part of the time it took.
    pub fn answered(&self, info: &RequestInfo, code: u16, took: Duration, waiting: Duration) {
        let total = self.totals.find(request_key(info, code), || request_labels(info, code));
        total.value.add(1);
        if !crate::fairness::is_long_running(info) {
            let (key, labels) = (request_key(info, 0), || request_labels(info, 0));
            self.durations.find(key, labels).value.observe(took.as_secs_f64());
            let own = took.saturating_sub(waiting).as_secs_f64();
            self.own_durations.find(key, labels).value.observe(own);
        }
    }

    /// A deprecated resource was asked for.
    pub fn deprecated(&self, info: &RequestInfo) {
        let made = || {
            labels(&[
                ("group", &info.group),
                ("removed_release", ""),
                ("resource", &info.resource),
                ("subresource", &info.subresource),
                ("version", &info.version),
            ])
        };
        self.deprecated.find(request_key(info, 0), made).value.set(1);
    }

    /// Counts the events of one watch.
    pub fn watch_events(&self, info: &RequestInfo) -> Arc<Series<Counter>> {
        let (group, version, resource) = (&info.group, &info.version, &info.resource);
        let made = || labels(&[("group", group), ("resource", resource), ("version", version)]);
        self.watch_events.find((group, version, resource), made)
    }

    /// An admission plugin has answered.
    pub fn admitted(&self, plugin: &str, phase: &str, operation: &str, rejected: bool, took: Duration) {
        let made = || {
            labels(&[
                ("name", plugin),
                ("operation", operation),
                ("rejected", if rejected { "true" } else { "false" }),
                ("type", phase),
            ])
        };
        let series = self.admissions.find((plugin, phase, operation, rejected), made);
        series.value.observe(took.as_secs_f64());
    }

    /// The user of a request was looked for, and found if there is a name.
    pub fn authenticated(&self, user: Option<&str>) {
        let result = if user.is_some() { "success" } else { "failure" };
        let attempts = self.authentications.find(result, || labels(&[("result", result)]));
        attempts.value.add(1);
        if let Some(name) = user.map(shown_user) {
            self.users.find(name, || labels(&[("username", name)])).value.add(1);
        }
    }

    pub fn authorized(&self, allowed: bool) {
        let result = if allowed { "allowed" } else { "denied" };
        let attempts = self.authorizations.find(result, || labels(&[("result", result)]));
        attempts.value.add(1);
    }

    /// A request came with a certificate that is good for so many seconds.
    pub fn certificate_used(&self, seconds_left: i64) {
        let series = self.certificate_expirations.find((), String::new);
        series.value.observe(seconds_left.max(0) as f64);
    }

    pub fn handshake_failed(&self) {
        self.handshake_errors.find((), String::new).value.add(1);
    }

    /// Everything in the Prometheus text format.
    pub fn text(&self, levels: &[LevelReport], stocks: &[Stock]) -> String {
        let mut text = String::new();
        self.totals.write(&mut text);
        self.durations.write(&mut text);
        self.own_durations.write(&mut text);
        self.long_running.write(&mut text);
        self.in_flight.write(&mut text);
        self.deprecated.write(&mut text);
        self.watch_events.write(&mut text);
        self.admissions.write(&mut text);
        self.authentications.write(&mut text);
        self.users.write(&mut text);
        self.authorizations.write(&mut text);
        self.certificate_expirations.write(&mut text);
        self.handshake_errors.write(&mut text);
        levels::write(&mut text, levels);
        write_stocks(&mut text, stocks);
        write_build(&mut text);
        process::write(&mut text);
        text
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.value.add(-1);
    }
}

/// The same figures under the name that upstream is about to drop and under its new one.
fn write_stocks(text: &mut String, stocks: &[Stock]) {
    let name = "apiserver_storage_objects";
    head(text, name, "gauge", "Stored objects, by resource and group.");
    for stock in stocks {
        let full = match stock.group {
            "" => stock.resource.to_owned(),
            group => format!("{}.{group}", stock.resource),
        };
        sample(text, name, &labels(&[("resource", &full)]), stock.objects);
    }
    let name = "apiserver_resource_objects";
    head(text, name, "gauge", "Stored objects.");
    for stock in stocks {
        let labels = labels(&[("group", stock.group), ("resource", stock.resource)]);
        sample(text, name, &labels, stock.objects);
    }
}

fn write_build(text: &mut String) {
    let name = "kubernetes_build_info";
    head(text, name, "gauge", "What this server is; the value is always 1.");
    let build = crate::nonresource::build();
    let labels = labels(&[
        ("build_date", build.date),
        ("compiler", build.compiler),
        ("git_commit", ""),
        ("git_tree_state", build.tree),
        ("git_version", &build.version),
        ("go_version", ""),
        ("major", build.major),
        ("minor", build.minor),
        ("platform", &build.platform),
    ]);
    sample(text, name, &labels, 1);
}

/// What a user is called in metrics.
fn shown_user(name: &str) -> &str {
    match name {
        name if KNOWN_USERS.contains(&name) => name,
        name if name.contains('@') => "email_id",
        _ => "other",
    }
}

/// What tells the series of requests apart; `code` 0 means that the metric has no such label.
fn request_key(info: &RequestInfo, code: u16) -> impl std::hash::Hash + Copy + '_ {
    let names = (&info.group, &info.version, &info.resource, &info.subresource);
    (info.verb, names, scope(info), code)
}

fn request_labels(info: &RequestInfo, code: u16) -> String {
    let subresource = match info.is_resource {
        true => info.subresource.as_str(),
        false => first_segment(&info.path),
    };
    let code = code.to_string();
    let pairs = [
        ("code", code.as_str()),
        ("component", "apiserver"),
        ("group", &info.group),
        ("resource", &info.resource),
        ("scope", scope(info)),
        ("subresource", subresource),
        ("verb", verb(info)),
        ("version", &info.version),
    ];
    labels(&pairs[usize::from(code == "0")..])
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
        metrics.answered(&get, 200, Duration::from_millis(30), Duration::from_millis(10));
        metrics.answered(&get, 404, Duration::from_secs(100), Duration::ZERO);
        let text = metrics.text(&[], &[]);
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
        assert!(metrics.text(&[], &[]).contains("{request_kind=\"mutating\"} 1"));
        drop(held);
        assert!(metrics.text(&[], &[]).contains("{request_kind=\"mutating\"} 0"));
    }

    #[test]
    fn made_up_names_do_not_fill_memory() {
        let metrics = Metrics::default();
        for number in 0..series::MAX_SERIES + 100 {
            let path = format!("/apis/g/v1/made-up-{number}");
            metrics.answered(&info(Method::GET, &path), 404, Duration::ZERO, Duration::ZERO);
        }
        assert!(metrics.totals.len() <= series::MAX_SERIES + 1);
        assert!(
            metrics
                .text(&[], &[])
                .contains("apiserver_request_total{resource=\"other\"} 100")
        );
    }
}
