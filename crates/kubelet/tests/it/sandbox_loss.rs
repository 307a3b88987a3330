//! A sandbox that somebody killed, on a runtime that tells of it by events.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use cri::{EventStream, Runtime, v1};
use futures_util::StreamExt;
use kubelet::{Kubelet, KubeletOptions};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::broadcast;

use crate::api::FakeApi;

const IMAGE: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000001";
const CGROUP_ROOT: &str = "/karve-test-sandbox-loss";
/// Far below the interval at which a kubelet lists what a runtime with events has.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sandboxes and containers that do nothing.
struct Pods {
    state: Mutex<State>,
    events: broadcast::Sender<v1::ContainerEventResponse>,
}

#[derive(Default)]
struct State {
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::ContainerStatus>,
    /// The sandbox of each container.
    places: Vec<String>,
    /// Attempts to start something in a sandbox that is gone.
    mistakes: usize,
}

impl Pods {
    /// Ends a sandbox and what is in it, and tells of it as the embedded runtime does: the sandbox first.
    fn kill_sandbox(&self, id: &str) {
        let mut state = self.state.lock();
        let gone = state.sandboxes.iter_mut().find(|sandbox| sandbox.id == id).unwrap();
        gone.state = v1::PodSandboxState::SandboxNotready.into();
        let status = v1::PodSandboxStatus {
            id: id.to_owned(),
            metadata: gone.metadata.clone(),
            state: gone.state,
            created_at: gone.created_at,
            ..v1::PodSandboxStatus::default()
        };
        let places = state.places.clone();
        let mut told = vec![id.to_owned()];
        for (container, place) in state.containers.iter_mut().zip(&places) {
            if place == id {
                container.state = v1::ContainerState::ContainerExited.into();
                container.exit_code = 137;
                container.finished_at = container.created_at + 1;
                told.push(container.id.clone());
            }
        }
        for container_id in told {
            let event = v1::ContainerEventResponse {
                container_id,
                container_event_type: v1::ContainerEventType::ContainerStoppedEvent.into(),
                pod_sandbox_status: Some(status.clone()),
                containers_statuses: state.containers.clone(),
                ..v1::ContainerEventResponse::default()
            };
            self.events.send(event).unwrap();
        }
    }

    fn running_in(&self, sandbox: usize) -> bool {
        let state = self.state.lock();
        let mut places = state.places.iter().zip(&state.containers);
        places.any(|(place, container)| {
            *place == format!("sandbox-{sandbox}") && container.state() == v1::ContainerState::ContainerRunning
        })
    }
}

#[async_trait]
impl Runtime for Pods {
    async fn version(&self, _: v1::VersionRequest) -> cri::Result<v1::VersionResponse> {
        Ok(v1::VersionResponse::default())
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> cri::Result<v1::RunPodSandboxResponse> {
        let config = request.config.unwrap_or_default();
        let mut state = self.state.lock();
        let id = format!("sandbox-{}", state.sandboxes.len());
        state.sandboxes.push(v1::PodSandbox {
            id: id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
            created_at: 1,
            ..v1::PodSandbox::default()
        });
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    async fn stop_pod_sandbox(&self, _: v1::StopPodSandboxRequest) -> cri::Result<v1::StopPodSandboxResponse> {
        Ok(v1::StopPodSandboxResponse {})
    }

    async fn list_pod_sandbox(&self, _: v1::ListPodSandboxRequest) -> cri::Result<v1::ListPodSandboxResponse> {
        let items = self.state.lock().sandboxes.clone();
        Ok(v1::ListPodSandboxResponse { items })
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> cri::Result<v1::PodSandboxStatusResponse> {
        let state = self.state.lock();
        let found = state
            .sandboxes
            .iter()
            .find(|sandbox| sandbox.id == request.pod_sandbox_id);
        let found = found.ok_or_else(|| cri::Error::not_found("no such sandbox"))?;
        let status = v1::PodSandboxStatus {
            id: found.id.clone(),
            metadata: found.metadata.clone(),
            state: found.state,
            created_at: found.created_at,
            ..v1::PodSandboxStatus::default()
        };
        Ok(v1::PodSandboxStatusResponse {
            status: Some(status),
            ..v1::PodSandboxStatusResponse::default()
        })
    }

    async fn create_container(&self, request: v1::CreateContainerRequest) -> cri::Result<v1::CreateContainerResponse> {
        let mut state = self.state.lock();
        let ready = |sandbox: &v1::PodSandbox| {
            sandbox.id == request.pod_sandbox_id && sandbox.state() == v1::PodSandboxState::SandboxReady
        };
        if !state.sandboxes.iter().any(ready) {
            state.mistakes += 1;
            return Err(cri::Error::precondition("the sandbox is not ready"));
        }
        let config = request.config.unwrap_or_default();
        let id = format!("container-{}", state.containers.len());
        state.places.push(request.pod_sandbox_id);
        state.containers.push(v1::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
            created_at: 1,
            ..v1::ContainerStatus::default()
        });
        Ok(v1::CreateContainerResponse { container_id: id })
    }

    async fn start_container(&self, request: v1::StartContainerRequest) -> cri::Result<v1::StartContainerResponse> {
        let mut state = self.state.lock();
        for container in state.containers.iter_mut().filter(|it| it.id == request.container_id) {
            container.state = v1::ContainerState::ContainerRunning.into();
            container.started_at = 2;
        }
        Ok(v1::StartContainerResponse {})
    }

    async fn list_containers(&self, _: v1::ListContainersRequest) -> cri::Result<v1::ListContainersResponse> {
        Ok(v1::ListContainersResponse::default())
    }

    async fn container_status(&self, request: v1::ContainerStatusRequest) -> cri::Result<v1::ContainerStatusResponse> {
        let state = self.state.lock();
        let found = state.containers.iter().find(|it| it.id == request.container_id);
        let found = found.ok_or_else(|| cri::Error::not_found("no such container"))?;
        Ok(v1::ContainerStatusResponse {
            status: Some(found.clone()),
            ..v1::ContainerStatusResponse::default()
        })
    }

    async fn image_status(&self, _: v1::ImageStatusRequest) -> cri::Result<v1::ImageStatusResponse> {
        Ok(v1::ImageStatusResponse {
            image: Some(v1::Image {
                id: IMAGE.to_owned(),
                ..v1::Image::default()
            }),
            ..v1::ImageStatusResponse::default()
        })
    }

    async fn events(&self) -> cri::Result<EventStream> {
        let events = self.events.subscribe();
        let stream = futures_util::stream::unfold(events, |mut events| async {
            let event = events.recv().await.ok()?;
            Some((Ok(event), events))
        });
        Ok(stream.boxed())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_sandbox_is_replaced_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let api = FakeApi::new();
    let runtime = Arc::new(Pods {
        state: Mutex::default(),
        events: broadcast::channel(64).0,
    });
    let options = KubeletOptions {
        root_dir: directory.path().join("k"),
        pod_logs_dir: directory.path().join("logs"),
        cgroup_root: CGROUP_ROOT.to_owned(),
        // How full the machine's disk is plays no part in this test.
        eviction_hard: "nodefs.available<10Mi".parse().expect("thresholds"),
        ..KubeletOptions::new(api.client(), runtime.clone(), "n1")
    };
    let kubelet = Kubelet::start(options).await.expect("the kubelet starts");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "n1", "hostNetwork": true, "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    });
    api.create("/api/v1/namespaces/default/pods", pod);
    let wait_until_running_in = async |sandbox: usize| {
        let begun = Instant::now();
        while !runtime.running_in(sandbox) {
            let events = api.events_about("web");
            assert!(
                begun.elapsed() < PATIENCE,
                "nothing runs in sandbox {sandbox}: {events:#?}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        begun.elapsed()
    };
    wait_until_running_in(0).await;
    runtime.kill_sandbox("sandbox-0");
    let took = wait_until_running_in(1).await;
    println!("recovered in {took:?}");
    drop(kubelet);
    let _ = kubelet::remove_cgroups(CGROUP_ROOT);
    assert_eq!(
        runtime.state.lock().mistakes,
        0,
        "a container was created in the dead sandbox"
    );
}
