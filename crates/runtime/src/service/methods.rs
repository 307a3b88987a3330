//! The CRI, call by call.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use cri::{EventStream, PortTarget, Result, Runtime, StreamTarget, v1};

use super::{Embedded, metrics, now_ns};
use crate::plan;

const RUNTIME_NAME: &str = "karve";
const RUNTIME_VERSION: &str = env!("CARGO_PKG_VERSION");
const CRI_VERSION: &str = "v1";
/// The version of the kubelet's runtime API, which has not changed since it was first numbered.
const KUBELET_API_VERSION: &str = "0.1.0";

#[async_trait]
impl Runtime for Embedded {
    async fn version(&self, _: v1::VersionRequest) -> Result<v1::VersionResponse> {
        Ok(v1::VersionResponse {
            version: KUBELET_API_VERSION.to_owned(),
            runtime_name: RUNTIME_NAME.to_owned(),
            runtime_version: RUNTIME_VERSION.to_owned(),
            runtime_api_version: CRI_VERSION.to_owned(),
        })
    }

    async fn status(&self, request: v1::StatusRequest) -> Result<v1::StatusResponse> {
        let network = self.network.status().await;
        let condition = |r#type: &str, error: Option<String>| v1::RuntimeCondition {
            r#type: r#type.to_owned(),
            status: error.is_none(),
            reason: if error.is_some() {
                "NetworkPluginNotReady".to_owned()
            } else {
                String::new()
            },
            message: error.unwrap_or_default(),
        };
        let conditions = vec![
            condition("RuntimeReady", None),
            condition("NetworkReady", network.err().map(|e| e.to_string())),
        ];
        Ok(v1::StatusResponse {
            status: Some(v1::RuntimeStatus { conditions }),
            info: match request.verbose {
                true => self.runtime_info()?,
                false => BTreeMap::new(),
            },
            runtime_handlers: plan::RUNTIME_HANDLERS
                .iter()
                .map(|name| v1::RuntimeHandler {
                    name: (*name).to_owned(),
                    features: Some(v1::RuntimeHandlerFeatures {
                        recursive_read_only_mounts: true,
                        user_namespaces: self.user_namespaces().is_ok(),
                    }),
                })
                .collect(),
            features: Some(v1::RuntimeFeatures {
                supplemental_groups_policy: true,
                user_namespaces_host_network: false,
            }),
        })
    }

    async fn runtime_config(&self, _: v1::RuntimeConfigRequest) -> Result<v1::RuntimeConfigResponse> {
        let linux = v1::LinuxRuntimeConfiguration {
            cgroup_driver: v1::CgroupDriver::Cgroupfs.into(),
        };
        Ok(v1::RuntimeConfigResponse { linux: Some(linux) })
    }

    async fn update_runtime_config(
        &self,
        request: v1::UpdateRuntimeConfigRequest,
    ) -> Result<v1::UpdateRuntimeConfigResponse> {
        let cidrs = request
            .runtime_config
            .and_then(|config| config.network_config)
            .map(|network| network.pod_cidr);
        let cidrs = cidrs.unwrap_or_default();
        let parsed = cidrs
            .split(',')
            .filter(|cidr| !cidr.is_empty())
            .map(str::parse)
            .collect::<Result<Vec<_>, _>>();
        let parsed = parsed.map_err(|error: network::CidrError| cri::Error::invalid(error.to_string()))?;
        if !parsed.is_empty() {
            let updated = self.network.update_pod_cidrs(&parsed).await;
            updated.map_err(|error| cri::Error::internal(error.to_string()))?;
        }
        Ok(v1::UpdateRuntimeConfigResponse {})
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> Result<v1::RunPodSandboxResponse> {
        let pod_sandbox_id = self
            .to_end(|runtime| async move { runtime.run_sandbox(request).await })
            .await?;
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id })
    }

    async fn stop_pod_sandbox(&self, request: v1::StopPodSandboxRequest) -> Result<v1::StopPodSandboxResponse> {
        if let Some(sandbox) = present(self.sandbox(&request.pod_sandbox_id))? {
            self.to_end(|runtime| async move { runtime.stop_sandbox(&sandbox).await })
                .await?;
        }
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(&self, request: v1::RemovePodSandboxRequest) -> Result<v1::RemovePodSandboxResponse> {
        if let Some(sandbox) = present(self.sandbox(&request.pod_sandbox_id))? {
            self.to_end(|runtime| async move { runtime.remove_sandbox(&sandbox).await })
                .await?;
        }
        Ok(v1::RemovePodSandboxResponse {})
    }

    async fn pod_sandbox_status(&self, request: v1::PodSandboxStatusRequest) -> Result<v1::PodSandboxStatusResponse> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        let containers = self.containers_of(&sandbox.record.id);
        Ok(v1::PodSandboxStatusResponse {
            status: Some(self.sandbox_status(&sandbox)),
            info: match request.verbose {
                true => self.sandbox_info(&sandbox)?,
                false => BTreeMap::new(),
            },
            containers_statuses: containers.iter().map(|container| container.status()).collect(),
            timestamp: now_ns(),
        })
    }

    async fn list_pod_sandbox(&self, request: v1::ListPodSandboxRequest) -> Result<v1::ListPodSandboxResponse> {
        let filter = request.filter.unwrap_or_default();
        let sandboxes = self.sandboxes.read();
        let items = sandboxes
            .values()
            .filter(|sandbox| sandbox.matches(&filter))
            .map(|sandbox| sandbox.listed());
        Ok(v1::ListPodSandboxResponse { items: items.collect() })
    }

    /// The kubelet has set the pod's cgroup already; the runtime is only told.
    async fn update_pod_sandbox_resources(
        &self,
        request: v1::UpdatePodSandboxResourcesRequest,
    ) -> Result<v1::UpdatePodSandboxResourcesResponse> {
        self.sandbox(&request.pod_sandbox_id)?;
        Ok(v1::UpdatePodSandboxResourcesResponse {})
    }

    async fn create_container(&self, request: v1::CreateContainerRequest) -> Result<v1::CreateContainerResponse> {
        let runtime = self.itself.upgrade().ok_or_else(super::gone)?;
        let created = tokio::task::spawn_blocking(move || runtime.create_container_in(request)).await;
        let container_id = created.map_err(|error| cri::Error::internal(error.to_string()))??;
        Ok(v1::CreateContainerResponse { container_id })
    }

    async fn start_container(&self, request: v1::StartContainerRequest) -> Result<v1::StartContainerResponse> {
        let container = self.container(&request.container_id)?;
        self.to_end(|runtime| async move { runtime.start_container_of(&container).await })
            .await?;
        Ok(v1::StartContainerResponse {})
    }

    async fn stop_container(&self, request: v1::StopContainerRequest) -> Result<v1::StopContainerResponse> {
        if let Some(container) = present(self.container(&request.container_id))? {
            let timeout = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
            self.stop_container_of(&container, timeout).await?;
        }
        Ok(v1::StopContainerResponse {})
    }

    async fn remove_container(&self, request: v1::RemoveContainerRequest) -> Result<v1::RemoveContainerResponse> {
        if let Some(container) = present(self.container(&request.container_id))? {
            self.to_end(|runtime| async move { runtime.remove_container_of(&container).await })
                .await?;
        }
        Ok(v1::RemoveContainerResponse {})
    }

    async fn container_status(&self, request: v1::ContainerStatusRequest) -> Result<v1::ContainerStatusResponse> {
        let container = self.container(&request.container_id)?;
        Ok(v1::ContainerStatusResponse {
            status: Some(container.status()),
            info: match request.verbose {
                true => self.container_info(&container).await?,
                false => BTreeMap::new(),
            },
        })
    }

    async fn list_containers(&self, request: v1::ListContainersRequest) -> Result<v1::ListContainersResponse> {
        let filter = request.filter.unwrap_or_default();
        let containers = self.containers.read();
        let matching = containers.values().filter(|container| container.matches(&filter));
        Ok(v1::ListContainersResponse {
            containers: matching.map(|container| container.listed()).collect(),
        })
    }

    async fn update_container_resources(
        &self,
        request: v1::UpdateContainerResourcesRequest,
    ) -> Result<v1::UpdateContainerResourcesResponse> {
        self.update_resources(request)?;
        Ok(v1::UpdateContainerResourcesResponse {})
    }

    async fn reopen_container_log(
        &self,
        request: v1::ReopenContainerLogRequest,
    ) -> Result<v1::ReopenContainerLogResponse> {
        self.reopen_log(&request.container_id).await?;
        Ok(v1::ReopenContainerLogResponse {})
    }

    async fn exec_sync(&self, request: v1::ExecSyncRequest) -> Result<v1::ExecSyncResponse> {
        self.exec_sync_in(request).await
    }

    async fn open_exec(&self, request: v1::ExecRequest) -> Result<StreamTarget> {
        self.open_exec_in(request).await
    }

    async fn open_attach(&self, request: v1::AttachRequest) -> Result<StreamTarget> {
        self.open_attach_to(request).await
    }

    async fn open_port_forward(&self, pod_sandbox_id: &str, port: u16) -> Result<PortTarget> {
        let sandbox = self.sandbox(pod_sandbox_id)?;
        self.open_port(&sandbox, port).await
    }

    async fn container_stats(&self, request: v1::ContainerStatsRequest) -> Result<v1::ContainerStatsResponse> {
        let container = self.container(&request.container_id)?;
        Ok(v1::ContainerStatsResponse {
            stats: Some(self.container_stats_of(container).await?),
        })
    }

    async fn list_container_stats(
        &self,
        request: v1::ListContainerStatsRequest,
    ) -> Result<v1::ListContainerStatsResponse> {
        Ok(v1::ListContainerStatsResponse {
            stats: self.list_container_stats_of(request.filter).await?,
        })
    }

    async fn pod_sandbox_stats(&self, request: v1::PodSandboxStatsRequest) -> Result<v1::PodSandboxStatsResponse> {
        let sandbox = self.sandbox(&request.pod_sandbox_id)?;
        Ok(v1::PodSandboxStatsResponse {
            stats: Some(self.sandbox_stats_of(sandbox).await?),
        })
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: v1::ListPodSandboxStatsRequest,
    ) -> Result<v1::ListPodSandboxStatsResponse> {
        let filter = request.filter.unwrap_or_default();
        let filter = v1::PodSandboxFilter {
            id: filter.id,
            label_selector: filter.label_selector,
            ..Default::default()
        };
        let matching: Vec<_> = self
            .sandboxes
            .read()
            .values()
            .filter(|s| s.matches(&filter))
            .cloned()
            .collect();
        let mut stats = Vec::new();
        for sandbox in matching.into_iter().filter(|sandbox| sandbox.running().is_some()) {
            stats.push(self.sandbox_stats_of(sandbox).await?);
        }
        Ok(v1::ListPodSandboxStatsResponse { stats })
    }

    async fn list_images(&self, request: v1::ListImagesRequest) -> Result<v1::ListImagesResponse> {
        Ok(v1::ListImagesResponse {
            images: self.list_images_of(&request),
        })
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> Result<v1::ImageStatusResponse> {
        let image = self.find_image(request.image.as_ref())?;
        Ok(v1::ImageStatusResponse {
            info: match &image {
                Some(image) if request.verbose => self.image_info(image)?,
                _ => BTreeMap::new(),
            },
            image: image.map(|image| image.shown()),
        })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> Result<v1::PullImageResponse> {
        Ok(v1::PullImageResponse {
            image_ref: self.pull(request).await?,
        })
    }

    async fn remove_image(&self, request: v1::RemoveImageRequest) -> Result<v1::RemoveImageResponse> {
        self.remove_image_of(request.image.as_ref())?;
        Ok(v1::RemoveImageResponse {})
    }

    async fn image_fs_info(&self, _: v1::ImageFsInfoRequest) -> Result<v1::ImageFsInfoResponse> {
        self.image_file_system().await
    }

    async fn list_metric_descriptors(
        &self,
        _: v1::ListMetricDescriptorsRequest,
    ) -> Result<v1::ListMetricDescriptorsResponse> {
        Ok(v1::ListMetricDescriptorsResponse {
            descriptors: metrics::descriptors(),
        })
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _: v1::ListPodSandboxMetricsRequest,
    ) -> Result<v1::ListPodSandboxMetricsResponse> {
        Ok(v1::ListPodSandboxMetricsResponse {
            pod_metrics: self.sandbox_metrics().await?,
        })
    }

    async fn events(&self) -> Result<EventStream> {
        Ok(self.subscribe())
    }
}

/// Stopping and removing what is gone succeeds.
fn present<T>(found: Result<T>) -> Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
