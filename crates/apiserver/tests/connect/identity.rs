//! Kubelets prove which node they are, and servers ask them by an identity that is good for nothing else.

use std::sync::atomic::Ordering;

use apiserver::{KubeletTls, KubeletTrust};
use http::{Request, StatusCode};
use rcgen::ExtendedKeyUsagePurpose;
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::kubelet::{Answer, Authority, Identity, Kubelet};
use super::{HELLO, NODES, cluster, message};
use crate::cluster::Cluster;
use crate::serving::{Serving, client_builder, read_all};

/// What somebody hears who asks for a node whose kubelet shows this certificate.
async fn refusal(authority: &Authority, shown: Identity) -> String {
    let kubelet = Kubelet::serve(shown, authority, Answer::new(HELLO)).await;
    let cluster = cluster(authority, "one", &kubelet).await;
    let (code, answer) = cluster.get(&format!("{NODES}/one/proxy/metrics")).await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{answer}");
    assert_eq!(kubelet.received.lock().len(), 0, "nothing was asked");
    assert_eq!(kubelet.clients.lock().len(), 0, "it was not shown who asks");
    message(&answer).to_owned()
}

#[tokio::test]
async fn who_signed_its_own_certificate_is_shown_nothing() {
    let told = refusal(&Authority::new(), Authority::new().serving("one")).await;
    assert!(
        told.contains("the kubelet certificate authority did not sign"),
        "{told}"
    );
    assert!(told.contains("kubectl certificate approve"), "{told}");
}

#[tokio::test]
async fn a_node_is_not_answered_for_by_another() {
    let authority = Authority::new();
    let told = refusal(&authority, authority.serving("two")).await;
    assert!(
        told.contains("is not the kubelet of node \"one\", but system:node:two"),
        "{told}"
    );
}

/// Any holder of some certificate of the cluster's is not a kubelet by that.
#[tokio::test]
async fn only_certificates_for_serving_as_a_node_count() {
    let authority = Authority::new();
    let server = ExtendedKeyUsagePurpose::ServerAuth;
    for (shown, why) in [
        (
            authority.issue("system:node:one", "system:nodes", ExtendedKeyUsagePurpose::ClientAuth),
            "the certificate by which the node is a client",
        ),
        (
            authority.issue("system:node:one", "", server.clone()),
            "no node's group",
        ),
        (authority.issue("kube-apiserver", "", server.clone()), "another server"),
        (
            authority.issue_for("kube-apiserver", "", &["one"], server.clone()),
            "another server under the node's name",
        ),
        (
            authority.issue("system:node:one.evil", "system:nodes", server.clone()),
            "a longer name",
        ),
    ] {
        let told = refusal(&authority, shown).await;
        assert!(told.contains("failed to verify certificate"), "{why}: {told}");
    }
}

/// Another authority, which the administrator named, may know nodes by their DNS names.
#[tokio::test]
async fn an_authority_of_the_administrators_may_name_nodes_by_dns() {
    let authority = Authority::new();
    let shown = |names: &[&str]| authority.issue_for("kubelet", "", names, ExtendedKeyUsagePurpose::ServerAuth);
    for (names, code) in [(["one"], StatusCode::OK), (["two"], StatusCode::SERVICE_UNAVAILABLE)] {
        let kubelet = Kubelet::serve(shown(&names), &authority, Answer::new(HELLO)).await;
        let cluster = Cluster::start_changed(store::memory::open(), &[], |options| {
            let tls = KubeletTls {
                trust: KubeletTrust::NodesOrNames(authority.roots()),
                ..authority.kubelet_tls()
            };
            options.kubelets = tls.dialer().expect("a configuration");
            options.facts.local_node = Some(apiserver::LocalNode {
                name: "one".to_owned(),
                kubelet: kubelet.address,
                pod_cidrs: Vec::new(),
            });
        });
        let cluster = cluster.await;
        super::add_node(&cluster, "one", "127.0.0.1", kubelet.address.port()).await;
        assert_eq!(cluster.get(&format!("{NODES}/one/proxy/x")).await.0, code, "{names:?}");
    }
}

/// A kubelet runs commands over a connection that switches protocols, and WebSockets begin with GET.
#[tokio::test]
async fn reading_from_a_kubelet_is_not_the_right_to_run_something_there() {
    let authority = Authority::new();
    let kubelet = Kubelet::serve(authority.serving("one"), &authority, Answer::new(HELLO)).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    let upgrade = |path: &str| {
        let request = Request::get(format!("{NODES}/one/proxy/{path}"))
            .header("connection", "upgrade")
            .header("upgrade", "websocket");
        request.body(bytes::Bytes::new()).expect("a request")
    };
    let nodes_proxy = |verbs: &[&str]| json!([{"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": verbs}]);
    cluster.grant("reader", "", nodes_proxy(&["get"])).await;
    cluster.grant("runner", "", nodes_proxy(&["get", "create"])).await;
    let (reader, runner) = (cluster.as_user("reader"), cluster.as_user("runner"));
    assert_eq!(reader.get(&format!("{NODES}/one/proxy/pods")).await.0, StatusCode::OK);
    let asked = kubelet.received.lock().len();
    for path in [
        "exec/ns/pod/c?command=id",
        "%65xec/ns/pod/c",
        "/exec/ns/pod/c",
        "anything",
    ] {
        let refused = reader.send_whole(upgrade(path)).await;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(kubelet.received.lock().len(), asked, "nothing reaches the kubelet");
    let let_through = runner.send_whole(upgrade("exec/ns/pod/c?command=id")).await;
    assert_eq!(let_through.status(), StatusCode::OK);
}

/// Whatever a node says of itself, whoever asks for one node gets that one or nothing.
#[tokio::test]
async fn the_right_to_one_node_is_not_the_right_to_another() {
    let authority = Authority::new();
    let victim = Kubelet::serve(authority.serving("victim"), &authority, Answer::new(HELLO)).await;
    let cluster = cluster(&authority, "evil", &victim).await;
    let user = cluster.as_user("monitor");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "metadata": {"name": "evil-only"},
        "rules": [{"apiGroups": [""], "resources": ["nodes/proxy"], "resourceNames": ["evil"], "verbs": ["*"]}],
    });
    cluster.post(&format!("{rbac}/clusterroles"), &role).await;
    let binding = json!({
        "metadata": {"name": "evil-only"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "evil-only"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "monitor"}],
    });
    cluster.post(&format!("{rbac}/clusterrolebindings"), &binding).await;
    let code = user.get_until_allowed(&format!("{NODES}/evil/proxy/pods")).await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(victim.received.lock().len(), 0);
    assert_eq!(victim.connections.load(Ordering::SeqCst), 0);
}

/// The identity may be known to kubelets, but a server that is led to itself or to another does not answer it.
#[tokio::test(flavor = "multi_thread")]
async fn no_server_answers_the_identity_that_is_for_kubelets() {
    let authority = Authority::new();
    let cluster = Cluster::start_changed(store::memory::open(), &[], |options| {
        options.kubelets = authority.kubelet_tls().dialer().expect("a configuration");
    });
    let cluster = cluster.await;
    let request = b"GET /api/v1/nodes HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    for (name, group, expected) in [
        ("root", "system:masters", "HTTP/1.1 200"),
        (apiserver::KUBELET_CLIENT, "", ""),
        (apiserver::KUBELET_CLIENT, "system:masters", ""),
    ] {
        let (chain, key) = authority.issue(name, group, ExtendedKeyUsagePurpose::ClientAuth);
        let client = |trusted| {
            let key: PrivateKeyDer<'static> = key;
            client_builder(trusted)
                .with_client_auth_cert(chain, key)
                .expect("a certificate")
        };
        let serving = Serving::start_for(&cluster, authority.roots(), client).await;
        let mut stream = serving.connect().await;
        // The server may have closed the connection already.
        let _ = stream.write_all(request).await;
        let answer = read_all(&mut stream).await;
        assert!(
            answer.starts_with(expected) && answer.is_empty() == expected.is_empty(),
            "{name} {group}: {answer}"
        );
    }
}

/// Kubelets ask the server what this identity may: everything on nodes, and nothing else.
#[tokio::test]
async fn kubelets_are_told_that_the_identity_may_ask_them() {
    let cluster = Cluster::start().await;
    let may = async |group: &str, resource: &str, subresource: &str, verb: &str| {
        let review = json!({"spec": {
            "user": apiserver::KUBELET_CLIENT, "groups": ["system:authenticated"],
            "resourceAttributes": {"group": group, "resource": resource, "subresource": subresource, "verb": verb},
        }});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        cluster.post(path, &review).await.1["status"]["allowed"].clone()
    };
    for subresource in ["proxy", "log", "stats", "metrics", "pods", "healthz", "configz"] {
        assert_eq!(may("", "nodes", subresource, "create").await, true, "{subresource}");
    }
    for (group, resource) in [
        ("", "secrets"),
        ("", "pods"),
        ("apps", "deployments"),
        ("", "configmaps"),
    ] {
        for verb in ["get", "list", "create", "update", "delete"] {
            assert_eq!(may(group, resource, "", verb).await, false, "{verb} {resource}");
        }
    }
    assert_eq!(may("", "nodes", "", "update").await, false);
}

/// What somebody with this certificate hears who asks for their own Node.
async fn ask_for_own_node(cluster: &Cluster, authority: &Authority, (chain, key): Identity) -> String {
    let client = |trusted| {
        let built = client_builder(trusted).with_client_auth_cert(chain, key);
        built.expect("a certificate")
    };
    let serving = Serving::start_for(cluster, authority.roots(), client).await;
    let mut stream = serving.connect().await;
    let request = b"GET /api/v1/nodes/one HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.expect("a request");
    let answer = read_all(&mut stream).await;
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_has_no_access_until_it_joins_again() {
    let authority = Authority::new();
    let store = store::memory::open();
    let start = || {
        Cluster::start_changed(store.clone(), &[], |options| {
            options.gate.ends_access_of_deleted_nodes = true
        })
    };
    let cluster = start().await;
    let old = || authority.issue("system:node:one", "system:nodes", ExtendedKeyUsagePurpose::ClientAuth);
    let other = || authority.issue("system:node:two", "system:nodes", ExtendedKeyUsagePurpose::ClientAuth);
    assert_eq!(
        ask_for_own_node(&cluster, &authority, old()).await,
        "404",
        "it may come back from a restart"
    );
    let node = json!({"metadata": {"name": "one"}});
    assert_eq!(cluster.post(NODES, &node).await.0, StatusCode::CREATED);
    assert_eq!(ask_for_own_node(&cluster, &authority, old()).await, "200");

    assert_eq!(cluster.delete(&format!("{NODES}/one")).await.0, StatusCode::OK);
    // From when watchers can have heard of the deletion.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while ask_for_own_node(&cluster, &authority, old()).await != "401" {
        assert!(tokio::time::Instant::now() < deadline, "it still has access");
    }
    assert_eq!(
        ask_for_own_node(&cluster, &authority, other()).await,
        "403",
        "nobody else is concerned"
    );
    let new = authority.issue_now("system:node:one", "system:nodes");
    assert_eq!(
        ask_for_own_node(&cluster, &authority, new).await,
        "404",
        "it has joined again"
    );

    // Another server, or this one after a restart, knows it too.
    let record = "/api/v1/namespaces/kube-system/configmaps/karve-deleted-nodes";
    while cluster.get(record).await.1["data"]["one"].is_null() {
        assert!(tokio::time::Instant::now() < deadline, "nothing is recorded");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let again = start().await;
    assert_eq!(ask_for_own_node(&again, &authority, old()).await, "401");
    assert_eq!(again.post(NODES, &node).await.0, StatusCode::CREATED);
    assert_eq!(
        ask_for_own_node(&again, &authority, old()).await,
        "401",
        "an old certificate stays what it is"
    );
}
