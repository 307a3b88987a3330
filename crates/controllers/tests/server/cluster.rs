//! An API server on a store in memory, with all controllers running.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{Resource, Value};
use apiserver::{
    ApiServer, AuthorizerSpec, ClusterFacts, GateOptions, InProcess, KubeletTls, KubeletTrust, Options, ServiceNetwork,
    Services,
};
use auth::User;
use auth::authenticate::{ServiceAccounts, SigningKey};
use client::{Client, ListOptions, Patch, QueueMetrics, Transport};
use controllers::{ControllersOptions, Settings, TokenSigner};
use metrics::Page;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::task::JoinHandle;

/// How long anything that the controllers bring about may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub struct Cluster {
    pub client: Client,
    queues: Arc<QueueMetrics>,
    server: Arc<ApiServer>,
    controllers: JoinHandle<()>,
}

fn signer() -> TokenSigner {
    let (key, _) = SigningKey::generate().unwrap();
    let accounts = ServiceAccounts::new(Vec::new(), Vec::new(), Some(key), Vec::new());
    TokenSigner::new(Arc::new(accounts))
}

impl Cluster {
    pub async fn start() -> Cluster {
        Cluster::start_through(|transport| transport).await
    }

    /// The controllers, but not the tests, reach the server through what `way` makes of the transport.
    pub async fn start_through(
        way: impl Fn(Arc<dyn Transport>) -> Arc<dyn Transport> + Clone + Send + Sync + 'static,
    ) -> Cluster {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let tls = Arc::new(tls);
        let kubelets = KubeletTls {
            identity: None,
            trust: KubeletTrust::Anyone,
            is_for_kubelets_only: false,
        };
        let options = Options {
            store: store::memory::open(),
            admission: apiserver::AdmissionOptions::default(),
            gate: GateOptions {
                allow_anonymous: false,
                ..GateOptions::new(
                    ServiceAccounts::new(vec!["https://test".to_owned()], Vec::new(), None, Vec::new()),
                    vec![AuthorizerSpec::Rbac],
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
        };
        let server = ApiServer::start(options).await.unwrap();
        let by = |user| -> Arc<dyn Transport> { Arc::new(InProcess::new(server.clone(), user)) };
        let client = Client::new(by(User::system("test", &["system:masters"])));
        let manager = by(User::system("system:kube-controller-manager", &[]));
        let (accounts, wrap) = (server.clone(), way.clone());
        let queues: Arc<QueueMetrics> = Arc::default();
        let controllers = tokio::spawn(controllers::run(ControllersOptions {
            client: Client::new(way(manager)),
            accounts: Some(Arc::new(move |name| {
                let user = User::service_account("kube-system", name, "").authenticated();
                wrap(Arc::new(InProcess::new(accounts.clone(), user)))
            })),
            host: "test".to_owned(),
            settings: Settings {
                root_ca: Some("PEM".to_owned()),
                token_signer: Some(signer()),
                cluster_cidrs: vec!["10.244.0.0/16".to_owned()],
                cluster_dns: Some(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10))),
                ..Settings::default()
            },
            disabled: Vec::new(),
            queues: queues.clone(),
        }));
        Cluster {
            queues,
            client: client.named("test"),
            server,
            controllers,
        }
    }

    /// How often something in a controller's queue has been tried again.
    pub fn retries(&self, queue: &str) -> u64 {
        let mut text = String::new();
        self.queues.write(&mut text);
        let line = format!("workqueue_retries_total{{name=\"{queue}\"}} ");
        let found = text.lines().find_map(|found| found.strip_prefix(&line));
        found.expect("the queue has a line").parse().expect("a number")
    }

    pub async fn stop(self) {
        self.controllers.abort();
        let _ = self.controllers.await;
        self.server.stop().await;
    }

    /// A client with the rights of somebody else.
    pub fn client_of(&self, user: &str, groups: &[&str]) -> Client {
        Client::new(Arc::new(InProcess::new(
            self.server.clone(),
            User::system(user, groups),
        )))
    }

    pub async fn create(&self, resource: &'static Resource, namespace: &str, yaml: &str) -> Value {
        let object: Value = serde_saphyr::from_str(yaml).unwrap();
        let api = self.client.resource(resource).in_namespace(namespace);
        api.create(&object).await.unwrap()
    }

    pub async fn list(&self, resource: &'static Resource, namespace: &str) -> Vec<Value> {
        let api = self.client.resource(resource).in_namespace(namespace);
        api.list::<Value>(&ListOptions::default()).await.unwrap().items
    }

    pub async fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        match self.client.resource(resource).in_namespace(namespace).get(name).await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub async fn patch(&self, resource: &'static Resource, namespace: &str, name: &str, patch: Value) {
        let api = self.client.resource(resource).in_namespace(namespace);
        api.patch::<Value>(name, Patch::strategic(&patch)).await.unwrap();
    }

    pub async fn delete(&self, resource: &'static Resource, namespace: &str, name: &str) {
        let api = self.client.resource(resource).in_namespace(namespace);
        api.delete(name, &client::DeleteOptions::default()).await.unwrap();
    }

    /// Waits until the condition holds, which it must soon; `what` says what was waited for when it does not.
    pub async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let begun = Instant::now();
        while !condition().await {
            assert!(begun.elapsed() < PATIENCE, "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// What a scheduler and a kubelet do for every new pod, and for those that are being deleted.
    pub async fn run_pods(&self, namespace: &str) {
        let pods = self.client.resource(&api::kinds::pod::POD).in_namespace(namespace);
        for (number, pod) in self.list(&api::kinds::pod::POD, namespace).await.iter().enumerate() {
            let name = pod["metadata"]["name"].as_str().unwrap();
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                let at_once = client::DeleteOptions {
                    grace_period_seconds: Some(0),
                    ..client::DeleteOptions::default()
                };
                let _ = pods.delete(name, &at_once).await;
            } else if pod["status"]["phase"] != "Running" {
                let binding = json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                    "target": {"kind": "Node", "name": "node-1"},
                });
                let binder = pods.clone().subresource("binding");
                let _ = binder.create_for::<Value>(name, &binding).await;
                let address = format!("10.0.0.{}", number + 1);
                let status = json!({"status": {
                    "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}],
                }});
                let writer = pods.clone().subresource("status");
                writer.patch::<Value>(name, Patch::strategic(&status)).await.unwrap();
            }
        }
    }
}
