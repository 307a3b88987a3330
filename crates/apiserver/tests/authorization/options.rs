//! Whoever asks for a dry run in a way that nobody understands does not mean to write.

use http::StatusCode;
use serde_json::{Value, json};

use super::{PODS, pod};
use crate::cluster::Cluster;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
}

/// A method, the content type of its body, the path and the body of each way to write.
fn writes() -> Vec<(&'static str, &'static str, String, Value)> {
    let json = "application/json";
    vec![
        ("POST", json, MAPS.to_owned(), map("new", "x")),
        ("PUT", json, format!("{MAPS}/a"), map("a", "changed")),
        (
            "PATCH",
            "application/merge-patch+json",
            format!("{MAPS}/a"),
            map("a", "changed"),
        ),
        (
            "PATCH",
            "application/apply-patch+yaml",
            format!("{MAPS}/a?fieldManager=m&force=true"),
            map("a", "changed"),
        ),
        (
            "PATCH",
            "application/apply-patch+yaml",
            format!("{MAPS}/new?fieldManager=m"),
            map("new", "x"),
        ),
        ("DELETE", json, format!("{MAPS}/a"), Value::Null),
        ("DELETE", json, MAPS.to_owned(), Value::Null),
        ("DELETE", json, format!("{PODS}/web"), Value::Null),
        (
            "POST",
            json,
            format!("{PODS}/web/eviction"),
            json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"},
            }),
        ),
        (
            "POST",
            json,
            format!("{PODS}/web/binding"),
            json!({
                "metadata": {"name": "web"}, "target": {"kind": "Node", "name": "one"},
            }),
        ),
        (
            "POST",
            json,
            "/api/v1/namespaces/default/bindings".to_owned(),
            json!({
                "metadata": {"name": "web"}, "target": {"kind": "Node", "name": "one"},
            }),
        ),
        (
            "PUT",
            json,
            format!("{PODS}/web/status"),
            json!({"metadata": {"name": "web"}, "status": {"phase": "Failed"}}),
        ),
    ]
}

async fn state(cluster: &Cluster) -> (Value, Value) {
    (
        cluster.get(MAPS).await.1["items"].clone(),
        cluster.get(PODS).await.1["items"].clone(),
    )
}

async fn prepared() -> Cluster {
    let cluster = Cluster::start_without(&["ServiceAccount"]).await;
    cluster.post(MAPS, &map("a", "v")).await;
    pod(&cluster, "web").await;
    cluster
}

#[tokio::test]
async fn an_unknown_dry_run_writes_nothing() {
    let cluster = prepared().await;
    let before = state(&cluster).await;
    for (method, content_type, path, body) in writes() {
        let separator = if path.contains('?') { '&' } else { '?' };
        for query in [
            "dryRun=",
            "dryRun",
            "dryRun=all",
            "dryRun=All&dryRun=",
            "dryRun=&dryRun=All",
            "dryRun=true",
        ] {
            let path = format!("{path}{separator}{query}");
            let body = if body.is_null() {
                String::new()
            } else {
                body.to_string()
            };
            let (code, _, answer) = cluster
                .ask(method, &path, &[("content-type", content_type)], body)
                .await;
            assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{method} {path}: {answer}");
            let told = answer["message"].as_str().unwrap_or_default();
            assert!(told.contains("dryRun: Unsupported value: ["), "{told}");
            assert!(told.ends_with("supported values: \"All\""), "{told}");
        }
    }
    assert_eq!(state(&cluster).await, before);
}

#[tokio::test]
async fn options_in_a_body_are_held_to_the_same() {
    let cluster = prepared().await;
    let before = state(&cluster).await;
    for path in [format!("{MAPS}/a"), MAPS.to_owned()] {
        for wrong in [json!([""]), json!(["all"]), json!(["All", ""])] {
            let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": wrong});
            let (code, answer) = json_answer(&cluster, "DELETE", &path, &options).await;
            assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        }
    }
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web"},
        "deleteOptions": {"dryRun": [""]},
    });
    let (code, answer) = cluster.post(&format!("{PODS}/web/eviction"), &eviction).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    assert_eq!(state(&cluster).await, before);
}

/// Upstream reads only the body where there is one, and deletes for real in spite of `dryRun=All`.
#[tokio::test]
async fn a_dry_run_counts_in_the_query_and_in_the_body() {
    let cluster = prepared().await;
    let before = state(&cluster).await;
    let (real, dry) = (json!({"gracePeriodSeconds": 0}), json!({"dryRun": ["All"]}));
    for path in [
        format!("{MAPS}/a"),
        MAPS.to_owned(),
        format!("{PODS}/web"),
        PODS.to_owned(),
    ] {
        for (query, options, wanted) in [
            ("dryRun=All", &real, StatusCode::OK),
            ("dryRun=All", &dry, StatusCode::OK),
            ("", &dry, StatusCode::OK),
            ("dryRun=", &real, StatusCode::UNPROCESSABLE_ENTITY),
            ("dryRun=x", &dry, StatusCode::UNPROCESSABLE_ENTITY),
        ] {
            let (code, answer) = json_answer(&cluster, "DELETE", &format!("{path}?{query}"), options).await;
            assert_eq!(code, wanted, "{path}?{query}: {answer}");
            assert_eq!(state(&cluster).await, before, "{path}?{query}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_that_is_asked_for_twice_is_one() {
    let cluster = prepared().await;
    let before = state(&cluster).await;
    for (method, content_type, path, body) in writes() {
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{separator}dryRun=All&dryRun=All");
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (code, _, answer) = cluster
            .ask(method, &path, &[("content-type", content_type)], body)
            .await;
        assert!(code.is_success(), "{method} {path}: {answer}");
    }
    assert_eq!(state(&cluster).await, before);
}

async fn json_answer(cluster: &Cluster, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
    let (code, _, answer) = cluster
        .ask(method, path, &[("content-type", "application/json")], body.to_string())
        .await;
    (code, answer)
}
