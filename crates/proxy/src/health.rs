//! What load balancers ask a node: has a Service endpoints here (`healthCheckNodePort`), and is the proxy itself well
//! (`/healthz`, `/livez`). Codes, headers and bodies are those of kube-proxy.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ::metrics::Page;
use bytes::Bytes;
use client::Key;
use client::when::Moment;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::json;
use serving::{AnyError, ConnectionLimits, Connections, http_server};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::metrics::ProxyMetrics;

/// Connections at a time of one server; each asks for one thing and is closed.
const LIMITS: ConnectionLimits = ConnectionLimits {
    total: 64,
    unidentified: 64,
    unidentified_on_loopback: 64,
    per_client: 0,
};
/// How long a connection may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// A change that is not in the kernel after this time means that the proxy is not well; upstream waits as long.
const OVERDUE: Duration = Duration::from_secs(60);

/// How the proxy is. Cheap to clone.
#[derive(Clone, Default)]
pub struct Health(Arc<HealthState>);

#[derive(Default)]
struct HealthState {
    times: Mutex<Times>,
    /// The node is about to go: load balancers should look elsewhere.
    leaving: AtomicBool,
}

#[derive(Clone, Copy, Default)]
struct Times {
    updated: Option<Moment>,
    /// When the oldest change came that is not in the kernel yet.
    queued: Option<Moment>,
}

impl Health {
    /// A change came that is to be applied.
    pub fn queued(&self) {
        self.0.times.lock().queued.get_or_insert_with(Moment::now);
    }

    /// Everything that came is in the kernel.
    pub fn updated(&self) {
        *self.0.times.lock() = Times {
            updated: Some(Moment::now()),
            queued: None,
        };
    }

    pub fn set_leaving(&self, leaving: bool) {
        self.0.leaving.store(leaving, Ordering::Relaxed);
    }

    /// Whether all that came is applied in time. Nothing is, before the first update.
    pub fn is_well(&self) -> bool {
        let times = *self.0.times.lock();
        let overdue = times.queued.is_some_and(|since| Moment::now().since(since) > OVERDUE);
        times.updated.is_some() && !overdue
    }

    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let eligible = !self.0.leaving.load(Ordering::Relaxed);
        let well = match path {
            "/healthz" => self.is_well() && eligible,
            "/livez" => self.is_well(),
            _ => return plain(StatusCode::NOT_FOUND, "404 page not found\n"),
        };
        let updated = self.0.times.lock().updated;
        let time = |time: Option<Moment>| time.unwrap_or_default().to_micro_time();
        let body = json!({
            "lastUpdated": time(updated), "currentTime": time(Some(Moment::now())), "nodeEligible": eligible,
        });
        with_headers(code(well), body.to_string(), None)
    }
}

/// Serves `/healthz` and `/livez`, until the future is dropped.
pub async fn serve(listener: TcpListener, health: Health, metrics: Arc<ProxyMetrics>) {
    let answer = move |path: &str| {
        let answer = health.answer(path);
        metrics.answered(path, answer.status());
        answer
    };
    answer_all(listener, answer).await;
}

/// Serves `/metrics` and `/proxyMode`, until the future is dropped.
pub async fn serve_status(listener: TcpListener, mode: &'static str, metrics: Arc<ProxyMetrics>) {
    answer_all(listener, move |path: &str| status(path, mode, metrics.as_ref())).await;
}

fn status(path: &str, mode: &'static str, metrics: &dyn Page) -> Response<Full<Bytes>> {
    match path {
        "/healthz" => plain(StatusCode::OK, "ok"),
        "/proxyMode" => plain(StatusCode::OK, mode),
        "/metrics" => {
            let mut text = String::new();
            metrics.write(&mut text);
            ::metrics::process::write(&mut text);
            plain(StatusCode::OK, text)
        }
        _ => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

/// The servers of the Services that have a `healthCheckNodePort`.
#[derive(Default)]
pub struct HealthChecks {
    servers: BTreeMap<Key, HealthCheck>,
    health: Health,
}

struct HealthCheck {
    port: u16,
    endpoints: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for HealthCheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HealthChecks {
    pub fn new(health: Health) -> HealthChecks {
        HealthChecks {
            servers: BTreeMap::new(),
            health,
        }
    }

    /// Lets a Service be asked after at a port, where it has that many endpoints here.
    pub async fn set(&mut self, key: &Key, wanted: Option<(u16, usize)>) -> std::io::Result<()> {
        let Some((port, endpoints)) = wanted else {
            self.servers.remove(key);
            return Ok(());
        };
        if let Some(server) = self.servers.get(key).filter(|server| server.port == port) {
            server.endpoints.store(endpoints, Ordering::Relaxed);
            return Ok(());
        }
        self.servers.remove(key);
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await?;
        let (endpoints, health) = (Arc::new(AtomicUsize::new(endpoints)), self.health.clone());
        let (shared, name) = (endpoints.clone(), key.clone());
        let answer = move |_: &str| check(&name, shared.load(Ordering::Relaxed), &health);
        let task = tokio::spawn(answer_all(listener, answer));
        let server = HealthCheck { port, endpoints, task };
        self.servers.insert(key.clone(), server);
        Ok(())
    }
}

fn check(service: &Key, endpoints: usize, health: &Health) -> Response<Full<Bytes>> {
    let body = json!({
        "service": {"namespace": service.namespace(), "name": service.name()},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": health.is_well(),
    });
    with_headers(
        code(endpoints > 0 && health.is_well()),
        body.to_string(),
        Some(endpoints),
    )
}

async fn answer_all(
    listener: TcpListener,
    answer: impl Fn(&str) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
) {
    let connections = Connections::new(LIMITS);
    let serve = |stream, _| {
        let connection = connection(stream, answer.clone());
        async move { tokio::time::timeout(PATIENCE, connection).await? }
    };
    match serving::accept(&listener, &connections, serve).await {}
}

async fn connection(stream: TcpStream, answer: impl Fn(&str) -> Response<Full<Bytes>> + Clone) -> Result<(), AnyError> {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let response = answer(request.uri().path());
        async move { Ok::<_, Infallible>(response) }
    });
    let mut server = http_server().http1_only();
    server.http1().keep_alive(false);
    server.serve_connection(TokioIo::new(stream), service).await
}

fn code(well: bool) -> StatusCode {
    match well {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn plain(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        header::HeaderValue::from_static("nosniff"),
    );
    response
}

fn with_headers(code: StatusCode, body: String, weight: Option<usize>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        header::HeaderValue::from_static("nosniff"),
    );
    if let Some(weight) = weight {
        headers.insert("x-load-balancing-endpoint-weight", header::HeaderValue::from(weight));
    }
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn shown(response: Response<Full<Bytes>>) -> String {
        let code = response.status().as_u16();
        let weight = response.headers().get("x-load-balancing-endpoint-weight");
        let weight = weight
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        format!("{code} {weight} {}", String::from_utf8_lossy(&body))
    }

    #[tokio::test]
    async fn a_service_is_healthy_where_it_has_endpoints_and_the_proxy_works() {
        let (health, web) = (Health::default(), Key::new("default", "web"));
        let body = |well: bool, count: usize| {
            format!(
                r#"{{"localEndpoints":{count},"service":{{"name":"web","namespace":"default"}},"serviceProxyHealthy":{well}}}"#
            )
        };
        assert_eq!(
            shown(check(&web, 2, &health)).await,
            format!("503 2 {}", body(false, 2))
        );
        health.updated();
        assert_eq!(shown(check(&web, 2, &health)).await, format!("200 2 {}", body(true, 2)));
        assert_eq!(shown(check(&web, 0, &health)).await, format!("503 0 {}", body(true, 0)));
    }

    #[tokio::test]
    async fn a_node_that_is_leaving_is_alive_but_not_healthy() {
        let health = Health::default();
        assert!(shown(health.answer("/livez")).await.starts_with("503"));
        health.updated();
        assert!(shown(health.answer("/healthz")).await.starts_with("200"));
        health.set_leaving(true);
        let answer = shown(health.answer("/healthz")).await;
        assert!(
            answer.starts_with("503") && answer.contains("\"nodeEligible\":false"),
            "{answer}"
        );
        assert!(shown(health.answer("/livez")).await.starts_with("200"));
        assert!(shown(health.answer("/secrets")).await.starts_with("404"));
        health.0.times.lock().queued = Some(Moment::default());
        assert!(shown(health.answer("/livez")).await.starts_with("503"));
    }

    #[tokio::test]
    async fn the_status_tells_the_mode_and_figures_and_nothing_else() {
        let metrics = ProxyMetrics::default();
        let ask = |path: &'static str| shown(status(path, "nftables", &metrics));
        assert_eq!(ask("/proxyMode").await, "200  nftables");
        assert!(
            ask("/metrics")
                .await
                .contains("\nkubeproxy_sync_proxy_rules_duration_seconds_count{")
        );
        for path in ["/", "/proxymode", "/metrics/", "/debug/pprof/", "/configz"] {
            assert!(ask(path).await.starts_with("404"), "{path}");
        }
    }

    #[tokio::test]
    async fn a_port_that_somebody_has_is_told_and_one_that_is_given_back_is_free() {
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let (mut checks, web) = (HealthChecks::new(Health::default()), Key::new("default", "web"));
        assert!(checks.set(&web, Some((port, 1))).await.is_err());
        drop(taken);
        checks.set(&web, Some((port, 1))).await.unwrap();
        checks.set(&web, Some((port, 3))).await.unwrap();
        assert_eq!(checks.servers[&web].endpoints.load(Ordering::Relaxed), 3);
        checks.set(&web, None).await.unwrap();
        assert!(checks.servers.is_empty());
    }
}
