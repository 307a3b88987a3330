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

type Events = Pin<Box<dyn Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send>>;

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

            type GetContainerEventsStream = Events;

            async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Result<Response<Events>, Status> {
                let events = self.runtime.events().await?;
                Ok(Response::new(Box::pin(events.map(|event| event.map_err(Status::from)))))
            }
        }

        #[tonic::async_trait]
        impl ImageService for Served {
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
