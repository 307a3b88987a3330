//! What the kubelet answers on port 10250: logs, exec, attach, port forwarding, and how it is.
//!
//! [`Server`] holds the answers and knows nothing of connections: it is a [`client::Transport`], so that an API server
//! in the same process calls it as it would call any node. `serve` puts it behind TLS and asks who is calling.

mod cadvisor;
mod certificate;
pub(crate) mod channels;
mod exec;
mod forward;
mod logs;
mod node_logs;
mod own;
mod page;
mod pod_details;
mod query;
mod remote;
mod serve;
mod stats;
mod streaming;
mod upgrade;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use client::{Body, Transport, TransportError, Upgrade, body_from_bytes};
use http::{Method, Request, Response, StatusCode, header};

use crate::pod::Pod;
use crate::shared::Shared;
use crate::static_pods::NodePods;
use query::Query;

pub use certificate::{CertificateError, ServingCertificates, certificates};
pub use serve::{ServeError, listen, serve, user_of};
pub use streaming::StreamServer;

pub struct Server {
    shared: Arc<Shared>,
    pods: NodePods,
    cpu: stats::NodeCpu,
    /// How the kubelet is configured, as a KubeletConfiguration.
    configuration: serde_json::Value,
    /// Whether `/logs/` answers questions about services.
    system_log_query: bool,
}

/// A request that was not granted: a status code and what to tell the client.
#[derive(Debug)]
pub struct Refusal {
    code: StatusCode,
    message: String,
}

impl Refusal {
    fn new(code: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal {
            code,
            message: message.into(),
        }
    }

    fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, message)
    }

    fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, message)
    }

    fn internal(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(crate) fn response(self) -> Response<Body> {
        text(self.code, self.message)
    }
}

type Answer = Result<Response<Body>, Refusal>;

impl Server {
    pub fn new(shared: Arc<Shared>, pods: NodePods, configuration: serde_json::Value) -> Server {
        let system_log_query = configuration["enableSystemLogQuery"] == true;
        Server {
            system_log_query,
            shared,
            pods,
            cpu: stats::NodeCpu::default(),
            configuration,
        }
    }

    /// Answers a request that does not switch protocols.
    pub async fn answer(&self, request: &Request<Bytes>) -> Response<Body> {
        self.route(request).await.unwrap_or_else(Refusal::response)
    }

    async fn route(&self, request: &Request<Bytes>) -> Answer {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let path: Vec<&str> = request
            .uri()
            .path()
            .split('/')
            .filter(|part| !part.is_empty())
            .collect();
        if request.method() != Method::GET {
            return Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed"));
        }
        match path.as_slice() {
            ["healthz"] | ["healthz", "ping" | "log" | "syncloop"] => Ok(text(StatusCode::OK, "ok")),
            ["pods"] => Ok(json(self.pod_list())),
            ["containerLogs", namespace, pod, container] => {
                let pod = self.pod(namespace, pod)?;
                logs::answer(&self.shared, &pod, container, &query).await
            }
            ["logs", path @ ..] => node_logs::answer(path, &query, self.system_log_query).await,
            ["stats", "summary"] => Ok(json(stats::summary(&self.shared, &self.cpu).await?)),
            ["metrics", "resource"] => Ok(text(
                StatusCode::OK,
                stats::resource_metrics(&self.shared, &self.cpu).await?,
            )),
            ["metrics"] => Ok(text(StatusCode::OK, own::page(&self.shared, &self.pods).await)),
            ["metrics", "cadvisor"] => Ok(text(StatusCode::OK, cadvisor::page(&self.shared, &self.pods).await?)),
            ["metrics", "probes"] => {
                let mut page = String::new();
                self.shared.figures.write_probes(&mut page);
                Ok(text(StatusCode::OK, page))
            }
            ["configz"] => {
                let answer = serde_json::json!({"kubeletconfig": self.configuration});
                Ok(json(answer.to_string().into_bytes()))
            }
            ["debug", "marks"] => Ok(json(stats::marks(&query))),
            ["exec" | "attach" | "portForward", ..] => Err(Refusal::bad_request("Upgrade request required")),
            _ => Err(Refusal::not_found("404 page not found")),
        }
    }

    /// The pods of this node, as their bytes are.
    fn pod_list(&self) -> Vec<u8> {
        let mut list = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec();
        for (index, object) in self.pods.all().iter().enumerate() {
            if index > 0 {
                list.push(b',');
            }
            list.extend_from_slice(&object.raw);
        }
        list.extend_from_slice(b"]}");
        list
    }

    fn pod(&self, namespace: &str, name: &str) -> Result<Arc<Pod>, Refusal> {
        let object = self.pods.get(namespace, name);
        let object = object.ok_or_else(|| Refusal::not_found(format!("pod {name:?} not found")))?;
        Ok(object.pod.clone())
    }
}

#[async_trait]
impl Transport for Server {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        Ok(self.answer(&request).await)
    }

    async fn upgrade(&self, request: Request<Bytes>) -> Result<Upgrade, TransportError> {
        match upgrade::open(self, &request).await {
            Err(refusal) => Ok(Upgrade::Refused(refusal.response())),
            Ok(opened) => {
                let (near, far) = tokio::io::duplex(upgrade::PIPE_BYTES);
                let (parts, ()) = opened.response().into_parts();
                tokio::spawn(opened.run(near));
                Ok(Upgrade::Open(parts, Box::new(far)))
            }
        }
    }
}

fn text(code: StatusCode, message: impl Into<String>) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", message.into().into_bytes())
}

fn json(content: Vec<u8>) -> Response<Body> {
    respond(StatusCode::OK, "application/json", content)
}

fn respond(code: StatusCode, content_type: &'static str, content: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(body_from_bytes(Bytes::from(content)));
    *response.status_mut() = code;
    let content_type = header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
