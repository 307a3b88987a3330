//! The scheduler against a real API server in the same process.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::kinds::event::EVENT;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::kinds::priority_class::PRIORITY_CLASS;
use api::{Resource, Value};
use apiserver::{
    ApiServer, AuthorizerSpec, ClusterFacts, GateOptions, InProcess, KubeletTls, KubeletTrust, Options, ServiceNetwork,
    Services,
};
use auth::User;
use client::{Client, ListOptions, Patch};
use rustls::{ClientConfig, RootCertStore};
use scheduler::SchedulerOptions;
use serde_json::json;
use tokio::task::JoinHandle;

/// How long anything that the scheduler brings about may take.
const PATIENCE: Duration = Duration::from_secs(20);

struct Cluster {
    client: Client,
    server: Arc<ApiServer>,
    scheduler: JoinHandle<()>,
}

fn options() -> Options {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let tls = Arc::new(tls);
    let issuers = vec!["https://test".to_owned()];
    let kubelets = KubeletTls {
        identity: None,
        trust: KubeletTrust::Anyone,
        is_for_kubelets_only: false,
    };
    Options {
        store: store::memory::open(),
        // No controller makes service accounts or lifts the taints of new nodes here.
        admission: apiserver::AdmissionOptions {
            disable: vec!["ServiceAccount".to_owned(), "TaintNodesByCondition".to_owned()],
            ..apiserver::AdmissionOptions::default()
        },
        gate: GateOptions {
            allow_anonymous: false,
            ..GateOptions::new(
                auth::authenticate::ServiceAccounts::new(issuers, Vec::new(), None, Vec::new()),
                vec![AuthorizerSpec::AlwaysAllow],
            )
        },
        services: Services {
            network: ServiceNetwork::parse("10.96.0.0/16").unwrap(),
            node_ports: (30000, 32767),
            root: "/registry".to_owned(),
        },
        facts: ClusterFacts {
            advertise: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            secure_port: 6443,
            authority: "PEM".to_owned(),
            client_authority: "PEM".to_owned(),
            local_node: None,
            serving_approver: None,
            allocates_node_cidrs: false,
        },
        kubelets: kubelets.dialer().expect("a configuration"),
        front_proxy: apiserver::FrontProxy::without_certificate(tls.clone()),
        encryption: Arc::new(apiserver::Encryption::none(apiserver::STORE_ROOT)),
        insecure_tls: tls,
        max_reads_in_flight: 400,
        max_writes_in_flight: 200,
        pages: Vec::new(),
        auditor: None,
    }
}

impl Cluster {
    async fn start() -> Cluster {
        let server = ApiServer::start(options()).await.unwrap();
        let user = User::system("system:kube-scheduler", &["system:masters"]);
        let client = Client::new(Arc::new(InProcess::new(server.clone(), user)));
        let scheduler = tokio::spawn(scheduler::run(SchedulerOptions {
            client: client.clone(),
            profiles: vec![scheduler::Profile::default()],
            host: "test".to_owned(),
            metrics: Arc::default(),
        }));
        Cluster {
            client: client.named("test"),
            server,
            scheduler,
        }
    }

    async fn stop(self) {
        self.scheduler.abort();
        let _ = self.scheduler.await;
        self.server.stop().await;
    }

    async fn create(&self, resource: &'static Resource, namespace: &str, yaml: &str) {
        let object: Value = serde_saphyr::from_str(yaml).unwrap();
        let api = self.client.resource(resource).in_namespace(namespace);
        api.create::<Value>(&object).await.unwrap();
    }

    async fn add_node(&self, name: &str, cpu: &str) {
        let node = format!("{{apiVersion: v1, kind: Node, metadata: {{name: {name}}}}}");
        self.create(&NODE, "", &node).await;
        let status = json!({"status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "110"}}});
        let nodes = self.client.resource(&NODE).subresource("status");
        nodes.patch::<Value>(name, Patch::merge(&status)).await.unwrap();
    }

    async fn add_pod(&self, name: &str, cpu: &str) {
        let pod = format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: c, image: c, resources: {{requests: {{cpu: '{cpu}'}}}}}}]}}
"
        );
        self.create(&POD, "default", &pod).await;
    }

    async fn pod(&self, name: &str) -> Value {
        let pods = self.client.resource(&POD).in_namespace("default");
        pods.get(name).await.unwrap()
    }

    async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        while !condition().await {
            assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn event(&self, reason: &str) -> Option<Value> {
        let events = self.client.resource(&EVENT).in_namespace("default");
        let list = events.list::<Value>(&ListOptions::default()).await.unwrap();
        list.items.into_iter().find(|event| event["reason"] == reason)
    }
}

#[tokio::test]
async fn a_pod_gets_a_node_as_soon_as_there_is_one() {
    let cluster = Cluster::start().await;
    cluster.add_pod("web", "1").await;
    cluster
        .until("the pod says why it waits", async || {
            let pod = cluster.pod("web").await;
            pod["status"]["conditions"]
                .to_string()
                .contains("no nodes available to schedule pods")
        })
        .await;
    cluster.add_node("one", "2").await;
    cluster
        .until("the pod is bound", async || {
            cluster.pod("web").await["spec"]["nodeName"] == "one"
        })
        .await;
    cluster
        .until("that is told", async || {
            let event = cluster.event("Scheduled").await;
            event.is_some_and(|event| event["message"] == "Successfully assigned default/web to one")
        })
        .await;
    let pod = cluster.pod("web").await;
    let scheduled = pod["status"]["conditions"].as_array().unwrap().iter();
    let scheduled = scheduled.filter(|one| one["type"] == "PodScheduled" && one["status"] == "True");
    assert_eq!(scheduled.count(), 1, "{}", pod["status"]);
    cluster.stop().await;
}

#[tokio::test]
async fn a_pod_that_fits_nowhere_says_so_until_another_leaves() {
    let cluster = Cluster::start().await;
    cluster.add_node("one", "2").await;
    cluster.add_pod("first", "1500m").await;
    cluster
        .until("the first is bound", async || {
            cluster.pod("first").await["spec"]["nodeName"] == "one"
        })
        .await;
    cluster.add_pod("second", "1").await;
    let message = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
                   available: 1 No preemption victims found for incoming pod.";
    cluster
        .until("the second says why it waits", async || {
            let pod = cluster.pod("second").await;
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| {
                one["type"] == "PodScheduled"
                    && one["status"] == "False"
                    && one["reason"] == "Unschedulable"
                    && one["message"] == message
                    && one["observedGeneration"] == 1
            })
        })
        .await;
    cluster
        .until("an event says it too", async || {
            let event = cluster.event("FailedScheduling").await;
            event.is_some_and(|event| event["message"] == message && event["type"] == "Warning")
        })
        .await;
    let at_once = client::DeleteOptions {
        grace_period_seconds: Some(0),
        ..client::DeleteOptions::default()
    };
    let pods = cluster.client.resource(&POD).in_namespace("default");
    pods.delete("first", &at_once).await.unwrap();
    cluster
        .until("the second is bound", async || {
            cluster.pod("second").await["spec"]["nodeName"] == "one"
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn many_pods_fill_many_nodes_exactly() {
    let cluster = Cluster::start().await;
    for number in 0..10 {
        cluster.add_node(&format!("node-{number}"), "2").await;
    }
    for number in 0..100 {
        cluster.add_pod(&format!("pod-{number}"), "200m").await;
    }
    cluster
        .until("all are bound", async || {
            let pods = cluster.client.resource(&POD).in_namespace("default");
            let list = pods.list::<Value>(&ListOptions::default()).await.unwrap();
            let mut counts = std::collections::BTreeMap::new();
            for pod in list.items.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()) {
                *counts.entry(pod.to_owned()).or_insert(0) += 1;
            }
            assert!(counts.values().all(|count| *count <= 10), "{counts:?}");
            counts.values().sum::<i32>() == 100
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_urgent_pod_makes_another_leave_and_takes_its_place() {
    let cluster = Cluster::start().await;
    let class = "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: urgent}, value: 1000}";
    cluster.create(&PRIORITY_CLASS, "", class).await;
    cluster.add_node("one", "2").await;
    cluster.add_pod("victim", "2").await;
    cluster
        .until("the first is bound", async || {
            cluster.pod("victim").await["spec"]["nodeName"] == "one"
        })
        .await;
    let urgent = "
apiVersion: v1
kind: Pod
metadata: {name: urgent}
spec: {priorityClassName: urgent, containers: [{name: c, image: c, resources: {requests: {cpu: '2'}}}]}
";
    cluster.create(&POD, "default", urgent).await;
    cluster
        .until("the victim is told to leave", async || {
            let victim = cluster.pod("victim").await;
            let conditions = victim["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget");
            victim["metadata"]["deletionTimestamp"].is_string()
                && target.is_some_and(|one| one["status"] == "True" && one["reason"] == "PreemptionByScheduler")
        })
        .await;
    cluster
        .until("the room is kept", async || {
            cluster.pod("urgent").await["status"]["nominatedNodeName"] == "one"
        })
        .await;
    cluster
        .until("that is told", async || cluster.event("Preempted").await.is_some())
        .await;
    // No kubelet lets the victim end here.
    let at_once = client::DeleteOptions {
        grace_period_seconds: Some(0),
        ..client::DeleteOptions::default()
    };
    let pods = cluster.client.resource(&POD).in_namespace("default");
    pods.delete("victim", &at_once).await.unwrap();
    cluster
        .until("the urgent pod is bound", async || {
            cluster.pod("urgent").await["spec"]["nodeName"] == "one"
        })
        .await;
    assert!(cluster.pod("urgent").await["status"]["nominatedNodeName"].is_null());
    cluster.stop().await;
}
