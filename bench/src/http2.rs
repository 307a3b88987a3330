//! HTTP/2: many requests and watches on a few connections, as clients of Kubernetes do it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memchr;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::target::Target;

const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 16 * 1024 * 1024;

/// A few connections that take requests in turn.
#[derive(Clone)]
pub struct Pool {
    senders: Arc<Vec<SendRequest<Full<Bytes>>>>,
    next: Arc<AtomicUsize>,
}

pub const JSON: &str = "application/json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

impl Pool {
    pub async fn connect(target: &Target, connections: usize) -> Result<Self> {
        let mut senders = Vec::with_capacity(connections);
        for _ in 0..connections {
            senders.push(begin(target.connect_http2().await?).await?);
        }
        Ok(Self::of(senders))
    }

    /// One connection, on which the node of this name asks.
    pub async fn connect_as_node(target: &Target, node: &str) -> Result<Self> {
        Ok(Self::of(vec![begin(target.connect_as_node(node).await?).await?]))
    }

    fn of(senders: Vec<SendRequest<Full<Bytes>>>) -> Self {
        Self {
            senders: Arc::new(senders),
            next: Arc::default(),
        }
    }

    /// The whole answer; fails unless it is a success.
    pub async fn ask(&self, method: Method, path: &str, content_type: &str, body: Vec<u8>) -> Result<Bytes> {
        self.ask_but(&[], method, path, content_type, body).await
    }

    /// The same for one that may also be answered with certain failures.
    pub async fn ask_but(
        &self,
        tolerated: &[StatusCode],
        method: Method,
        path: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<Bytes> {
        let response = self.send(method.clone(), path, content_type, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(
            status.is_success() || tolerated.contains(&status),
            "{method} {path}: {status} {}",
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }

    /// A response without end, read by its lines.
    pub async fn watch(&self, path: &str) -> Result<Lines> {
        let response = self.send(Method::GET, path, JSON, Vec::new()).await?;
        ensure!(response.status().is_success(), "watch {path}: {}", response.status());
        Ok(Lines {
            body: response.into_body(),
            read: BytesMut::new(),
        })
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: Vec<u8>) -> Result<Response<Incoming>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.senders.len();
        let request = Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("accept", JSON)
            .header("content-type", content_type)
            .header("user-agent", "load")
            .body(Full::from(body))?;
        let mut sender = self.senders[turn].clone();
        sender.ready().await?;
        sender
            .send_request(request)
            .await
            .with_context(|| format!("no answer for {path}"))
    }
}

async fn begin(stream: TlsStream<TcpStream>) -> Result<SendRequest<Full<Bytes>>> {
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    // Whoever waits for an answer on it learns of its end.
    tokio::spawn(connection);
    Ok(sender)
}

pub struct Lines {
    body: Incoming,
    read: BytesMut,
}

impl Lines {
    /// The next line, or nothing at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(end) = memchr(b'\n', &self.read) {
                return Ok(Some(self.read.split_to(end + 1).freeze()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}
