//! What is asked for in headers and parameters, answered byte by byte as upstream does.

mod forms;

use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use store::Store;

use crate::cluster::{Cluster, json_of, text_of};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";

async fn with_config_map() -> Cluster {
    let cluster = Cluster::start().await;
    let object = json!({ "metadata": { "name": "a" }, "data": { "x": "<y>" } });
    let (code, answer) = cluster.post(CONFIG_MAPS, &object).await;
    assert_eq!(code, StatusCode::CREATED, "{answer}");
    cluster
}

/// The code, the media type and the text of an answer.
async fn fetch(cluster: &Cluster, path: &str, headers: &[(&str, &str)]) -> (StatusCode, String, String) {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = cluster.send_whole(request.body(Bytes::new()).expect("a request")).await;
    let media_type = response
        .headers()
        .get("content-type")
        .and_then(|value| value.to_str().ok());
    let (code, media_type) = (response.status(), media_type.unwrap_or_default().to_owned());
    (code, media_type, text_of(response).await)
}

#[tokio::test]
async fn people_get_indented_answers() {
    let cluster = with_config_map().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (_, _, compact) = fetch(&cluster, &path, &[]).await;
    let (_, media_type, pretty) = fetch(&cluster, &path, &[("user-agent", "curl/8.5.0")]).await;
    assert_eq!(media_type, "application/json");
    assert!(
        !compact.contains('\n') && pretty.contains("\n  \"metadata\": {\n    \""),
        "{pretty}"
    );
    assert!(pretty.contains("\"x\": \"\\u003cy\\u003e\""), "{pretty}");
    let value = |text: &str| serde_json::from_str::<Value>(text).expect("an object");
    assert_eq!(value(&compact), value(&pretty));
    for (path, is_pretty) in [
        (format!("{CONFIG_MAPS}?pretty=true"), true),
        (format!("{CONFIG_MAPS}/none?pretty=1"), true),
        (format!("{CONFIG_MAPS}?pretty=0"), false),
        ("/apis/apps/v1?pretty=true".to_owned(), true),
        ("/apis/apps/v1".to_owned(), false),
        ("/version".to_owned(), true),
    ] {
        let (_, _, text) = fetch(&cluster, &path, &[]).await;
        assert_eq!(text.contains("\n  \""), is_pretty, "{path}: {text}");
    }
}

/// An event stays one line, or nobody could tell where the next one begins.
#[tokio::test]
async fn events_of_watches_are_never_indented() {
    let cluster = with_config_map().await;
    let path = format!("{CONFIG_MAPS}?watch=1&pretty=true&fieldSelector=metadata.name=a");
    let mut watch = cluster.watch(&path).await;
    assert_eq!(watch.next().await, ("ADDED".to_owned(), "a".to_owned()));
}

#[tokio::test]
async fn tables_are_of_the_version_that_was_asked_for() {
    let cluster = with_config_map().await;
    for version in ["v1", "v1beta1"] {
        let accept = |kind: &str| format!("application/json;as={kind};v={version};g=meta.k8s.io");
        let expected = format!("meta.k8s.io/{version}");
        let path = format!("{CONFIG_MAPS}?fieldSelector=metadata.name=a");
        let table = cluster.get_as(&path, &accept("Table")).await;
        assert_eq!(table["apiVersion"], expected);
        assert_eq!(table["rows"][0]["object"]["apiVersion"], expected);
        let list = cluster.get_as(&path, &accept("PartialObjectMetadataList")).await;
        assert_eq!(list["apiVersion"], expected);
        assert_eq!(list["items"][0]["apiVersion"], expected);
        let one = cluster
            .get_as(&format!("{CONFIG_MAPS}/a"), &accept("PartialObjectMetadata"))
            .await;
        assert_eq!(one["apiVersion"], expected);
    }
}

#[tokio::test]
async fn what_cannot_be_encoded_as_asked_is_not_acceptable() {
    let cluster = with_config_map().await;
    let table = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
    for (path, accept) in [
        (CONFIG_MAPS, table),
        ("/version", "application/yaml"),
        ("/version", "text/html"),
        ("/api", "text/html"),
        ("/apis/apps", "text/html"),
    ] {
        let (code, _, text) = fetch(&cluster, path, &[("accept", accept)]).await;
        assert_eq!(code, StatusCode::NOT_ACCEPTABLE, "{path} {accept}: {text}");
    }
    for path in ["/api", "/apis", "/apis/apps", "/apis/apps/v1"] {
        for accept in ["application/yaml", "application/vnd.kubernetes.protobuf"] {
            let request = Request::builder().uri(path).header("accept", accept);
            let response = cluster.send_whole(request.body(Bytes::new()).expect("a request")).await;
            assert_eq!(response.status(), StatusCode::OK, "{path} {accept}");
            assert_eq!(response.headers()["content-type"], accept, "{path}");
        }
    }
}

#[tokio::test]
async fn a_read_is_not_older_than_asked_for() {
    let cluster = with_config_map().await;
    let path = |revision: &str| format!("{CONFIG_MAPS}/a?resourceVersion={revision}");
    assert_eq!(cluster.get(&path("0")).await.0, StatusCode::OK);
    let (code, answer) = cluster.get(&path("foo")).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        answer["message"],
        "resourceVersion: Invalid value: \"foo\": strconv.ParseUint: parsing \"foo\": invalid syntax"
    );
    for path in [path("999999"), format!("{CONFIG_MAPS}?resourceVersion=999999")] {
        let (code, answer) = cluster.get(&path).await;
        assert_eq!(code, StatusCode::GATEWAY_TIMEOUT, "{answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        let expected = "Timeout: Too large resource version: 999999, current: ";
        assert!(message.starts_with(expected), "{message}");
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        assert_eq!(answer["details"]["causes"], json!([cause]));
    }
}

#[tokio::test]
async fn tokens_of_others_continue_nothing() {
    let cluster = with_config_map().await;
    for (token, expected) in [
        // {"v":"meta.k8s.io/v2","rv":1,"start":"a"}
        (
            "eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6MSwic3RhcnQiOiJhIn0",
            "server does not recognize this encoded version meta.k8s.io/v2",
        ),
        // {"rv":1,"start":"a"}
        (
            "eyJydiI6MSwic3RhcnQiOiJhIn0",
            "server does not recognize this encoded version ",
        ),
        // {"v":"meta.k8s.io/v1","rv":1,"start":"a/../b"}
        (
            "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhLy4uL2IifQ",
            "a/../b",
        ),
    ] {
        let (code, answer) = cluster.get(&format!("{CONFIG_MAPS}?continue={token}")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        let expected = format!("invalid continue token: continue key is not valid: {expected}");
        assert_eq!(answer["message"], expected);
    }
}

#[tokio::test]
async fn a_patch_makes_no_object_another_kind() {
    let cluster = with_config_map().await;
    let path = format!("{CONFIG_MAPS}/a");
    let (_, before) = cluster.get(&path).await;
    for (patch, expected) in [
        (
            json!({ "kind": "Pod" }),
            "converting (v1.Pod) to (core.ConfigMap): unknown conversion",
        ),
        (
            json!({ "kind": "Foo" }),
            "no kind \"Foo\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            json!({ "apiVersion": "apps/v1" }),
            "no kind \"ConfigMap\" is registered for version \"apps/v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            json!({ "apiVersion": "x/y/z" }),
            "unexpected GroupVersion string: x/y/z",
        ),
        (
            json!({ "kind": 1 }),
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of \
             type string",
        ),
    ] {
        let (code, answer) = cluster.patch(&path, MERGE, &patch).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{patch}: {answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(expected), "{message}");
        assert_eq!(answer["details"]["causes"][0]["field"], "patch");
    }
    let (code, _) = cluster.patch(&path, MERGE, &json!({ "apiVersion": null })).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert_eq!(cluster.get(&path).await.1, before);
    let (code, _) = cluster.patch(&path, MERGE, &json!({ "kind": null })).await;
    assert_eq!(code, StatusCode::OK);
    let strategic = "application/strategic-merge-patch+json";
    let (code, answer) = cluster.patch(&path, strategic, &json!({ "kind": "Pod" })).await;
    assert_eq!((code, &answer["kind"]), (StatusCode::OK, &json!("ConfigMap")));
}

#[tokio::test]
async fn patches_are_bounded_and_applied_objects_have_names() {
    let cluster = with_config_map().await;
    let operation = json!({ "op": "add", "path": "/data/x", "value": "y" });
    let patch = Value::Array(vec![operation; 10_001]);
    let (code, answer) = cluster
        .patch(&format!("{CONFIG_MAPS}/a"), "application/json-patch+json", &patch)
        .await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(
        answer["message"],
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
    let path = format!("{CONFIG_MAPS}/new?fieldManager=x");
    let nameless = json!({ "kind": "ConfigMap", "apiVersion": "v1" });
    let (code, answer) = cluster.patch(&path, "application/apply-patch+yaml", &nameless).await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer["message"],
        "the name of the object (new based on URL) was undeterminable: name must be provided"
    );
    assert_eq!(
        cluster.get(&format!("{CONFIG_MAPS}/new")).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn content_types_are_read_whatever_their_case() {
    let cluster = Cluster::start().await;
    for (content_type, expected) in [
        ("Application/JSON", StatusCode::CREATED),
        ("*/*", StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ] {
        let request = Request::builder().method("POST").uri(CONFIG_MAPS);
        let body = json!({ "metadata": { "generateName": "x" } }).to_string();
        let request = request.header("content-type", content_type).body(body.into());
        let response = cluster.send_whole(request.expect("a request")).await;
        assert_eq!(response.status(), expected, "{content_type}");
        json_of(response).await;
    }
}

#[tokio::test]
async fn a_timeout_that_is_none_is_refused() {
    let cluster = Cluster::start().await;
    let (code, status) = cluster.get("/api/v1/pods?timeout=invalid").await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::BAD_REQUEST, &json!("BadRequest"))
    );
    assert_eq!(
        status["message"],
        r#"invalid timeout specified in the request URL - time: invalid duration "invalid""#
    );
    assert_eq!(cluster.get("/api/v1/pods?timeout=0s").await.0, StatusCode::OK);
}

#[tokio::test]
async fn health_checks_have_names_and_a_page_of_figures() {
    let cluster = Cluster::start().await;
    let read = async |path: &str| text_of(cluster.send("GET", path, None).await).await;
    let report = read("/readyz?verbose&exclude=log").await;
    for line in [
        "[+]ping ok\n[+]log excluded: ok\n[+]etcd ok\n[+]etcd-readiness ok\n[+]informer-sync ok\n",
        "[+]autoregister-completion ok\n",
        "[+]shutdown ok\nreadyz check passed\n",
    ] {
        assert!(report.contains(line), "{report}");
    }
    assert!(!read("/livez?verbose").await.contains("[+]informer-sync ok"));
    let figures = read("/metrics/slis").await;
    assert!(
        figures.contains("kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1\n"),
        "{figures}"
    );
    assert!(
        figures.contains("kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"livez\"} 1\n"),
        "{figures}"
    );
    assert!(figures.contains("\nprocess_start_time_seconds "), "{figures}");
    assert!(!figures.contains("name=\"log\",type=\"readyz\""), "{figures}");
}

#[tokio::test]
async fn components_have_statuses() {
    let cluster = Cluster::start().await;
    let (_, list) = cluster.get("/api/v1/componentstatuses").await;
    let names: Vec<&str> = list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, ["scheduler", "controller-manager", "etcd-0"]);
    let (_, store) = cluster.get("/api/v1/componentstatuses/etcd-0").await;
    assert_eq!(
        store["conditions"],
        json!([{"type": "Healthy", "status": "True", "message": "ok"}])
    );
    assert_eq!(store["kind"], "ComponentStatus");
    let (code, status) = cluster.get("/api/v1/componentstatuses/other").await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(status["message"], "componentstatus \"other\" not found");
}

#[tokio::test]
async fn all_keys_begin_with_the_root_that_was_chosen() {
    let store = store::memory::open();
    let cluster = Cluster::start_changed(store.clone(), &[], |options| {
        options.services.root = "/elsewhere".to_owned()
    });
    let cluster = cluster.await;
    let created = cluster
        .post(
            "/api/v1/namespaces/default/services",
            &json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .await;
    assert_eq!(created.0, StatusCode::CREATED, "{}", created.1);
    let snapshot = store.latest().await.expect("a snapshot");
    assert!(snapshot.get("/elsewhere/services/specs/default/web").is_some());
    assert_eq!(snapshot.count("/registry"), 0);
}

#[tokio::test]
async fn services_get_addresses_of_further_ranges_that_are_ready() {
    let cluster = Cluster::start_changed(store::memory::open(), &[], |options| {
        options.services.network = apiserver::ServiceNetwork::parse("10.96.0.0/29").expect("a network");
    })
    .await;
    let create = async |name: &str, address: Option<&str>| {
        let mut service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        if let Some(address) = address {
            service["spec"]["clusterIP"] = address.into();
        }
        cluster.post("/api/v1/namespaces/default/services", &service).await
    };
    let range = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.97.0.0/29"]}});
    let ranges = "/apis/networking.k8s.io/v1/servicecidrs";
    assert_eq!(cluster.post(ranges, &range).await.0, StatusCode::CREATED);
    // Nobody has said yet that the range can be used.
    assert_eq!(
        create("early", Some("10.97.0.3")).await.0,
        StatusCode::UNPROCESSABLE_ENTITY
    );
    for number in 1..6 {
        assert_eq!(create(&format!("own-{number}"), None).await.0, StatusCode::CREATED);
    }
    assert_eq!(create("full", None).await.0, StatusCode::INTERNAL_SERVER_ERROR);
    let (_, mut more) = cluster.get(&format!("{ranges}/more")).await;
    more["status"] = json!({"conditions": [{
        "type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let (code, answer) = cluster.put(&format!("{ranges}/more/status"), &more).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let (code, service) = create("more", None).await;
    assert_eq!(code, StatusCode::CREATED, "{service}");
    let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    assert!(address.starts_with("10.97.0."), "{address}");
    let other = if address == "10.97.0.3" {
        "10.97.0.4"
    } else {
        "10.97.0.3"
    };
    assert_eq!(create("asked", Some(other)).await.0, StatusCode::CREATED);
    assert_eq!(create("taken", Some(other)).await.0, StatusCode::UNPROCESSABLE_ENTITY);
}
