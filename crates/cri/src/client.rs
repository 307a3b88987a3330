//! A [`Runtime`] that is another process: containerd or CRI-O behind a Unix socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::methods::{Runtime, with_methods};
use crate::stream::EventStream;
use crate::v1::image_service_client::ImageServiceClient;
use crate::v1::runtime_service_client::RuntimeServiceClient;
use crate::{Code, Error, Result, v1};

/// The largest answer accepted; a list of every container on a node must fit.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// How long a call may take, beside any wait it asks for itself.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait for a runtime to say that it has no events; after that the silence means it has them.
const EVENTS_PROBE: Duration = Duration::from_millis(250);

/// Connects to the runtime and image services at one endpoint: `unix:///run/containerd/containerd.sock` or a path.
pub async fn connect(endpoint: &str) -> Result<Arc<dyn Runtime>> {
    connect_with(endpoint, endpoint).await
}

/// Connects to a runtime whose images are served at another endpoint.
pub async fn connect_with(runtime_endpoint: &str, image_endpoint: &str) -> Result<Arc<dyn Runtime>> {
    let runtime = channel(runtime_endpoint).await?;
    let images = if image_endpoint == runtime_endpoint {
        runtime.clone()
    } else {
        channel(image_endpoint).await?
    };
    let client = Client {
        runtime: RuntimeServiceClient::new(runtime).max_decoding_message_size(MAX_MESSAGE_BYTES),
        images: ImageServiceClient::new(images).max_decoding_message_size(MAX_MESSAGE_BYTES),
    };
    client.version(v1::VersionRequest::default()).await?;
    Ok(Arc::new(client))
}

struct Client {
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
}

macro_rules! client {
    ($($service:ident $method:ident($Request:ident) -> $Response:ident, $wait:ident;)*) => {
        #[async_trait]
        impl Runtime for Client {
            $(
                async fn $method(&self, request: v1::$Request) -> Result<v1::$Response> {
                    let deadline = deadline!($wait, request);
                    let mut service = self.$service.clone();
                    bounded(stringify!($method), deadline, service.$method(request)).await
                }
            )*

            async fn events(&self) -> Result<EventStream> {
                self.subscribe().await
            }
        }
    };
}

macro_rules! deadline {
    (none, $request:ident) => {
        Some(CALL_TIMEOUT)
    };
    (stream, $request:ident) => {
        Some(CALL_TIMEOUT)
    };
    (timeout, $request:ident) => {
        extended($request.timeout)
    };
    (unbounded, $request:ident) => {
        None
    };
}
with_methods!(client);

impl Client {
    /// A runtime without events refuses at once; one that has them may send nothing, not even headers, before the
    /// first event.
    async fn subscribe(&self) -> Result<EventStream> {
        let mut service = self.runtime.clone();
        let mut opening = Box::pin(async move { service.get_container_events(v1::GetEventsRequest {}).await });
        let opened = tokio::time::timeout(EVENTS_PROBE, &mut opening).await;
        let flatten = |answer: tonic::Response<tonic::Streaming<v1::ContainerEventResponse>>| {
            answer.into_inner().map(|event| event.map_err(Error::from))
        };
        match opened {
            Ok(answer) => Ok(Box::pin(flatten(answer?))),
            Err(_) => {
                let later = futures_util::stream::once(opening);
                Ok(Box::pin(later.flat_map(move |answer| match answer {
                    Ok(answer) => flatten(answer).boxed(),
                    Err(status) => futures_util::stream::iter([Err(Error::from(status))]).boxed(),
                })))
            }
        }
    }
}

/// The deadline of a call that was asked to wait. A call asked to wait forever has none.
fn extended(timeout_seconds: i64) -> Option<Duration> {
    match u64::try_from(timeout_seconds) {
        Ok(seconds) => Some(CALL_TIMEOUT.saturating_add(Duration::from_secs(seconds))),
        Err(_) => Some(CALL_TIMEOUT),
    }
}

async fn bounded<T>(
    method: &'static str,
    deadline: Option<Duration>,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T> {
    let answer = match deadline {
        None => call.await,
        Some(limit) => tokio::time::timeout(limit, call).await.map_err(|_| {
            Error::new(
                Code::DeadlineExceeded,
                format!("the container runtime did not answer {method} in {limit:?}"),
            )
        })?,
    };
    Ok(answer?.into_inner())
}

async fn channel(endpoint: &str) -> Result<Channel> {
    let path = socket_path(endpoint)?;
    let dial = {
        let path = path.clone();
        move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }
    };
    // The URI only fills HTTP/2's authority: the connector ignores it.
    Endpoint::from_static("http://localhost")
        .connect_timeout(CONNECT_TIMEOUT)
        .connect_with_connector(tower::service_fn(dial))
        .await
        .map_err(|error| {
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::new(
                Code::Unavailable,
                format!("cannot connect to the container runtime at {}: {why}", path.display()),
            )
        })
}

fn socket_path(endpoint: &str) -> Result<PathBuf> {
    let path = endpoint
        .strip_prefix("unix://")
        .or_else(|| endpoint.strip_prefix("unix:"))
        .unwrap_or(endpoint);
    if path.starts_with('/') {
        return Ok(PathBuf::from(path));
    }
    Err(Error::invalid(format!(
        "the container runtime endpoint {endpoint:?} is not a Unix socket: use unix:///path"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_unix_sockets() {
        let check = |endpoint: &str| socket_path(endpoint).map(|path| path.display().to_string());
        assert_eq!(check("unix:///run/c.sock").as_deref(), Ok("/run/c.sock"));
        assert_eq!(check("unix:/run/c.sock").as_deref(), Ok("/run/c.sock"));
        assert_eq!(check("/run/c.sock").as_deref(), Ok("/run/c.sock"));
        assert_eq!(
            check("tcp://localhost:1").map_err(|e| e.code),
            Err(Code::InvalidArgument)
        );
    }
}
