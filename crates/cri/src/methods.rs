//! The [`Runtime`] trait, and the one table of its calls from which client and server are made.

use async_trait::async_trait;

use crate::stream::{EventStream, PortTarget, StreamTarget};
use crate::{Error, Result, v1};

/// Hands the table of unary calls to a macro: `service method(Request) -> Response, seconds of the caller's own wait;`.
///
/// The last column is what a call may take beyond the ordinary deadline, because the caller asked it to wait: `none`
/// where there is no such wait, `unbounded` where there is no deadline at all. `stream` has no such wait either, and says
/// that the answer is a URL.
macro_rules! with_methods {
    ($then:ident) => {
        $then! {
            runtime version(VersionRequest) -> VersionResponse, none;
            runtime status(StatusRequest) -> StatusResponse, none;
            runtime runtime_config(RuntimeConfigRequest) -> RuntimeConfigResponse, none;
            runtime update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse, none;

            runtime run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse, none;
            runtime stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse, none;
            runtime remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse, none;
            runtime pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse, none;
            runtime list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse, none;
            runtime update_pod_sandbox_resources(UpdatePodSandboxResourcesRequest) -> UpdatePodSandboxResourcesResponse, none;

            runtime create_container(CreateContainerRequest) -> CreateContainerResponse, none;
            runtime start_container(StartContainerRequest) -> StartContainerResponse, none;
            runtime stop_container(StopContainerRequest) -> StopContainerResponse, timeout;
            runtime remove_container(RemoveContainerRequest) -> RemoveContainerResponse, none;
            runtime container_status(ContainerStatusRequest) -> ContainerStatusResponse, none;
            runtime list_containers(ListContainersRequest) -> ListContainersResponse, none;
            runtime update_container_resources(UpdateContainerResourcesRequest) -> UpdateContainerResourcesResponse, none;
            runtime reopen_container_log(ReopenContainerLogRequest) -> ReopenContainerLogResponse, none;
            runtime checkpoint_container(CheckpointContainerRequest) -> CheckpointContainerResponse, timeout;

            runtime exec_sync(ExecSyncRequest) -> ExecSyncResponse, timeout;
            runtime exec(ExecRequest) -> ExecResponse, stream;
            runtime attach(AttachRequest) -> AttachResponse, stream;
            runtime port_forward(PortForwardRequest) -> PortForwardResponse, stream;

            runtime container_stats(ContainerStatsRequest) -> ContainerStatsResponse, none;
            runtime list_container_stats(ListContainerStatsRequest) -> ListContainerStatsResponse, none;
            runtime pod_sandbox_stats(PodSandboxStatsRequest) -> PodSandboxStatsResponse, none;
            runtime list_pod_sandbox_stats(ListPodSandboxStatsRequest) -> ListPodSandboxStatsResponse, none;

            runtime list_metric_descriptors(ListMetricDescriptorsRequest) -> ListMetricDescriptorsResponse, none;
            runtime list_pod_sandbox_metrics(ListPodSandboxMetricsRequest) -> ListPodSandboxMetricsResponse, none;

            images list_images(ListImagesRequest) -> ListImagesResponse, none;
            images image_status(ImageStatusRequest) -> ImageStatusResponse, none;
            images pull_image(PullImageRequest) -> PullImageResponse, unbounded;
            images remove_image(RemoveImageRequest) -> RemoveImageResponse, none;
            images image_fs_info(ImageFsInfoRequest) -> ImageFsInfoResponse, none;
        }
    };
}
pub(crate) use with_methods;

macro_rules! runtime_trait {
    ($($service:ident $method:ident($Request:ident) -> $Response:ident, $wait:ident;)*) => {
        /// A container runtime: the CRI's two services, and streams that need no detour by a URL.
        ///
        /// Every method is safe to call again after a lost answer, as the CRI asks: stopping what is stopped and
        /// removing what is gone succeed. A method that a runtime does not have fails with [`Error::unsupported`].
        #[async_trait]
        pub trait Runtime: Send + Sync + 'static {
            $(
                async fn $method(&self, request: v1::$Request) -> Result<v1::$Response> {
                    let _ = request;
                    Err(unsupported(stringify!($method)))
                }
            )*

            /// Runs a command in a container with its standard streams attached.
            async fn open_exec(&self, request: v1::ExecRequest) -> Result<StreamTarget> {
                Ok(StreamTarget::Url(self.exec(request).await?.url))
            }

            /// Attaches to the standard streams of a running container.
            async fn open_attach(&self, request: v1::AttachRequest) -> Result<StreamTarget> {
                Ok(StreamTarget::Url(self.attach(request).await?.url))
            }

            /// Connects to a port on the sandbox's loopback address.
            async fn open_port_forward(&self, pod_sandbox_id: &str, port: u16) -> Result<PortTarget> {
                let request = v1::PortForwardRequest {
                    pod_sandbox_id: pod_sandbox_id.to_owned(),
                    port: vec![i32::from(port)],
                };
                Ok(PortTarget::Url(self.port_forward(request).await?.url))
            }

            /// Subscribes to what happens to containers: created, started, stopped, deleted.
            ///
            /// Fails as unsupported where the runtime cannot tell; the kubelet then lists at intervals.
            async fn events(&self) -> Result<EventStream> {
                Err(unsupported("events"))
            }
        }
    };
}
with_methods!(runtime_trait);

fn unsupported(method: &str) -> Error {
    Error::unsupported(format!("this container runtime does not support {method}"))
}
