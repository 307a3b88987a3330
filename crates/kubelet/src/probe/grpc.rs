//! gRPC's health protocol: one call of `grpc.health.v1.Health/Check`.
//!
//! The two messages have one field each, so they are written and read by hand.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::Answer;
use super::tcp::{self, DialError};
use crate::limits;

const SERVING: u8 = 1;
/// The statuses of `HealthCheckResponse` by number.
const STATUSES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
/// The gRPC code of a server without a health service.
const UNIMPLEMENTED: &str = "12";

/// Why the health of a service is not known, in upstream's words where it has them.
#[derive(Debug, thiserror::Error)]
enum HealthError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("invalid request: {0}")]
    Request(#[from] http::Error),
    #[error("failed to read the answer of the health rpc: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("this server does not implement the grpc health protocol (grpc.health.v1.Health)")]
    Unimplemented,
    #[error("health rpc failed with code {0}")]
    Code(String),
    #[error("the answer of the health rpc is not a HealthCheckResponse")]
    Response,
}

pub async fn ask(address: &str, port: u16, service: &str, timeout: Duration) -> Answer {
    match tokio::time::timeout(timeout, check(address, port, service, timeout)).await {
        Ok(Ok(SERVING)) => Answer::Success,
        Ok(Ok(status)) => {
            let name = STATUSES.get(usize::from(status)).copied().unwrap_or("UNKNOWN");
            Answer::Failure(format!("service unhealthy (responded with {name:?})"))
        }
        Ok(Err(error)) => Answer::Failure(error.to_string()),
        Err(_) => {
            let timeout = crate::text::go_duration(timeout);
            Answer::Failure(format!("timeout: health rpc did not complete within {timeout}"))
        }
    }
}

async fn check(address: &str, port: u16, service: &str, timeout: Duration) -> Result<u8, HealthError> {
    let stream = tcp::connect(address, port, timeout).await?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut sender, connection) = handshake.await?;
    let driver = tokio::spawn(connection);
    let host = if address.contains(':') {
        format!("[{address}]")
    } else {
        address.to_owned()
    };
    let request = Request::post(format!("http://{host}:{port}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.36")
        .body(Full::new(request_frame(service)))?;
    let answer = sender.send_request(request).await?;
    let early = answer.headers().get("grpc-status").cloned();
    let body = Limited::new(answer.into_body(), limits::PROBE_OUTPUT_BYTES)
        .collect()
        .await;
    driver.abort();
    let body = body.map_err(HealthError::Body)?;
    let code = early.or_else(|| body.trailers()?.get("grpc-status").cloned());
    match code.as_ref().and_then(|code| code.to_str().ok()) {
        Some("0") | None => response_status(&body.to_bytes()),
        Some(UNIMPLEMENTED) => Err(HealthError::Unimplemented),
        Some(code) => Err(HealthError::Code(code.to_owned())),
    }
}

/// An uncompressed frame of `HealthCheckRequest { service = 1 }`.
fn request_frame(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8(length as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(service.as_bytes());
    }
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(&message);
    frame.freeze()
}

/// The enum in `HealthCheckResponse { status = 1 }`; an absent field is zero.
fn response_status(frame: &[u8]) -> Result<u8, HealthError> {
    match frame.get(5..) {
        Some([]) => Ok(0),
        Some([0x08, status, ..]) => Ok(*status),
        _ => Err(HealthError::Response),
    }
}
