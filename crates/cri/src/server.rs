//! Any [`Runtime`] as a CRI endpoint, for an upstream kubelet or crictl.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

use crate::methods::{Runtime, with_methods};
use crate::v1::image_service_server::{ImageService, ImageServiceServer};
use crate::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use crate::{Code, Error, Result, v1};

/// The largest request accepted.
const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Serves the runtime on a listening socket until the future is dropped.
pub async fn serve(listener: UnixListener, runtime: Arc<dyn Runtime>) -> Result<()> {
    let connections = futures_util::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(connection, _)| connection);
        Some((accepted, listener))
    });
    tonic::transport::Server::builder()
        .add_service(RuntimeServiceServer::new(Served(runtime.clone())).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .add_service(ImageServiceServer::new(Served(runtime)).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .serve_with_incoming(connections)
        .await
        .map_err(|error| Error::new(Code::Unavailable, format!("the CRI endpoint stopped: {error}")))
}

struct Served(Arc<dyn Runtime>);

type Events = Pin<Box<dyn Stream<Item = Result<v1::ContainerEventResponse, Status>> + Send>>;

/// Sorts the table's rows by service and writes each service's forwarding methods.
macro_rules! servers {
    (@split [$($runtime:tt)*] [$($images:tt)*] runtime $m:ident($Q:ident) -> $A:ident, $wait:ident; $($rest:tt)*) => {
        servers! { @split [$($runtime)* $m $Q $A;] [$($images)*] $($rest)* }
    };
    (@split [$($runtime:tt)*] [$($images:tt)*] images $m:ident($Q:ident) -> $A:ident, $wait:ident; $($rest:tt)*) => {
        servers! { @split [$($runtime)*] [$($images)* $m $Q $A;] $($rest)* }
    };
    (@split [$($m:ident $Q:ident $A:ident;)*] [$($im:ident $IQ:ident $IA:ident;)*]) => {
        #[tonic::async_trait]
        impl RuntimeService for Served {
            $(
                async fn $m(&self, request: Request<v1::$Q>) -> Result<Response<v1::$A>, Status> {
                    Ok(Response::new(self.0.$m(request.into_inner()).await?))
                }
            )*

            type GetContainerEventsStream = Events;

            async fn get_container_events(&self, _: Request<v1::GetEventsRequest>) -> Result<Response<Events>, Status> {
                let events = self.0.events().await?;
                Ok(Response::new(Box::pin(events.map(|event| event.map_err(Status::from)))))
            }
        }

        #[tonic::async_trait]
        impl ImageService for Served {
            $(
                async fn $im(&self, request: Request<v1::$IQ>) -> Result<Response<v1::$IA>, Status> {
                    Ok(Response::new(self.0.$im(request.into_inner()).await?))
                }
            )*
        }
    };
    ($($rows:tt)*) => {
        servers! { @split [] [] $($rows)* }
    };
}
with_methods!(servers);
