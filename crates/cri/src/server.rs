//! Any [`Runtime`] as a CRI endpoint, for an upstream kubelet or crictl.

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{Stream, StreamExt};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

use crate::methods::{Runtime, with_methods};
use crate::v1::image_service_server::{ImageService, ImageServiceServer};
use crate::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use crate::{Code, Error, Result, v1};

/// The largest request accepted.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Gives out URLs at which streams are waiting, for a runtime that has them in its own process.
#[async_trait]
pub trait StreamUrls: Send + Sync + 'static {
    async fn exec(&self, request: v1::ExecRequest) -> Result<v1::ExecResponse>;
    async fn attach(&self, request: v1::AttachRequest) -> Result<v1::AttachResponse>;
    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<v1::PortForwardResponse>;
}

/// Serves the runtime on a listening socket until the future is dropped.
pub async fn serve(listener: UnixListener, runtime: Arc<dyn Runtime>) -> Result<()> {
    serve_on(listener, Served { runtime, streams: None }).await
}

/// The same for a runtime whose streams are served by somebody else.
pub async fn serve_with_streams(
    listener: UnixListener,
    runtime: Arc<dyn Runtime>,
    streams: Arc<dyn StreamUrls>,
) -> Result<()> {
    let streams = Some(streams);
    serve_on(listener, Served { runtime, streams }).await
}

async fn serve_on(listener: UnixListener, served: Served) -> Result<()> {
    let connections = futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(connection, _)| connection);
        Some((accepted, listener))
    });
    tonic::transport::Server::builder()
        .add_service(RuntimeServiceServer::new(served.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(ImageServiceServer::new(served).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .serve_with_incoming(connections)
        .await
        .map_err(|error| Error::new(Code::Unavailable, format!("the CRI endpoint stopped: {error}")))
}

#[derive(Clone)]
struct Served {
    runtime: Arc<dyn Runtime>,
    streams: Option<Arc<dyn StreamUrls>>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How many items one piece of a streamed list has. A message with so many stays far below what clients accept.
const ITEMS_PER_PIECE: usize = 500;

/// A list as a stream of its pieces; an empty list has none.
fn pieces<T: Send + 'static, A: Send + 'static>(items: Vec<T>, piece: fn(Vec<T>) -> A) -> Response<Answers<A>> {
    let mut items = items.into_iter();
    let pieces = std::iter::from_fn(move || {
        let next: Vec<T> = items.by_ref().take(ITEMS_PER_PIECE).collect();
        (!next.is_empty()).then(|| Ok(piece(next)))
    });
    Response::new(Box::pin(futures_util::stream::iter(pieces)))
}

/// Asks whoever is responsible for a call.
macro_rules! call {
    (stream, $self:ident.$m:ident($request:expr)) => {
        match &$self.streams {
            Some(streams) => streams.$m($request).await,
            None => $self.runtime.$m($request).await,
        }
    };
    ($wait:ident, $self:ident.$m:ident($request:expr)) => {
        $self.runtime.$m($request).await
    };
}

/// Sorts the table's rows by service and writes each service's forwarding methods.
macro_rules! servers {
    (@split [$($runtime:tt)*] [$($images:tt)*] runtime $m:ident($Q:ident) -> $A:ident, $wait:ident; $($rest:tt)*) => {
        servers! { @split [$($runtime)* $m $Q $A $wait;] [$($images)*] $($rest)* }
    };
    (@split [$($runtime:tt)*] [$($images:tt)*] images $m:ident($Q:ident) -> $A:ident, $wait:ident; $($rest:tt)*) => {
        servers! { @split [$($runtime)*] [$($images)* $m $Q $A;] $($rest)* }
    };
    (@split [$($m:ident $Q:ident $A:ident $wait:ident;)*] [$($im:ident $IQ:ident $IA:ident;)*]) => {
        #[tonic::async_trait]
        impl RuntimeService for Served {
            $(
                async fn $m(&self, request: Request<v1::$Q>) -> Result<Response<v1::$A>, Status> {
                    Ok(Response::new(call!($wait, self.$m(request.into_inner()))?))
                }
            )*

            type StreamPodSandboxesStream = Answers<v1::StreamPodSandboxesResponse>;

            async fn stream_pod_sandboxes(&self, request: Request<v1::StreamPodSandboxesRequest>) -> Result<Response<Self::StreamPodSandboxesStream>, Status> {
                let filter = request.into_inner().filter;
                let whole = self.runtime.list_pod_sandbox(v1::ListPodSandboxRequest { filter }).await?;
                Ok(pieces(whole.items, |pod_sandboxes| v1::StreamPodSandboxesResponse { pod_sandboxes }))
            }

            type StreamContainersStream = Answers<v1::StreamContainersResponse>;

            async fn stream_containers(&self, request: Request<v1::StreamContainersRequest>) -> Result<Response<Self::StreamContainersStream>, Status> {
                let filter = request.into_inner().filter;
                let whole = self.runtime.list_containers(v1::ListContainersRequest { filter }).await?;
                Ok(pieces(whole.containers, |containers| v1::StreamContainersResponse { containers }))
            }

            type StreamContainerStatsStream = Answers<v1::StreamContainerStatsResponse>;

            async fn stream_container_stats(&self, request: Request<v1::StreamContainerStatsRequest>) -> Result<Response<Self::StreamContainerStatsStream>, Status> {
                let filter = request.into_inner().filter;
                let whole = self.runtime.list_container_stats(v1::ListContainerStatsRequest { filter }).await?;
                Ok(pieces(whole.stats, |container_stats| v1::StreamContainerStatsResponse { container_stats }))
            }

            type StreamPodSandboxStatsStream = Answers<v1::StreamPodSandboxStatsResponse>;

            async fn stream_pod_sandbox_stats(&self, request: Request<v1::StreamPodSandboxStatsRequest>) -> Result<Response<Self::StreamPodSandboxStatsStream>, Status> {
                let filter = request.into_inner().filter;
                let whole = self.runtime.list_pod_sandbox_stats(v1::ListPodSandboxStatsRequest { filter }).await?;
                Ok(pieces(whole.stats, |pod_sandbox_stats| v1::StreamPodSandboxStatsResponse { pod_sandbox_stats }))
            }

            type StreamPodSandboxMetricsStream = Answers<v1::StreamPodSandboxMetricsResponse>;

            async fn stream_pod_sandbox_metrics(&self, _: Request<v1::StreamPodSandboxMetricsRequest>) -> Result<Response<Self::StreamPodSandboxMetricsStream>, Status> {
                let whole = self.runtime.list_pod_sandbox_metrics(v1::ListPodSandboxMetricsRequest {}).await?;
                Ok(pieces(whole.pod_metrics, |pod_sandbox_metrics| v1::StreamPodSandboxMetricsResponse { pod_sandbox_metrics }))
            }

            type GetContainerEventsStream = Answers<v1::ContainerEventResponse>;

            async fn get_container_events(
                &self,
                _: Request<v1::GetEventsRequest>,
            ) -> Result<Response<Answers<v1::ContainerEventResponse>>, Status> {
                let events = self.runtime.events().await?;
                Ok(Response::new(Box::pin(events.map(|event| event.map_err(Status::from)))))
            }
        }

        #[tonic::async_trait]
        impl ImageService for Served {
            type StreamImagesStream = Answers<v1::StreamImagesResponse>;

            async fn stream_images(&self, request: Request<v1::StreamImagesRequest>) -> Result<Response<Self::StreamImagesStream>, Status> {
                let filter = request.into_inner().filter;
                let whole = self.runtime.list_images(v1::ListImagesRequest { filter }).await?;
                Ok(pieces(whole.images, |images| v1::StreamImagesResponse { images }))
            }

            $(
                async fn $im(&self, request: Request<v1::$IQ>) -> Result<Response<v1::$IA>, Status> {
                    Ok(Response::new(self.runtime.$im(request.into_inner()).await?))
                }
            )*
        }
    };
    ($($rows:tt)*) => {
        servers! { @split [] [] $($rows)* }
    };
}
with_methods!(servers);
