//! The calls on one driver. Each client is one connection, made for few calls: a driver that was restarted is behind another
//! socket of the same name.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::capabilities::NodeCapabilities;
use crate::registration::registration_client;
use crate::v1::node_client;
use crate::{Code, Error, Result, registration, v1};

/// The largest answer of a driver that is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// The same of a socket that only says who it belongs to.
const MAX_REGISTRATION_BYTES: usize = 64 << 10;
/// Headers of an answer.
const MAX_HEADER_BYTES: u32 = 16 << 10;
/// How long a driver may take for one call, as upstream has it.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a socket may take to say who it belongs to.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The node service of one driver.
#[derive(Clone)]
pub struct NodeClient {
    service: node_client::NodeClient<Channel>,
    timeout: Duration,
}

/// Calls that take a request and give an answer.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident = $method:ident($Request:ident) -> $Response:ident;)*) => {
        $(
            $(#[$doc])*
            pub async fn $name(&self, request: v1::$Request) -> Result<v1::$Response> {
                let mut service = self.service.clone();
                bounded(self.timeout, service.$method(request)).await
            }
        )*
    };
}

impl NodeClient {
    /// Connects to the socket that the descriptor is open on.
    pub async fn connect(socket: OwnedFd) -> Result<NodeClient> {
        let channel = channel(socket).await?;
        Ok(NodeClient {
            service: node_client::NodeClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES),
            timeout: CALL_TIMEOUT,
        })
    }

    /// Gives calls less time than drivers usually have.
    pub fn within(self, timeout: Duration) -> NodeClient {
        NodeClient { timeout, ..self }
    }

    pub async fn capabilities(&self) -> Result<NodeCapabilities> {
        let mut service = self.service.clone();
        let request = v1::NodeGetCapabilitiesRequest {};
        let answer = bounded(self.timeout, service.node_get_capabilities(request)).await?;
        Ok(answer.into())
    }

    pub async fn info(&self) -> Result<v1::NodeGetInfoResponse> {
        let mut service = self.service.clone();
        bounded(self.timeout, service.node_get_info(v1::NodeGetInfoRequest {})).await
    }

    calls! {
        stage = node_stage_volume(NodeStageVolumeRequest) -> NodeStageVolumeResponse;
        unstage = node_unstage_volume(NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
        publish = node_publish_volume(NodePublishVolumeRequest) -> NodePublishVolumeResponse;
        unpublish = node_unpublish_volume(NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
        volume_stats = node_get_volume_stats(NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
        expand = node_expand_volume(NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
    }
}

/// The socket by which a plugin makes itself known.
pub struct RegistrationClient(registration_client::RegistrationClient<Channel>);

impl RegistrationClient {
    /// Connects to the socket that the descriptor is open on.
    pub async fn connect(socket: OwnedFd) -> Result<RegistrationClient> {
        let service = registration_client::RegistrationClient::new(channel(socket).await?);
        Ok(RegistrationClient(
            service.max_decoding_message_size(MAX_REGISTRATION_BYTES),
        ))
    }

    pub async fn info(&self) -> Result<registration::PluginInfo> {
        let mut service = self.0.clone();
        bounded(REGISTRATION_TIMEOUT, service.get_info(registration::InfoRequest {})).await
    }

    /// Says that the plugin is registered, or why it is not.
    pub async fn notify(&self, refused: Option<String>) -> Result<()> {
        let mut service = self.0.clone();
        let status = registration::RegistrationStatus {
            plugin_registered: refused.is_none(),
            error: refused.unwrap_or_default(),
        };
        bounded(REGISTRATION_TIMEOUT, service.notify_registration_status(status)).await?;
        Ok(())
    }
}

async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(Error::new(Code::DeadlineExceeded, "context deadline exceeded")),
    }
}

/// Connects by the descriptor, not by a path: what was looked at is what is connected to, and long paths are no matter.
async fn channel(socket: OwnedFd) -> Result<Channel> {
    let socket = Arc::new(socket);
    let dial = move |_: Uri| {
        let socket = socket.clone();
        async move {
            let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
            UnixStream::connect(path).await.map(TokioIo::new)
        }
    };
    // The URI only fills HTTP/2's authority: the connector ignores it.
    Endpoint::from_static("http://localhost")
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .connect_with_connector(tower::service_fn(dial))
        .await
        .map_err(|error| {
            let why = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            Error::new(Code::Unavailable, format!("connection error: {why}"))
        })
}
