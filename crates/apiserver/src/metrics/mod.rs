//! What the server has done and is doing, under upstream's names.
//!
//! [`Metrics`] is told what happens; [`Metrics::text`] writes all of it down. What the server knows anyway (its objects,
//! its levels, its process) is read when it is asked for.

mod admission;
mod health;
mod levels;
mod present;
mod sizes;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Family, Gauge, Histogram, Series, Table, exponential, head, labels, linear, sample};
use http::Response;
use registry::StoreMetrics;

use crate::body::Body;
use crate::request::RequestInfo;

pub use self::admission::Timed;
use self::health::HealthFigures;
pub use self::present::Present;

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

/// Upper bounds in bytes.
const RESPONSE_BYTES: &[f64] = &exponential::<7>(1000.0, 10.0);
const REQUEST_BYTES: &[f64] = &linear::<31>(50_000.0, 100_000.0);
const EVENT_BYTES: &[f64] = &exponential::<8>(1024.0, 2.0);

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
    requests: Table<RequestFigures>,
    bodies: Family<Histogram>,
    long_running: Family<Gauge>,
    in_flight: Family<Gauge>,
    deprecated: Family<Gauge>,
    /// The sizes of what was sent to watches.
    events: Table<Histogram>,
    admissions: Family<Histogram>,
    authentications: Family<Counter>,
    users: Family<Counter>,
    authorizations: Family<Counter>,
    certificate_expirations: Family<Histogram>,
    handshake_errors: Family<Counter>,
    /// How health checks came out.
    pub health: HealthFigures,
    /// What the registry asks of the store.
    pub store: Arc<StoreMetrics>,
}

/// What is known of requests that ask the same.
pub struct RequestFigures {
    durations: Histogram,
    /// Without waiting for a turn and for webhooks.
    own_durations: Histogram,
    /// Only of answers to reads.
    sizes: Histogram,
}

/// Counts a request as being handled until it is dropped.
pub struct InFlight(Arc<Series<Gauge>>);

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            totals: Family::new(
                "apiserver_request_total",
                "[STABLE] Requests answered, by verb, resource and HTTP status code.",
                Counter::new,
            ),
            requests: Table::new(|| RequestFigures {
                durations: Histogram::of_seconds(REQUEST_SECONDS),
                own_durations: Histogram::of_seconds(SLI_SECONDS),
                sizes: Histogram::of_numbers(RESPONSE_BYTES),
            }),
            bodies: Family::new(
                "apiserver_request_body_size_bytes",
                "[ALPHA] Size of request bodies in bytes.",
                || Histogram::of_numbers(REQUEST_BYTES),
            ),
            long_running: Family::new(
                "apiserver_longrunning_requests",
                "[STABLE] Open long-running requests, such as watches and exec.",
                Gauge::new,
            ),
            in_flight: Family::new(
                "apiserver_current_inflight_requests",
                "[STABLE] Requests currently being handled, by kind.",
                Gauge::new,
            ),
            deprecated: Family::new(
                "apiserver_requested_deprecated_apis",
                "[STABLE] Deprecated APIs that were requested.",
                Gauge::new,
            ),
            events: Table::new(|| Histogram::of_numbers(EVENT_BYTES)),
            admissions: Family::new(
                "apiserver_admission_controller_admission_duration_seconds",
                "[STABLE] Duration of each admission plugin in seconds.",
                || Histogram::of_seconds(ADMISSION_SECONDS),
            ),
            authentications: Family::new(
                "authentication_attempts",
                "[ALPHA] Authentication attempts, by result.",
                Counter::new,
            ),
            users: Family::new(
                "authenticated_user_requests",
                "[ALPHA] Authenticated requests by user name; only system users are named.",
                Counter::new,
            ),
            authorizations: Family::new(
                "authorization_attempts_total",
                "[ALPHA] Authorization attempts, by result.",
                Counter::new,
            ),
            certificate_expirations: Family::new(
                "apiserver_client_certificate_expiration_seconds",
                "[ALPHA] Remaining lifetime of client certificates in seconds.",
                || Histogram::of_numbers(EXPIRATION_SECONDS),
            ),
            handshake_errors: Family::new(
                "apiserver_tls_handshake_errors_total",
                "[ALPHA] TLS handshakes that failed.",
                Counter::new,
            ),
            health: HealthFigures::default(),
            store: Arc::default(),
        }
    }
}

impl Metrics {
    /// A request has arrived.
    pub fn enter(&self, info: &RequestInfo, long_running: bool) -> InFlight {
        let series = if long_running {
            self.long_running.find(request_key(info), || request_labels(info, 0))
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
    pub fn answered(
        &self,
        info: &RequestInfo,
        response: Response<Body>,
        took: Duration,
        waiting: Duration,
    ) -> Response<Body> {
        let code = response.status().as_u16();
        let key = request_key(info);
        let total = self.totals.find((key, code), || request_labels(info, code));
        total.value.add(1);
        if crate::fairness::is_long_running(info) {
            return response;
        }
        let figures = self.requests.find(key, || request_labels(info, 0));
        figures.value.durations.observe(took.as_secs_f64());
        let own = took.saturating_sub(waiting).as_secs_f64();
        figures.value.own_durations.observe(own);
        match verb(info) {
            "GET" | "LIST" => sizes::measured(response, figures),
            _ => response,
        }
    }

    /// The body of a write has been read.
    pub fn body_read(&self, info: &RequestInfo, bytes: usize) {
        let verb = match info.verb {
            "deletecollection" => "delete_collection",
            verb @ ("create" | "update" | "patch" | "delete") => verb,
            _ => return,
        };
        let (group, resource) = (&info.group, &info.resource);
        let made = || labels(&[("group", group), ("resource", resource), ("verb", verb)]);
        self.bodies
            .find((group, resource, verb), made)
            .value
            .observe(bytes as f64);
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
        let key = (&info.group, &info.version, &info.resource, &info.subresource);
        self.deprecated.find(key, made).value.set(1);
    }

    /// Counts the events of one watch, by their bytes.
    pub fn watch_events(&self, info: &RequestInfo) -> Arc<Series<Histogram>> {
        let (group, version, resource) = (&info.group, &info.version, &info.resource);
        let made = || labels(&[("group", group), ("resource", resource), ("version", version)]);
        self.events.find((group, version, resource), made)
    }

    /// How long an admission plugin took for such answers.
    pub fn admissions_of(&self, plugin: &str, phase: &str, operation: &str, rejected: bool) -> Arc<Series<Histogram>> {
        let made = || {
            labels(&[
                ("name", plugin),
                ("operation", operation),
                ("rejected", if rejected { "true" } else { "false" }),
                ("type", phase),
            ])
        };
        self.admissions.find((plugin, phase, operation, rejected), made)
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
    pub fn text(&self, present: &Present) -> String {
        let mut text = String::new();
        self.totals.write(&mut text);
        self.write_requests(&mut text);
        self.bodies.write(&mut text);
        self.long_running.write(&mut text);
        self.in_flight.write(&mut text);
        self.deprecated.write(&mut text);
        self.write_events(&mut text);
        self.admissions.write(&mut text);
        self.authentications.write(&mut text);
        self.users.write(&mut text);
        self.authorizations.write(&mut text);
        self.certificate_expirations.write(&mut text);
        self.handshake_errors.write(&mut text);
        self.store.write(&mut text, present.store_bytes);
        present.write(&mut text);
        ::metrics::process::write(&mut text);
        text
    }

    fn write_requests(&self, text: &mut String) {
        let table = &self.requests;
        let help = "[STABLE] How long answers took, long-running requests left out.";
        table.write(text, "apiserver_request_duration_seconds", help, |all| {
            Some(&all.durations)
        });
        let help = "[ALPHA] Duration of requests in seconds, without the time in flow control queues and webhooks.";
        table.write(text, "apiserver_request_sli_duration_seconds", help, |all| {
            Some(&all.own_durations)
        });
        let help = "[STABLE] Size of responses to reads in bytes.";
        table.write(text, "apiserver_response_sizes", help, |all| {
            Some(&all.sizes).filter(|sizes| sizes.count() > 0)
        });
    }

    fn write_events(&self, text: &mut String) {
        let name = "apiserver_watch_events_total";
        head(text, name, "counter", "[ALPHA] Events sent to watch clients.");
        self.events
            .each(|labels, sizes| sample(text, name, labels, sizes.count()));
        let help = "[ALPHA] Size of events sent to watch clients in bytes.";
        self.events
            .write(text, "apiserver_watch_events_sizes", help, |sizes| Some(sizes));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.value.add(-1);
    }
}

/// What a user is called in metrics.
fn shown_user(name: &str) -> &str {
    match name {
        name if KNOWN_USERS.contains(&name) => name,
        name if name.contains('@') => "email_id",
        _ => "other",
    }
}

/// What tells the series of requests apart, hashed once for all that it is looked up in.
fn request_key(info: &RequestInfo) -> u64 {
    let names = (&info.group, &info.version, &info.resource, &info.subresource);
    let mut hasher = DefaultHasher::new();
    (info.verb, names, scope(info)).hash(&mut hasher);
    hasher.finish()
}

/// `code` 0 means that the metric has no such label.
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
    use ::metrics::MAX_SERIES;
    use http::Method;
    use http_body_util::BodyExt;

    use super::*;
    use crate::body;
    use crate::request::Query;

    fn info(method: Method, path: &str) -> RequestInfo {
        RequestInfo::parse(&method, path, &Query::default()).expect("a path")
    }

    fn answer(code: u16, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        *response.status_mut() = code.try_into().unwrap();
        response
    }

    #[tokio::test]
    async fn what_is_made_while_it_is_sent_is_measured_when_it_was() {
        let metrics = Metrics::default();
        let chunks = ["ab", "cde"].map(|chunk| Ok(http_body::Frame::data(bytes::Bytes::from(chunk))));
        let stream = http_body_util::StreamBody::new(futures_util::stream::iter(chunks)).boxed_unsync();
        let list = info(Method::GET, "/api/v1/pods");
        let response = metrics.answered(&list, answer(200, stream), Duration::ZERO, Duration::ZERO);
        assert!(!metrics.text(&Present::default()).contains("response_sizes_sum"));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "abcde");
        let text = metrics.text(&Present::default());
        let sum = text
            .lines()
            .find(|line| line.starts_with("apiserver_response_sizes_sum"));
        assert!(
            sum.is_some_and(|line| line.contains("verb=\"LIST\"") && line.ends_with(" 5")),
            "{text}"
        );
    }

    #[test]
    fn bodies_of_writes_and_events_of_watches_are_measured() {
        let metrics = Metrics::default();
        metrics.body_read(&info(Method::DELETE, "/api/v1/namespaces/a/pods"), 60_000);
        metrics.body_read(&info(Method::GET, "/api/v1/namespaces/a/pods"), 0);
        let sent = metrics.watch_events(&info(Method::GET, "/api/v1/pods"));
        sent.value.observe(1000.0);
        sent.value.observe(5000.0);
        let text = metrics.text(&Present::default());
        let body = "apiserver_request_body_size_bytes";
        let write = "group=\"\",resource=\"pods\",verb=\"delete_collection\"";
        let event = "group=\"\",resource=\"pods\",version=\"v1\"";
        for line in [
            format!("{body}_bucket{{{write},le=\"50000\"}} 0"),
            format!("{body}_bucket{{{write},le=\"150000\"}} 1"),
            format!("{body}_bucket{{{write},le=\"3.05e+06\"}} 1"),
            format!("apiserver_watch_events_total{{{event}}} 2"),
            format!("apiserver_watch_events_sizes_bucket{{{event},le=\"1024\"}} 1"),
            format!("apiserver_watch_events_sizes_sum{{{event}}} 6000"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
        assert_eq!(
            text.matches("request_body_size_bytes_count").count(),
            1,
            "reads have no body"
        );
    }

    #[test]
    fn requests_are_counted_and_timed_by_what_they_ask() {
        let metrics = Arc::new(Metrics::default());
        let get = info(Method::GET, "/api/v1/namespaces/a/pods/p");
        let (short, long) = (Duration::from_millis(30), Duration::from_secs(100));
        metrics.answered(&get, answer(200, body::full("x".repeat(2000))), short, short / 3);
        metrics.answered(&get, answer(404, body::empty()), long, Duration::ZERO);
        let text = metrics.text(&Present::default());
        let labels = "component=\"apiserver\",group=\"\",resource=\"pods\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
        for line in [
            format!("apiserver_request_total{{code=\"200\",{labels}}} 1"),
            format!("apiserver_request_total{{code=\"404\",{labels}}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.025\"}} 0"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"0.05\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"60\"}} 1"),
            format!("apiserver_request_duration_seconds_bucket{{{labels},le=\"+Inf\"}} 2"),
            format!("apiserver_response_sizes_bucket{{{labels},le=\"1000\"}} 1"),
            format!("apiserver_response_sizes_bucket{{{labels},le=\"1e+09\"}} 2"),
            format!("apiserver_response_sizes_sum{{{labels}}} 2000"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_deprecated_resource_has_one_series_whatever_is_asked_of_it() {
        let metrics = Metrics::default();
        metrics.deprecated(&info(Method::GET, "/api/v1/endpoints"));
        metrics.deprecated(&info(Method::PUT, "/api/v1/namespaces/a/endpoints/e"));
        let text = metrics.text(&Present::default());
        assert_eq!(
            text.matches("apiserver_requested_deprecated_apis{").count(),
            1,
            "{text}"
        );
    }

    #[test]
    fn open_requests_are_counted_while_they_last() {
        let metrics = Arc::new(Metrics::default());
        let post = info(Method::POST, "/api/v1/namespaces/a/pods");
        let held = metrics.enter(&post, false);
        assert!(
            metrics
                .text(&Present::default())
                .contains("{request_kind=\"mutating\"} 1")
        );
        drop(held);
        assert!(
            metrics
                .text(&Present::default())
                .contains("{request_kind=\"mutating\"} 0")
        );
    }

    #[test]
    fn made_up_names_do_not_fill_memory() {
        let metrics = Metrics::default();
        for number in 0..MAX_SERIES + 100 {
            let path = format!("/apis/g/v1/made-up-{number}");
            let answer = answer(404, body::empty());
            metrics.answered(&info(Method::GET, &path), answer, Duration::ZERO, Duration::ZERO);
        }
        assert!(metrics.totals.len() <= MAX_SERIES + 1);
        assert!(
            metrics
                .text(&Present::default())
                .contains("apiserver_request_total{resource=\"other\"} 100")
        );
    }
}
