//! A node for tests: a kubelet with its own directories and cgroups on a containerd of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cri::Runtime;
use kubelet::{Kubelet, KubeletOptions};
use serde_json::{Value, json};

use crate::api::FakeApi;
use crate::containerd::Containerd;

pub const BUSYBOX: &str = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1";

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
            cgroup_root: self.cgroup_root(),
            cluster_dns: vec!["10.96.0.10".parse().expect("an address")],
            ..KubeletOptions::new(self.api.client(), runtime, "n1")
        }
    }

    fn cgroup_root(&self) -> String {
        let name = self.containerd.root().file_name().expect("a name");
        format!("/{}", name.to_string_lossy())
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
                begun.elapsed() < Duration::from_secs(30),
                "pod {name} is not {what}: {:#}\nevents: {:#?}",
                pod["status"],
                self.api.events_about(name)
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub async fn wait_gone(&self, name: &str) {
        let begun = Instant::now();
        while self.pod(name).is_some() {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
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
        let root = self.cgroup_root();
        remove_cgroups(&root);
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
