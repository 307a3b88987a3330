//! A server to ask, and the asking.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::{
    AdmissionOptions, ApiServer, AuthorizerSpec, ClusterFacts, GateOptions, InProcess, KubeletTls, KubeletTrust,
    Options, ServiceNetwork, Services,
};
use auth::User;
use auth::authenticate::{ServiceAccounts, SigningKey};
use bytes::Bytes;
use client::{Body, Transport};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use store::Store;

/// Nothing here waits longer than this for what should come at once.
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Cluster {
    server: Arc<ApiServer>,
    transport: InProcess,
    granted: AtomicUsize,
}

pub struct Watch {
    body: Body,
    pending: Vec<u8>,
}

impl Cluster {
    pub async fn start() -> Cluster {
        Cluster::start_without(&[]).await
    }

    /// A server on which some admission plugins are switched off.
    pub async fn start_without(plugins: &[&str]) -> Cluster {
        Cluster::start_on(store::memory::open(), plugins).await
    }

    pub async fn start_on(store: Arc<dyn Store>, plugins: &[&str]) -> Cluster {
        Cluster::start_changed(store, plugins, |_| {}).await
    }

    /// A server on which more than that is different.
    pub async fn start_changed(store: Arc<dyn Store>, plugins: &[&str], change: impl FnOnce(&mut Options)) -> Cluster {
        let (signing, _) = SigningKey::generate().expect("a key can be made");
        let issuer = vec!["https://issuer.example".to_owned()];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("protocols are known")
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let tls = Arc::new(tls);
        let kubelets = KubeletTls {
            identity: None,
            trust: KubeletTrust::Anyone,
            is_for_kubelets_only: false,
        };
        let mut options = Options {
            store,
            admission: AdmissionOptions {
                disable: plugins.iter().map(|plugin| (*plugin).to_owned()).collect(),
                ..AdmissionOptions::default()
            },
            gate: GateOptions::new(
                ServiceAccounts::new(issuer, Vec::new(), Some(signing), Vec::new()),
                vec![AuthorizerSpec::Node, AuthorizerSpec::Rbac],
            ),
            services: Services {
                network: ServiceNetwork::parse("10.96.0.0/24").expect("a network"),
                node_ports: (30000, 30100),
                root: apiserver::STORE_ROOT.to_owned(),
            },
            facts: ClusterFacts {
                advertise: IpAddr::V4(Ipv4Addr::LOCALHOST),
                secure_port: 6443,
                authority: String::new(),
                client_authority: String::new(),
                local_node: None,
                serving_approver: None,
                allocates_node_cidrs: false,
            },
            kubelets: kubelets.dialer().expect("a configuration"),
            front_proxy: apiserver::FrontProxy::without_certificate(tls.clone()),
            encryption: Arc::new(apiserver::Encryption::none(apiserver::STORE_ROOT)),
            insecure_tls: tls,
            max_reads_in_flight: 100,
            max_writes_in_flight: 100,
            pages: Vec::new(),
            auditor: None,
        };
        change(&mut options);
        let server = ApiServer::start(options).await.expect("the server starts");
        let transport = InProcess::new(server.clone(), User::system("admin", &["system:masters"]));
        Cluster {
            server,
            transport,
            granted: AtomicUsize::new(0),
        }
    }

    pub fn server(&self) -> Arc<ApiServer> {
        self.server.clone()
    }

    /// The same server asked by somebody without special rights.
    pub fn as_user(&self, name: &str) -> Cluster {
        self.asked_by(User::system(name, &[]))
    }

    /// The same server asked by a kubelet.
    pub fn as_node(&self, name: &str) -> Cluster {
        self.asked_by(User::system(&format!("system:node:{name}"), &["system:nodes"]))
    }

    /// The same server asked by anybody.
    pub fn asked_by(&self, user: User) -> Cluster {
        Cluster {
            server: self.server.clone(),
            transport: InProcess::new(self.server.clone(), user),
            granted: AtomicUsize::new(0),
        }
    }

    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Response<Body> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json");
        self.send_whole(request.body(body).expect("a request")).await
    }

    pub async fn send_whole(&self, request: Request<Bytes>) -> Response<Body> {
        self.transport.send(request).await.expect("an answer")
    }

    /// Any request; gives the warnings of the answer too.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> (StatusCode, Vec<String>, Value) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Bytes::from(body)).expect("a request");
        let response = self.transport.send(request).await.expect("an answer");
        let warnings = response.headers().get_all("warning").iter();
        let warnings = warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned());
        let (code, warnings) = (response.status(), warnings.collect());
        (code, warnings, json_of(response).await)
    }

    pub async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.send("GET", path, None).await).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.send("POST", path, Some(body)).await).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        answer(self.send("PUT", path, Some(body)).await).await
    }

    pub async fn delete(&self, path: &str) -> (StatusCode, Value) {
        answer(self.send("DELETE", path, None).await).await
    }

    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> (StatusCode, Value) {
        let request = Request::builder()
            .method("PATCH")
            .uri(path)
            .header("content-type", kind);
        let request = request.body(Bytes::from(body.to_string())).expect("a request");
        answer(self.transport.send(request).await.expect("an answer")).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Value {
        let request = Request::builder()
            .uri(path)
            .header("accept", accept)
            .body(Bytes::new())
            .expect("a request");
        json_of(self.transport.send(request).await.expect("an answer")).await
    }

    /// Gives somebody rights, in one namespace or in the whole cluster, and waits until they count.
    pub async fn grant(&self, user: &str, namespace: &str, mut rules: Value) {
        let group = "rbac.authorization.k8s.io";
        let place = match namespace {
            "" => format!("/apis/{group}/v1"),
            namespace => format!("/apis/{group}/v1/namespaces/{namespace}"),
        };
        let (kind, roles) = match namespace {
            "" => ("ClusterRole", "clusterroles"),
            _ => ("Role", "roles"),
        };
        let name = format!("grant-{}", self.granted.fetch_add(1, Ordering::Relaxed));
        // Something that is asked for below, and that no other role gives.
        let sign = json!({ "apiGroups": ["test"], "resources": [name], "verbs": ["see"] });
        rules.as_array_mut().expect("a list of rules").push(sign);
        let role = json!({ "metadata": { "name": name }, "rules": rules });
        let (code, answer) = self.post(&format!("{place}/{roles}"), &role).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        self.write_binding(user, namespace, kind, &name).await;
        self.until_allowed(user, namespace, ("see", "test", &name)).await;
    }

    /// Gives somebody a ClusterRole that there is, and that lets them list pods.
    pub async fn bind(&self, user: &str, namespace: &str, role: &str) {
        self.write_binding(user, namespace, "ClusterRole", role).await;
        self.until_allowed(user, namespace, ("list", "", "pods")).await;
    }

    /// New rights count after a moment; this waits for it.
    async fn until_allowed(&self, user: &str, namespace: &str, (verb, group, resource): (&str, &str, &str)) {
        let attributes = json!({ "namespace": namespace, "verb": verb, "group": group, "resource": resource });
        let review = json!({ "spec": { "user": user, "resourceAttributes": attributes } });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        for _ in 0..500 {
            if self.post(path, &review).await.1["status"]["allowed"] == true {
                return;
            }
            tokio::time::sleep(PATIENCE / 500).await;
        }
        panic!("{user} may not {verb} {resource} after {PATIENCE:?}");
    }

    async fn write_binding(&self, user: &str, namespace: &str, kind: &str, role: &str) {
        let group = "rbac.authorization.k8s.io";
        let path = match namespace {
            "" => format!("/apis/{group}/v1/clusterrolebindings"),
            namespace => format!("/apis/{group}/v1/namespaces/{namespace}/rolebindings"),
        };
        let binding = json!({
            "metadata": { "generateName": "grant-" },
            "roleRef": { "apiGroup": group, "kind": kind, "name": role },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
        });
        let (code, answer) = self.post(&path, &binding).await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
    }

    /// New rights count after a moment; this waits for it.
    pub async fn get_until_allowed(&self, path: &str) -> StatusCode {
        for _ in 0..100 {
            let (code, _) = self.get(path).await;
            if code != StatusCode::FORBIDDEN {
                return code;
            }
            tokio::time::sleep(PATIENCE / 500).await;
        }
        StatusCode::FORBIDDEN
    }

    pub async fn watch(&self, path: &str) -> Watch {
        let response = self.send("GET", path, None).await;
        assert_eq!(response.status(), StatusCode::OK);
        Watch {
            body: response.into_body(),
            pending: Vec::new(),
        }
    }
}

impl Watch {
    /// The type of the next event and the name of its object.
    pub async fn next(&mut self) -> (String, String) {
        let event = self.next_event().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }

    pub async fn next_event(&mut self) -> Value {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return serde_json::from_slice(&line).expect("an event is JSON");
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame())
                .await
                .expect("an event comes in time");
            let frame = frame.expect("the watch goes on").expect("the watch is sound");
            self.pending.extend_from_slice(&frame.into_data().expect("data"));
        }
    }
}

pub async fn json_of(response: Response<Body>) -> Value {
    let text = text_of(response).await;
    // Paths that are no part of the API are answered as a web server does.
    serde_json::from_str(&text).unwrap_or_else(|_| text.into())
}

pub async fn text_of(response: Response<Body>) -> String {
    let bytes = bytes_of(response).await;
    String::from_utf8(bytes.to_vec()).expect("the answer is text")
}

pub async fn bytes_of(response: Response<Body>) -> Bytes {
    response.into_body().collect().await.expect("a whole body").to_bytes()
}

async fn answer(response: Response<Body>) -> (StatusCode, Value) {
    (response.status(), json_of(response).await)
}
