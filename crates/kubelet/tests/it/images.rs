//! Who may use an image that another pod has pulled. The runtime is made up: it has a registry that wants a password.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cri::{Runtime, v1};
use kubelet::{Kubelet, KubeletOptions};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::FakeApi;

const PRIVATE: &str = "registry.example/team/app:1";
const PRELOADED: &str = "registry.example/team/imported:1";
const PATIENCE: Duration = Duration::from_secs(30);

/// Images, and sandboxes so that kubelets get to the point of needing some. Containers are never created.
#[derive(Default)]
struct Images {
    /// Ids by name.
    present: Mutex<BTreeMap<String, String>>,
    sandboxes: Mutex<Vec<v1::PodSandbox>>,
    pulls: Mutex<Vec<String>>,
}

impl Images {
    fn image(&self, name: &str) -> Option<v1::Image> {
        let present = self.present.lock();
        let (name, id) = present.iter().find(|(known, id)| *known == name || *id == name)?;
        Some(v1::Image {
            id: id.clone(),
            repo_tags: vec![name.clone()],
            ..v1::Image::default()
        })
    }
}

#[async_trait]
impl Runtime for Images {
    async fn version(&self, _: v1::VersionRequest) -> cri::Result<v1::VersionResponse> {
        Ok(v1::VersionResponse::default())
    }

    async fn run_pod_sandbox(&self, request: v1::RunPodSandboxRequest) -> cri::Result<v1::RunPodSandboxResponse> {
        let config = request.config.unwrap_or_default();
        let mut sandboxes = self.sandboxes.lock();
        let id = format!("sandbox-{}", sandboxes.len());
        sandboxes.push(v1::PodSandbox {
            id: id.clone(),
            metadata: config.metadata,
            labels: config.labels,
            annotations: config.annotations,
            created_at: 1,
            ..v1::PodSandbox::default()
        });
        Ok(v1::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    async fn list_pod_sandbox(&self, _: v1::ListPodSandboxRequest) -> cri::Result<v1::ListPodSandboxResponse> {
        let items = self.sandboxes.lock().clone();
        Ok(v1::ListPodSandboxResponse { items })
    }

    async fn pod_sandbox_status(
        &self,
        request: v1::PodSandboxStatusRequest,
    ) -> cri::Result<v1::PodSandboxStatusResponse> {
        let sandboxes = self.sandboxes.lock();
        let sandbox = sandboxes.iter().find(|sandbox| sandbox.id == request.pod_sandbox_id);
        let sandbox = sandbox.ok_or_else(|| cri::Error::not_found("no such sandbox"))?.clone();
        let status = v1::PodSandboxStatus {
            id: sandbox.id,
            metadata: sandbox.metadata,
            labels: sandbox.labels,
            annotations: sandbox.annotations,
            created_at: 1,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: "10.0.0.1".to_owned(),
                ..v1::PodSandboxNetworkStatus::default()
            }),
            ..v1::PodSandboxStatus::default()
        };
        Ok(v1::PodSandboxStatusResponse {
            status: Some(status),
            ..v1::PodSandboxStatusResponse::default()
        })
    }

    async fn list_containers(&self, _: v1::ListContainersRequest) -> cri::Result<v1::ListContainersResponse> {
        Ok(v1::ListContainersResponse::default())
    }

    async fn list_images(&self, _: v1::ListImagesRequest) -> cri::Result<v1::ListImagesResponse> {
        let names: Vec<String> = self.present.lock().keys().cloned().collect();
        let images = names.iter().filter_map(|name| self.image(name)).collect();
        Ok(v1::ListImagesResponse { images })
    }

    async fn image_status(&self, request: v1::ImageStatusRequest) -> cri::Result<v1::ImageStatusResponse> {
        let name = request.image.unwrap_or_default().image;
        Ok(v1::ImageStatusResponse {
            image: self.image(&name),
            ..v1::ImageStatusResponse::default()
        })
    }

    async fn pull_image(&self, request: v1::PullImageRequest) -> cri::Result<v1::PullImageResponse> {
        let name = request.image.unwrap_or_default().image;
        let auth = request.auth.unwrap_or_default();
        self.pulls.lock().push(format!("{name} as {}", auth.username));
        if (auth.username.as_str(), auth.password.as_str()) != ("me", "right") {
            return Err(cri::Error::new(cri::Code::PermissionDenied, "pull access denied"));
        }
        let id = format!("sha256:{:064}", name.len());
        self.present.lock().insert(name, id.clone());
        Ok(v1::PullImageResponse { image_ref: id })
    }
}

struct Node {
    api: FakeApi,
    runtime: Arc<Images>,
    directory: tempfile::TempDir,
    kubelet: Option<Kubelet>,
}

impl Node {
    async fn start() -> Node {
        let api = FakeApi::new();
        for (name, password) in [("right", "right"), ("same", "right"), ("wrong", "wrong")] {
            let auths = json!({"auths": {"registry.example": {"username": "me", "password": password}}});
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
                "type": "kubernetes.io/dockerconfigjson",
                "data": {".dockerconfigjson": STANDARD.encode(auths.to_string())},
            });
            api.create("/api/v1/namespaces/default/secrets", secret);
        }
        let mut node = Node {
            api,
            runtime: Arc::default(),
            directory: tempfile::tempdir().expect("a directory"),
            kubelet: None,
        };
        node.runtime
            .present
            .lock()
            .insert(PRELOADED.to_owned(), "sha256:imported".to_owned());
        node.start_kubelet().await;
        node
    }

    async fn start_kubelet(&mut self) {
        let mut options = KubeletOptions::new(self.api.client(), self.runtime.clone(), "n1");
        options.root_dir = self.directory.path().join("kubelet");
        options.pod_logs_dir = self.directory.path().join("logs");
        options.cgroup_root = "/karve-test-images".to_owned();
        // How full the machine's disk is plays no part in this test.
        options.eviction_hard = "nodefs.available<10Mi".parse().expect("thresholds");
        self.kubelet = Some(Kubelet::start(options).await.expect("the kubelet starts"));
    }

    /// How a pod fares: what its container waits for. To be created is as far as it can get.
    async fn fares(&self, name: &str, image: &str, policy: &str, secret: Option<&str>) -> String {
        let secrets: Vec<Value> = secret.iter().map(|name| json!({"name": name})).collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "nodeName": "n1", "hostNetwork": true, "imagePullSecrets": secrets,
                "containers": [{"name": "main", "image": image, "imagePullPolicy": policy}],
            },
            "status": {"phase": "Pending"},
        });
        self.api.create("/api/v1/namespaces/default/pods", pod);
        let begun = Instant::now();
        loop {
            let pod = self.api.get(&format!("/api/v1/namespaces/default/pods/{name}"));
            let pod = pod.unwrap_or_default();
            let reason = pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str();
            match reason.unwrap_or_default() {
                "" | "ContainerCreating" | "PodInitializing" => {}
                reason => return reason.to_owned(),
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{name}: {:#}\n{:#?}",
                pod["status"],
                self.api.events_about(name)
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, |entries| entries.count())
}

const USABLE: &str = "CreateContainerError";

#[tokio::test(flavor = "multi_thread")]
async fn a_present_image_is_for_pods_that_could_have_pulled_it() {
    let mut node = Node::start().await;
    let before = node.fares("early", PRIVATE, "Never", None).await;
    assert_eq!(before, "ErrImageNeverPull");
    assert_eq!(
        node.fares("owner", PRIVATE, "IfNotPresent", Some("right")).await,
        USABLE
    );
    let pulled = node.runtime.pulls.lock().len();
    for policy in ["IfNotPresent", "Never"] {
        let fares = async |who: &str, secret| {
            node.fares(&format!("{who}-{}", policy.to_lowercase()), PRIVATE, policy, secret)
                .await
        };
        let refused = if policy == "Never" {
            "ErrImageNeverPull"
        } else {
            "ErrImagePull"
        };
        assert_eq!(fares("nobody", None).await, refused);
        assert_eq!(fares("stranger", Some("wrong")).await, refused);
        assert_eq!(fares("missing", Some("no-such-secret")).await, refused);
        // The same credential in another secret, without asking the registry.
        assert_eq!(fares("friend", Some("same")).await, USABLE);
        assert_eq!(fares("owner", Some("right")).await, USABLE);
    }
    let asked = node.runtime.pulls.lock()[pulled..].to_vec();
    assert!(asked.iter().all(|pull| pull.starts_with(PRIVATE)), "{asked:?}");
    assert!(
        node.api
            .events_about("friend-never")
            .iter()
            .any(|event| { event.contains("already present on machine and can be accessed by the pod") })
    );
    // By its id, or another name, it is no easier to have.
    let id = node.runtime.present.lock()[PRIVATE].clone();
    assert_eq!(node.fares("by-id", &id, "Never", None).await, "ErrImageNeverPull");
    // What nobody pulled is for everybody.
    assert_eq!(node.fares("preloaded", PRELOADED, "Never", None).await, USABLE);
    // A kubelet that starts anew knows it still.
    drop(node.kubelet.take());
    node.start_kubelet().await;
    assert_eq!(node.fares("later", PRIVATE, "Never", None).await, "ErrImageNeverPull");
    assert_eq!(node.fares("later-owner", PRIVATE, "Never", Some("right")).await, USABLE);
    let records = node.directory.path().join("kubelet/image_manager");
    assert_eq!(
        (files(&records.join("pulled")), files(&records.join("pulling"))),
        (1, 0)
    );
}
