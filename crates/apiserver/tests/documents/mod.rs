//! The OpenAPI documents of every group and of what names no resource, in all forms.

use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::{Map, Value};

use crate::cluster::{Cluster, bytes_of};
use crate::custom::established;

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";

async fn urls(cluster: &Cluster) -> Vec<(String, String)> {
    let (_, index) = cluster.get("/openapi/v3").await;
    let paths = index["paths"].as_object().into_iter().flatten();
    let url = |of: &Value| of["serverRelativeURL"].as_str().unwrap_or_default().to_owned();
    paths.map(|(path, of)| (path.clone(), url(of))).collect()
}

/// The code, the media type and the tag of an answer, and its body.
async fn fetch(cluster: &Cluster, url: &str, accept: &str) -> (StatusCode, [String; 2], Bytes) {
    let request = Request::builder().uri(url).header("accept", accept);
    let response = cluster.send_whole(request.body(Bytes::new()).expect("a request")).await;
    let header = |name| {
        let value = response.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let headers = [header("content-type"), header("etag")];
    (response.status(), headers, bytes_of(response).await)
}

#[tokio::test]
async fn every_document_is_there_as_json_and_as_protobuf() {
    let cluster = established().await;
    for (path, url) in urls(&cluster).await {
        let (code, [media_type, tag], text) = fetch(&cluster, &url, "application/json").await;
        assert_eq!(
            (code, media_type.as_str()),
            (StatusCode::OK, "application/json"),
            "{path}"
        );
        serde_json::from_slice::<Value>(&text).expect("the document is JSON");
        for accept in [PROTOBUF, &PROTOBUF.replace("v3.v1", "v3@v1")] {
            let (code, headers, message) = fetch(&cluster, &url, accept).await;
            assert_eq!(code, StatusCode::OK, "{path}: {}", String::from_utf8_lossy(&message));
            assert_eq!(headers, [PROTOBUF.to_owned(), tag.clone()], "{path}");
            let version = message.windows(7).any(|window| window == b"\x0a\x053.0.0");
            assert!(version, "{path}");
        }
    }
    let (code, ..) = fetch(&cluster, "/openapi/v3/api/v1", "text/html").await;
    assert_eq!(code, StatusCode::NOT_ACCEPTABLE);
}

#[tokio::test]
async fn discovery_is_described_too() {
    let cluster = Cluster::start().await;
    let found: Map<String, Value> = urls(&cluster)
        .await
        .into_iter()
        .map(|(path, url)| (path, url.into()))
        .collect();
    let expected = [
        ".well-known/openid-configuration",
        "api",
        "api/v1",
        "apis",
        "apis/apps",
        "apis/apps/v1",
        "openid/v1/jwks",
        "version",
    ];
    for path in expected {
        assert!(found.contains_key(path), "{path} is missing");
    }
    let (_, v2) = cluster.get("/openapi/v2").await;
    let get = |path: &str| &v2["paths"][path]["get"];
    let list = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList";
    assert_eq!(get("/apis/apps/v1/")["operationId"], "getAppsV1APIResources");
    assert_eq!(get("/apis/apps/v1/")["responses"]["200"]["schema"]["$ref"], list);
    assert_eq!(get("/openid/v1/jwks/")["produces"][0], "application/jwk-set+json");
    // What is described is there.
    let paths = v2["paths"].as_object().into_iter().flat_map(Map::keys);
    for path in paths.filter(|path| path.ends_with('/')) {
        assert_eq!(cluster.get(path).await.0, StatusCode::OK, "{path}");
    }
}

/// What clients choose their patches by: kubectl apply sends a strategic merge patch wherever one is offered, and
/// keeps fields of a union that were set before unless it is told to retain only its own.
#[tokio::test]
async fn patches_are_offered_where_they_work() {
    let cluster = established().await;
    let (_, _, text) = fetch(&cluster, "/openapi/v3/apis/apps/v1", "application/json").await;
    let apps: Value = serde_json::from_slice(&text).expect("JSON");
    let schemas = &apps["components"]["schemas"];
    let strategy = |ty: &str, field: &str| {
        let property = &schemas[ty]["properties"][field];
        property["x-kubernetes-patch-strategy"].clone()
    };
    assert_eq!(strategy("io.k8s.api.apps.v1.DeploymentSpec", "strategy"), "retainKeys");
    assert_eq!(strategy("io.k8s.api.core.v1.PodSpec", "volumes"), "merge,retainKeys");
    assert_eq!(strategy("io.k8s.api.core.v1.PodSpec", "containers"), "merge");
    for (path, url) in urls(&cluster).await {
        let (_, _, text) = fetch(&cluster, &url, "application/json").await;
        let document: Value = serde_json::from_slice(&text).expect("JSON");
        let custom = path.starts_with("apis/example.com");
        let items = document["paths"].as_object().into_iter().flatten();
        for (item, methods) in items.filter(|(_, methods)| methods.get("patch").is_some()) {
            let offered = &methods["patch"]["requestBody"]["content"];
            let strategic = offered.get("application/strategic-merge-patch+json").is_some();
            assert!(
                strategic != custom || item.ends_with("/proxy") || item.contains("/proxy/"),
                "{item}"
            );
        }
    }
}
