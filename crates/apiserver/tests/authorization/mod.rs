//! What somebody without the right must not get at, by whichever way they try.

mod impersonation;
mod options;
mod scope;

use http::StatusCode;
use serde_json::{Value, json};

use crate::cluster::Cluster;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Everything in one namespace, or everywhere.
fn everything() -> Value {
    json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }])
}

fn rule(groups: &str, resource: &str, verbs: &[&str]) -> Value {
    json!([{ "apiGroups": [groups], "resources": [resource], "verbs": verbs }])
}

async fn pod(cluster: &Cluster, name: &str) {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, answer) = cluster.post(PODS, &pod).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
}

/// A WebSocket begins with GET; to read is not to run.
#[tokio::test]
async fn whoever_connects_to_a_pod_needs_to_create() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    pod(&cluster, "web").await;
    for subresource in ["exec", "attach", "portforward"] {
        let path = format!("{PODS}/web/{subresource}?command=id&ports=80");
        let resource = format!("pods/{subresource}");
        let reader = format!("reads-{subresource}");
        cluster.grant(&reader, "default", rule("", &resource, &["get"])).await;
        let reader = cluster.as_user(&reader);
        let (code, answer) = reader.get(&path).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{answer}");
        assert_eq!(answer["message"], "pods \"web\" is forbidden: ");
        assert_eq!(answer["details"], json!({"name": "web", "kind": "pods"}));
        assert_eq!(reader.send("POST", &path, None).await.status(), StatusCode::FORBIDDEN);

        let runner = format!("runs-{subresource}");
        cluster
            .grant(&runner, "default", rule("", &resource, &["get", "create"]))
            .await;
        let runner = cluster.as_user(&runner);
        for method in ["GET", "POST"] {
            let answer = runner.send(method, &path, None).await;
            // The pod is on no node.
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{method} {path}");
        }
        for method in ["PUT", "PATCH", "DELETE"] {
            let answer = cluster.send(method, &path, None).await;
            assert_eq!(answer.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        }
        let answer = cluster.get(&format!("{PODS}/web/{subresource}/more")).await;
        assert_eq!(answer.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn the_bundled_roles_may_still_connect() {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    pod(&cluster, "web").await;
    for (role, expected) in [
        ("admin", StatusCode::BAD_REQUEST),
        ("edit", StatusCode::BAD_REQUEST),
        ("view", StatusCode::FORBIDDEN),
    ] {
        cluster.bind(role, "default", role).await;
        let (code, answer) = cluster.as_user(role).get(&format!("{PODS}/web/exec?command=id")).await;
        assert_eq!(code, expected, "{role}: {answer}");
    }
}

/// What a kind needs to be sound: those who may not create are told so of sound objects alone, as upstream does.
fn valid_object(group: &str, plural: &str) -> Value {
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view" });
    match plural {
        "services" => json!({ "spec": { "ports": [{ "port": 80 }] } }),
        "runtimeclasses" => json!({ "handler": "h" }),
        "clusterrolebindings" | "rolebindings" => json!({ "roleRef": role }),
        "events" if group.is_empty() => json!({ "involvedObject": { "namespace": "default" } }),
        "events" => json!({
            "eventTime": "2026-01-01T12:00:00.000000Z", "reportingController": "a.io/b", "reportingInstance": "c",
            "action": "x", "reason": "y", "type": "Normal", "regarding": { "namespace": "default" },
        }),
        _ => json!({}),
    }
}

/// For every kind that an update can create.
#[tokio::test]
async fn whoever_may_only_update_creates_nothing() {
    let cluster = Cluster::start().await;
    cluster.grant("bob", "", rule("*", "*", &["update", "patch"])).await;
    let bob = cluster.as_user("bob");
    let creatable: Vec<_> = api::kinds::all()
        .iter()
        .filter(|resource| resource.rules.create_on_update())
        .collect();
    assert_eq!(creatable.len(), 11, "as upstream has them");
    for resource in creatable {
        let path = resource.path(resource.namespaced.then_some("default"), Some("new"));
        let mut object = valid_object(resource.group, resource.plural);
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.into();
        object["metadata"] = json!({ "name": "new" });
        let (code, answer) = bob.put(&path, &object).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}: {answer}");
        let told = answer["message"].as_str().unwrap_or_default();
        assert!(told.contains("User \"bob\" cannot create resource"), "{told}");
        assert_eq!(answer["details"]["name"], "new");
        let kind = "application/apply-patch+yaml";
        let (code, answer) = bob.patch(&format!("{path}?fieldManager=bob"), kind, &object).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}: {answer}");
        assert_eq!(cluster.get(&path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn whoever_may_create_as_well_creates_by_an_update() {
    let cluster = Cluster::start().await;
    let verbs = ["update", "create"];
    cluster
        .grant("bob", "default", rule("coordination.k8s.io", "leases", &verbs))
        .await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/new";
    let (code, answer) = cluster
        .as_user("bob")
        .put(path, &json!({"metadata": {"name": "new"}}))
        .await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
}

/// What monitoring is given: every path, to read.
#[tokio::test]
async fn the_right_to_all_paths_is_not_the_right_to_the_whole_store() {
    let cluster = Cluster::start().await;
    let paths = json!([{ "nonResourceURLs": ["*", "/debug/karve/backup"], "verbs": ["get"] }]);
    cluster.grant("monitor", "", paths).await;
    cluster
        .grant("monitor", "", rule("*", "*", &["get", "list", "watch"]))
        .await;
    let monitor = cluster.as_user("monitor");
    assert_eq!(monitor.get_until_allowed("/metrics").await, StatusCode::OK);
    for path in [
        "/debug/karve/backup",
        "/debug/karve/%62ackup",
        "/debug%2Fkarve%2Fbackup",
    ] {
        let (code, answer) = monitor.get(path).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}");
        assert_eq!(
            answer["message"],
            "stores.karve.dev is forbidden: User \"monitor\" cannot backup resource \"stores\" in API group \
             \"karve.dev\" at the cluster scope"
        );
    }
    for path in ["//debug/karve/backup", "/debug/karve/backup/", "/debug//karve/backup"] {
        assert_eq!(monitor.get(path).await.0, StatusCode::NOT_FOUND, "{path}");
    }
    cluster
        .grant("keeper", "", rule("karve.dev", "stores", &["backup"]))
        .await;
    cluster.bind("boss", "", "cluster-admin").await;
    for who in ["keeper", "boss"] {
        let answer = cluster.as_user(who).send("GET", "/debug/karve/backup", None).await;
        assert_eq!(answer.status(), StatusCode::OK, "{who}");
    }
}

/// A review may name a resource and its subresource in one text, and is answered as the request would be.
#[tokio::test]
async fn reviews_compare_whole_names() {
    let cluster = Cluster::start().await;
    cluster
        .grant("bob", "default", rule("a.io", "things/status", &["get"]))
        .await;
    cluster
        .grant("bob", "default", rule("b.io", "*/status", &["get"]))
        .await;
    let asked = [
        ("a.io", json!({"resource": "things/status"}), true),
        ("a.io", json!({"resource": "things", "subresource": "status"}), true),
        ("a.io", json!({"resource": "things"}), false),
        ("a.io", json!({"resource": "thing", "subresource": "s/status"}), false),
        (
            "a.io",
            json!({"resource": "things/status", "subresource": "status"}),
            false,
        ),
        ("b.io", json!({"resource": "things", "subresource": "status"}), true),
        // There is no subresource to compare with.
        ("b.io", json!({"resource": "things/status"}), false),
    ];
    for (group, mut attributes, expected) in asked {
        attributes["group"] = group.into();
        attributes["namespace"] = "default".into();
        attributes["verb"] = "get".into();
        let review = json!({"spec": {"user": "bob", "resourceAttributes": attributes}});
        let (code, answer) = cluster
            .post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)
            .await;
        assert_eq!(code, StatusCode::CREATED, "{answer}");
        let allowed = answer["status"]["allowed"].as_bool().unwrap_or_default();
        assert_eq!(allowed, expected, "{attributes}");
    }
}

/// Encodings of one path are one path, to those who ask for rights and to those who serve.
#[tokio::test]
async fn no_encoding_leads_out_of_a_namespace() {
    let cluster = Cluster::start().await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let (code, answer) = cluster.post("/api/v1/namespaces/kube-system/secrets", &secret).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    cluster
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "fz"}}))
        .await;
    cluster.grant("bob", "fz", everything()).await;
    let bob = cluster.as_user("bob");
    assert_eq!(
        bob.get_until_allowed("/api/v1/namespaces/fz/secrets").await,
        StatusCode::OK
    );
    for (path, expected) in [
        ("/api/v1/namespaces/fz/../kube-system/secrets", StatusCode::NOT_FOUND),
        (
            "/api/v1/namespaces/fz/%2e%2e/kube-system/secrets",
            StatusCode::NOT_FOUND,
        ),
        (
            "/api/v1/namespaces/fz%2F..%2Fkube-system/secrets",
            StatusCode::NOT_FOUND,
        ),
        (
            "/api/v1/namespaces/fz%2Fsecrets%2F..%2F..%2Fkube-system/secrets/s",
            StatusCode::NOT_FOUND,
        ),
        ("/api/v1/namespaces/kube-system%2Fsecrets", StatusCode::FORBIDDEN),
        ("/api/v1/namespaces%2Fkube-system/secrets/s", StatusCode::FORBIDDEN),
        ("/api/v1/namespaces/fz/secrets/..", StatusCode::BAD_REQUEST),
        (
            "/api/v1/namespaces/fz/secrets/%2e%2e%2fkube-system%2fs",
            StatusCode::NOT_FOUND,
        ),
        ("/api/v1/namespaces/fz/secrets/s%252F", StatusCode::BAD_REQUEST),
        ("/api/v1/namespaces//secrets", StatusCode::FORBIDDEN),
        ("/api/v1//namespaces/fz/secrets", StatusCode::FORBIDDEN),
        ("//api/v1/namespaces/fz/secrets", StatusCode::NOT_FOUND),
        ("/api/v1/secrets", StatusCode::FORBIDDEN),
        (
            "/api/v1/secrets?fieldSelector=metadata.namespace%3Dfz",
            StatusCode::FORBIDDEN,
        ),
        ("/api/v1/watch/namespaces/kube-system/secrets", StatusCode::FORBIDDEN),
        ("/api/v1/watch/secrets", StatusCode::FORBIDDEN),
        ("/api/v1/proxy/namespaces/kube-system/services/x", StatusCode::FORBIDDEN),
        ("/api/v1/namespaces/fz/secrets/%zz", StatusCode::BAD_REQUEST),
    ] {
        let (code, answer) = bob.get(path).await;
        assert_eq!(code, expected, "{path}: {answer}");
    }
    // Plain and encoded, the same place.
    for path in ["/api/v1/namespaces/fz/secrets", "/api%2Fv1/namespaces/fz%2fs%65crets/"] {
        assert_eq!(bob.get(path).await.0, StatusCode::OK, "{path}");
    }
    assert_eq!(bob.get("/api/v1/watch").await.0, StatusCode::INTERNAL_SERVER_ERROR);
}
