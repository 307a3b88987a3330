//! Cluster-scoped kinds have no namespace, and namespaced ones have one.

use api::Resource;
use http::StatusCode;
use serde_json::{Value, json};

use super::everything;
use crate::cluster::Cluster;
use crate::custom::established_in_scope;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

fn root(resource: &Resource) -> String {
    match resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    }
}

/// Somebody who may do everything in the namespace `fz`.
async fn owner_of_fz() -> (Cluster, Cluster) {
    let cluster = Cluster::start().await;
    let namespace = json!({"metadata": {"name": "fz"}});
    assert_eq!(
        cluster.post("/api/v1/namespaces", &namespace).await.0,
        StatusCode::CREATED
    );
    cluster.grant("bob", "fz", everything()).await;
    let bob = cluster.as_user("bob");
    assert_eq!(
        bob.get_until_allowed("/api/v1/namespaces/fz/secrets").await,
        StatusCode::OK
    );
    (cluster, bob)
}

/// The attack that made a cluster's administrator out of a namespace's.
#[tokio::test]
async fn nobody_binds_a_cluster_role_through_a_namespace() {
    let (cluster, bob) = owner_of_fz().await;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": "pwn"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "bob"}],
    });
    let (code, answer) = bob
        .post(&format!("/apis/{group}/v1/namespaces/fz/clusterrolebindings"), &binding)
        .await;
    assert_eq!(code, StatusCode::NOT_FOUND, "{answer}");
    assert_eq!(answer["message"], "the server could not find the requested resource");
    let stored = cluster.get(&format!("/apis/{group}/v1/clusterrolebindings/pwn")).await;
    assert_eq!(stored.0, StatusCode::NOT_FOUND);
    assert_eq!(
        bob.get("/api/v1/namespaces/kube-system/secrets").await.0,
        StatusCode::FORBIDDEN
    );
}

/// Every cluster-scoped kind, by every method and in every form of the path; also for those who may do everything.
#[tokio::test]
async fn a_namespace_on_a_cluster_scoped_kind_is_nowhere() {
    let (cluster, bob) = owner_of_fz().await;
    let mallory = cluster.as_user("mallory");
    for resource in api::kinds::all().iter().filter(|resource| !resource.namespaced) {
        let below = format!("{}/namespaces/fz/{}", root(resource), resource.plural);
        let watch = below.replacen("/namespaces/", "/watch/namespaces/", 1);
        let mut paths = vec![below.clone(), format!("{below}/x"), watch.clone(), format!("{watch}/x")];
        paths.extend(
            resource
                .subresources
                .iter()
                .map(|sub| format!("{below}/x/{}", sub.name)),
        );
        paths.push(below.replace("/namespaces/fz/", "/namespaces%2Ffz%2F"));
        for path in &paths {
            for method in METHODS {
                let body = json!({"metadata": {"name": "x"}});
                let body = (method != "GET").then_some(&body);
                for who in [&cluster, &bob] {
                    let code = who.send(method, path, body).await.status();
                    assert_eq!(code, StatusCode::NOT_FOUND, "{method} {path}");
                }
                // Some reviews are for everybody.
                let code = mallory.send(method, path, body).await.status();
                let is_refused = matches!(code, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND);
                assert!(is_refused, "{method} {path}: {code}");
            }
        }
        // With no name between the slashes it is not even in a namespace.
        let nameless = format!("{}/namespaces//{}", root(resource), resource.plural);
        assert_eq!(cluster.get(&nameless).await.0, StatusCode::NOT_FOUND, "{nameless}");
        assert_eq!(bob.get(&nameless).await.0, StatusCode::FORBIDDEN, "{nameless}");
    }
}

#[tokio::test]
async fn without_a_namespace_namespaced_kinds_are_only_listed() {
    let cluster = Cluster::start().await;
    for resource in api::kinds::all().iter().filter(|resource| resource.namespaced) {
        let path = format!("{}/{}", root(resource), resource.plural);
        let is_listed = resource.allows(api::Verb::List);
        let (listed, other) = match is_listed {
            true => (StatusCode::OK, StatusCode::METHOD_NOT_ALLOWED),
            false => (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND),
        };
        assert_eq!(cluster.get(&path).await.0, listed, "{path}");
        let body = json!({"metadata": {"name": "x", "namespace": "default"}});
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let code = cluster.send(method, &path, Some(&body)).await.status();
            assert_eq!(code, other, "{method} {path}");
        }
        let mut named = vec![format!("{path}/x")];
        named.extend(resource.subresources.iter().map(|sub| format!("{path}/x/{}", sub.name)));
        for path in &named {
            for method in METHODS {
                let code = cluster.send(method, path, Some(&body)).await.status();
                assert_eq!(code, StatusCode::NOT_FOUND, "{method} {path}");
            }
        }
        let nameless = format!("{}/namespaces//{}", root(resource), resource.plural);
        let code = cluster.send("DELETE", &nameless, None).await.status();
        assert_eq!(code, StatusCode::BAD_REQUEST, "{nameless}");
    }
}

/// Roles in a namespace may give the namespace itself, and no other one.
#[tokio::test]
async fn namespaces_are_in_themselves() {
    let (cluster, bob) = owner_of_fz().await;
    let (code, namespace) = bob.get("/api/v1/namespaces/fz").await;
    assert_eq!(code, StatusCode::OK, "{namespace}");
    for subresource in ["status", "finalize"] {
        let path = format!("/api/v1/namespaces/fz/{subresource}");
        assert_eq!(bob.put(&path, &namespace).await.0, StatusCode::OK, "{path}");
    }
    for (path, expected) in [
        ("/api/v1/namespaces", StatusCode::FORBIDDEN),
        ("/api/v1/namespaces/default", StatusCode::FORBIDDEN),
        ("/api/v1/namespaces/default/status", StatusCode::FORBIDDEN),
        ("/api/v1/namespaces/fz/namespaces", StatusCode::NOT_FOUND),
        ("/api/v1/namespaces/fz/namespaces/default", StatusCode::NOT_FOUND),
        ("/api/v1/namespaces/fz/namespaces/default/status", StatusCode::NOT_FOUND),
        ("/apis/apps/v1/namespaces/fz", StatusCode::NOT_FOUND),
        ("/api/v1/watch/namespaces", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(bob.get(path).await.0, expected, "{path}");
    }
    let merge = "application/merge-patch+json";
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        bob.patch("/api/v1/namespaces/fz", merge, &labelled).await.0,
        StatusCode::OK
    );
    let (code, _) = bob.patch("/api/v1/namespaces/default", merge, &labelled).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(cluster.delete("/api/v1/namespaces/fz").await.0, StatusCode::OK);
}

/// The kinds that are answered and not stored keep their scopes as well.
#[tokio::test]
async fn reviews_are_where_they_belong() {
    let (cluster, bob) = owner_of_fz().await;
    let attributes = json!({"verb": "get", "resource": "pods", "namespace": "fz"});
    let spec = json!({"user": "bob", "resourceAttributes": attributes});
    let review = json!({"spec": spec});
    let local = "/apis/authorization.k8s.io/v1/namespaces/fz/localsubjectaccessreviews";
    assert_eq!(bob.post(local, &review).await.0, StatusCode::CREATED);
    for nowhere in [
        "/apis/authorization.k8s.io/v1/namespaces/fz/subjectaccessreviews",
        "/apis/authorization.k8s.io/v1/namespaces/fz/selfsubjectaccessreviews",
        "/apis/authentication.k8s.io/v1/namespaces/fz/tokenreviews",
        "/apis/authentication.k8s.io/v1/namespaces/fz/selfsubjectreviews",
    ] {
        assert_eq!(bob.post(nowhere, &review).await.0, StatusCode::NOT_FOUND, "{nowhere}");
    }
    let everywhere = "/apis/authorization.k8s.io/v1/localsubjectaccessreviews";
    assert_eq!(cluster.post(everywhere, &review).await.0, StatusCode::NOT_FOUND);
    let own = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_eq!(bob.post(own, &json!({})).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn custom_resources_keep_their_scope() {
    let cluster = established_in_scope("Cluster").await;
    cluster
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "fz"}}))
        .await;
    cluster.grant("bob", "fz", everything()).await;
    let bob = cluster.as_user("bob");
    assert_eq!(
        bob.get_until_allowed("/api/v1/namespaces/fz/secrets").await,
        StatusCode::OK
    );
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x"}});
    for path in [
        "/apis/example.com/v1/namespaces/fz/foos",
        "/apis/example.com/v1/namespaces/fz/foos/x",
        "/apis/example.com/v1/namespaces/fz/foos/x/status",
        "/apis/example.com/v1/watch/namespaces/fz/foos",
    ] {
        for method in METHODS {
            for who in [&cluster, &bob] {
                let answer = who.send(method, path, Some(&foo)).await;
                assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{method} {path}");
            }
        }
    }
    let listed = cluster.get("/apis/example.com/v1/foos").await;
    assert_eq!((listed.0, &listed.1["items"]), (StatusCode::OK, &json!([])));
    assert_eq!(
        cluster.post("/apis/example.com/v1/foos", &foo).await.0,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn namespaced_custom_resources_are_written_in_a_namespace() {
    let cluster = established_in_scope("Namespaced").await;
    let foo = json!({"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x", "namespace": "default"}});
    for (method, path) in [
        ("POST", "/apis/example.com/v1/foos"),
        ("DELETE", "/apis/example.com/v1/foos"),
        ("GET", "/apis/example.com/v1/foos/x"),
        ("PUT", "/apis/example.com/v1/foos/x"),
        ("PUT", "/apis/example.com/v1/foos/x/status"),
    ] {
        let answer = cluster.send(method, path, Some(&foo)).await;
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{method} {path}");
    }
    assert_eq!(cluster.get("/apis/example.com/v1/foos").await.0, StatusCode::OK);
}

/// The old form of a watch is one of the same objects, with the same rights.
#[tokio::test]
async fn a_watch_by_its_path_is_a_watch() {
    let (cluster, bob) = owner_of_fz().await;
    let maps = "/api/v1/namespaces/fz/configmaps";
    for name in ["a", "b"] {
        let map: Value = json!({"metadata": {"name": name}});
        assert_eq!(cluster.post(maps, &map).await.0, StatusCode::CREATED);
    }
    let mut all = bob.watch("/api/v1/watch/namespaces/fz/configmaps").await;
    assert_eq!(all.next().await, ("ADDED".to_owned(), "a".to_owned()));
    let mut one = bob.watch("/api/v1/watch/namespaces/fz/configmaps/b").await;
    assert_eq!(one.next().await, ("ADDED".to_owned(), "b".to_owned()));
    let deleted = bob.send("DELETE", "/api/v1/watch/namespaces/fz/configmaps", None).await;
    assert_eq!(deleted.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(cluster.get(&format!("{maps}/a")).await.0, StatusCode::OK);
}
