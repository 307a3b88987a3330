//! A node for tests: a kubelet with its own directories and cgroups on a containerd of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::Transport;
use cri::{Runtime, v1};
use http_body_util::BodyExt;
use kubelet::{ImageGcOptions, Kubelet, KubeletOptions, LogOptions};
use serde_json::{Value, json};

use crate::api::FakeApi;
use crate::containerd::Containerd;

pub const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";

/// Logs of each container at most.
pub const LOG_FILES: usize = 3;
/// Processes of each pod at most.
pub const POD_MAX_PIDS: u64 = 200;

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct TestNode {
    pub api: FakeApi,
    pub containerd: Containerd,
    pub kubelet: Option<Kubelet>,
}

impl TestNode {
    /// None where there can be no containerd.
    pub async fn start(subnet: &str) -> Option<TestNode> {
        // With TEST_LOG set, a test shows what its kubelet plans.
        if std::env::var_os("TEST_LOG").is_some() {
            let _ = tracing_subscriber::fmt()
                .with_max_level(tracing::Level::DEBUG)
                .try_init();
        }
        let containerd = Containerd::start(subnet)?;
        let api = FakeApi::new();
        let kubernetes = json!({"metadata": {"name": "kubernetes"},
            "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "protocol": "TCP"}]}});
        api.create("/api/v1/namespaces/default/services", kubernetes);
        let mut node = TestNode {
            api,
            containerd,
            kubelet: None,
        };
        node.start_kubelet().await;
        Some(node)
    }

    pub async fn start_kubelet(&mut self) {
        let runtime = self.containerd.connect().await;
        let options = self.options(runtime);
        self.kubelet = Some(Kubelet::start(options).await.expect("the kubelet starts"));
    }

    fn options(&self, runtime: Arc<dyn Runtime>) -> KubeletOptions {
        let root = self.containerd.root();
        KubeletOptions {
            node_ips: vec!["127.0.0.1".parse().expect("an address")],
            root_dir: root.join("k"),
            pod_logs_dir: root.join("logs"),
            local_volumes_dir: Some(root.join("volumes")),
            static_pod_path: Some(self.manifests()),
            file_check: Duration::from_secs(1),
            cgroup_root: self.cgroup_root(),
            pod_max_pids: Some(POD_MAX_PIDS),
            container_logs: LogOptions {
                max_bytes: 1 << 20,
                max_files: LOG_FILES,
            },
            // How full the machine's disk is plays no part in these tests.
            eviction_hard: "nodefs.available<10Mi".parse().expect("thresholds"),
            image_gc: ImageGcOptions {
                high_percent: 100,
                low_percent: 80,
            },
            cluster_dns: vec!["10.96.0.10".parse().expect("an address")],
            ..KubeletOptions::new(self.api.client(), runtime, "n1")
        }
    }

    /// The directory of static pods, which nobody has made yet.
    pub fn manifests(&self) -> PathBuf {
        self.containerd.root().join("manifests")
    }

    fn cgroup_root(&self) -> String {
        let name = self.containerd.root().file_name().expect("a name");
        format!("/{}", name.to_string_lossy())
    }

    /// Where the logs of a pod's container `main` are.
    pub fn logs_of(&self, name: &str, uid: &str) -> PathBuf {
        let pod = format!("default_{name}_{uid}");
        self.containerd.root().join("logs").join(pod).join("main")
    }

    /// What a file of the cgroup of all pods says, in the hierarchy that has it.
    pub fn pods_cgroup(&self, controller: &str, file: &str) -> Option<String> {
        let own = self.cgroup_root();
        let below = |root: &str| {
            Path::new(root)
                .join(own.trim_start_matches('/'))
                .join("kubepods")
                .join(file)
        };
        let places = [format!("/sys/fs/cgroup/{controller}"), "/sys/fs/cgroup".to_owned()];
        places
            .iter()
            .find_map(|place| std::fs::read_to_string(below(place)).ok())
    }

    /// Creates a pod that is bound to this node already.
    pub fn create_pod(&self, name: &str, spec: Value) {
        let mut spec = spec;
        spec["nodeName"] = json!("n1");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": spec,
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        });
        self.api.create("/api/v1/namespaces/default/pods", pod);
    }

    pub fn pod(&self, name: &str) -> Option<Value> {
        self.api.get(&format!("/api/v1/namespaces/default/pods/{name}"))
    }

    /// Waits until a pod is as wanted; its last state is the failure's message.
    pub async fn wait_for(&self, name: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let pod = self.pod(name).unwrap_or_default();
            if wanted(&pod) {
                return pod;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "pod {name} is not {what}: {:#}\nevents: {:#?}",
                pod["status"],
                self.api.events_about(name)
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Until an event about a pod begins so. Events are written beside the status: either may come first.
    pub async fn wait_for_event(&self, name: &str, start: &str) {
        let begun = Instant::now();
        loop {
            let events = self.api.events_about(name);
            if events.iter().any(|event| event.starts_with(start)) {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "no event of {name} begins with {start:?}: {events:#?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn delete(&self, name: &str, grace_seconds: i64) {
        self.api
            .delete(&format!("/api/v1/namespaces/default/pods/{name}"), grace_seconds);
    }

    /// A directory of the host's for a test.
    pub fn directory(&self, name: &str) -> PathBuf {
        let directory = self.containerd.root().join(name);
        std::fs::create_dir_all(&directory).expect("a directory");
        directory
    }

    /// Every path on this machine that a pod's UID is in: directories, mounts, cgroups.
    pub fn traces_of(&self, uid: &str) -> Vec<PathBuf> {
        let root = self.containerd.root();
        let own = self.cgroup_root();
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let cgroups = hierarchies.map(|entry| entry.path().join(own.trim_start_matches('/')));
        let mut found = Vec::new();
        for place in cgroups.chain([root.join("k"), root.join("logs")]) {
            search(&place, uid, &mut found);
        }
        found
    }

    pub async fn wait_untraced(&self, uid: &str) {
        let begun = Instant::now();
        while !self.traces_of(uid).is_empty() {
            assert!(begun.elapsed() < PATIENCE, "still there: {:#?}", self.traces_of(uid));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until no container of a pod runs.
    pub async fn wait_gone_containers(&self, name: &str) {
        let ended = |pod: &Value| {
            let state = &pod["status"]["containerStatuses"][0]["state"];
            state["running"].is_null()
        };
        self.wait_for(name, "stopped", ended).await;
    }

    /// How many containers the runtime has of a pod, running or not.
    pub async fn containers_of(&self, name: &str) -> usize {
        let labels = [("io.kubernetes.pod.name".to_owned(), name.to_owned())];
        let filter = v1::ContainerFilter {
            label_selector: labels.into(),
            ..v1::ContainerFilter::default()
        };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let runtime = self.containerd.connect().await;
        runtime.list_containers(request).await.expect("a list").containers.len()
    }

    pub async fn exec(&self, name: &str, command: &[&str]) {
        let command: Vec<String> = command.iter().map(|word| format!("command={word}")).collect();
        let path = format!("/exec/default/{name}/main?output=1&{}", command.join("&"));
        let ended = crate::streams::exec(self, &path, None).await;
        assert_eq!(ended.status["status"], "Success", "{}", ended.status);
    }

    /// What the kubelet answers.
    pub async fn request(&self, path: &str) -> (u16, String) {
        let answer = self.send(path).await;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a body").to_bytes();
        (code, String::from_utf8_lossy(&body).into_owned())
    }

    pub async fn logs(&self, name: &str, container: &str, query: &str) -> String {
        let (code, text) = self
            .request(&format!("/containerLogs/default/{name}/{container}?{query}"))
            .await;
        assert_eq!(code, 200, "{text}");
        text
    }

    /// Reads a log until it ends like this.
    pub async fn logs_until(&self, name: &str, container: &str, query: &str, end: &str) -> String {
        let answer = self
            .send(&format!("/containerLogs/default/{name}/{container}?{query}"))
            .await;
        let mut body = answer.into_body();
        let mut text = String::new();
        while !text.ends_with(end) {
            let frame = tokio::time::timeout(PATIENCE, body.frame())
                .await
                .expect("more of the log");
            let frame = frame.expect("the log goes on").expect("a frame");
            text += &String::from_utf8_lossy(frame.data_ref().expect("data"));
        }
        text
    }

    async fn send(&self, path: &str) -> http::Response<client::Body> {
        let request = http::Request::get(path).body(bytes::Bytes::new()).expect("a request");
        let kubelet = self.kubelet.as_ref().expect("the kubelet runs").handler();
        kubelet.send(request).await.expect("an answer")
    }

    pub async fn wait_gone(&self, name: &str) {
        let begun = Instant::now();
        while self.pod(name).is_some() {
            assert!(
                begun.elapsed() < PATIENCE,
                "pod {name} is still there: {:#}",
                self.pod(name).unwrap_or_default()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        drop(self.kubelet.take());
        self.containerd.stop();
        // The kubelet shares its directory, which is a mount of its own where the machine's root is not shared.
        unmount_below(self.containerd.root());
        let root = self.cgroup_root();
        remove_cgroups(&root);
    }
}

pub fn unmount_below(directory: &Path) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut points: Vec<&str> = points.filter(|point| Path::new(point).starts_with(directory)).collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.len()));
    for point in points {
        let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
    }
}

fn search(place: &Path, name: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().contains(name) {
            found.push(path);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            search(&path, name, found);
        }
    }
}

/// Removes what a test left in every hierarchy: pods that were still there, and the node's own.
fn remove_cgroups(root: &str) {
    fn remove(path: &std::path::Path) {
        let children = std::fs::read_dir(path).into_iter().flatten().flatten();
        children
            .filter(|entry| entry.path().is_dir())
            .for_each(|entry| remove(&entry.path()));
        let _ = std::fs::remove_dir(path);
    }
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    hierarchies.for_each(|hierarchy| remove(&hierarchy.path().join(root.trim_start_matches('/'))));
    remove(&std::path::Path::new("/sys/fs/cgroup").join(root.trim_start_matches('/')));
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

pub fn phase_is(phase: &'static str) -> impl Fn(&Value) -> bool {
    move |pod| pod["status"]["phase"] == phase
}
