//! `metrics.k8s.io`, answered from what kubelets tell.

use std::time::{SystemTime, UNIX_EPOCH};

use auth::User;
use serde_json::{Value, json};

use super::kubelet::{Answer, Authority, Kubelet};
use super::*;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A kubelet whose node uses half of a core at any time, and a pod's container a quarter.
async fn measuring_kubelet(authority: &Authority, node: &str, pods: &'static [&'static str]) -> Kubelet {
    let page = move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time");
        let (ms, seconds) = (now.as_millis(), now.as_secs_f64());
        let mut page = format!("node_cpu_usage_seconds_total {} {ms}\n", seconds / 2.0);
        page.push_str(&format!("node_memory_working_set_bytes 1048576 {ms}\n"));
        for pod in pods {
            let labels = format!("container=\"c\",namespace=\"default\",pod=\"{pod}\"");
            page.push_str(&format!(
                "container_cpu_usage_seconds_total{{{labels}}} {} {ms}\n",
                seconds / 4.0
            ));
            page.push_str(&format!("container_memory_working_set_bytes{{{labels}}} 65536 {ms}\n"));
        }
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len()).into_bytes()
    };
    Kubelet::serve(authority.serving(node), authority, Answer::made(page)).await
}

fn milli_cores(usage: &Value) -> i64 {
    let cpu: schema::quantity::Quantity = usage["cpu"].as_str().expect("a quantity").parse().expect("a quantity");
    cpu.milli_value()
}

/// Waits until there are figures, of which the first take two readings.
async fn warm_up(cluster: &Cluster) {
    for _ in 0..600 {
        let (_, nodes) = cluster.get(&format!("{METRICS}/nodes")).await;
        if !names(&nodes).is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("there are no figures");
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().expect("items").iter();
    items.filter_map(|item| item["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn what_nodes_and_pods_use_is_told_as_metrics_server_tells_it() {
    let authority = Authority::new();
    let kubelet = measuring_kubelet(&authority, "one", &["web", "db"]).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    add_pod(&cluster, "web", "one", "203.0.113.7", json!({})).await;
    add_pod(&cluster, "db", "one", "203.0.113.8", json!({})).await;
    add_pod(&cluster, "idle", "one", "203.0.113.9", json!({})).await;
    warm_up(&cluster).await;

    let (code, node) = cluster.get(&format!("{METRICS}/nodes/one")).await;
    assert_eq!(code, StatusCode::OK, "{node}");
    assert_eq!(
        (node["kind"].as_str(), node["usage"]["memory"].as_str()),
        (Some("NodeMetrics"), Some("1Mi"))
    );
    assert!((400..=600).contains(&milli_cores(&node["usage"])), "{node}");
    assert!(node["timestamp"].is_string() && node["window"].is_string(), "{node}");

    let (_, pods) = cluster.get(&format!("{METRICS}/namespaces/default/pods")).await;
    assert_eq!(pods["kind"], "PodMetricsList");
    assert_eq!(names(&pods), ["db", "web"], "what is not measured is left out");
    let container = &pods["items"][1]["containers"][0];
    assert_eq!(
        (&container["name"], &container["usage"]["memory"]),
        (&json!("c"), &json!("64Ki"))
    );
    assert!((200..=300).contains(&milli_cores(&container["usage"])), "{pods}");
    assert_eq!(pods["items"][1]["metadata"]["labels"], json!({"app": "web"}));

    let list = async |query: &str| cluster.get(&format!("{METRICS}/pods?{query}")).await;
    assert_eq!(names(&list("labelSelector=app%3Ddb").await.1), ["db"]);
    assert_eq!(names(&list("fieldSelector=metadata.name%3Dweb").await.1), ["web"]);
    assert_eq!(
        list("fieldSelector=spec.nodeName%3Done").await.0,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(list("watch=true").await.0, StatusCode::METHOD_NOT_ALLOWED);

    let table = cluster.get_as(&format!("{METRICS}/nodes"), TABLE).await;
    let columns = table["columnDefinitions"].as_array().expect("columns").iter();
    let columns: Vec<&str> = columns.filter_map(|column| column["name"].as_str()).collect();
    assert_eq!(columns, ["Name", "cpu", "memory", "Window"]);
    assert_eq!(table["rows"][0]["cells"][0], "one");

    // Who asks is the server's own identity, and the figures are asked for by one path.
    let clients = kubelet.clients.lock();
    let user = auth::authenticate::x509::user(&clients[0]).expect("a name").user;
    assert_eq!(user.name, apiserver::KUBELET_CLIENT);
    let received = kubelet.received.lock();
    assert!(received.starts_with(b"GET /metrics/resource HTTP/1.1\r\n"));
}

#[tokio::test]
async fn what_is_not_there_has_no_metrics() {
    let authority = Authority::new();
    let kubelet = measuring_kubelet(&authority, "one", &[]).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    add_pod(&cluster, "idle", "one", "203.0.113.9", json!({})).await;
    for (path, expected) in [
        ("nodes/two", "nodes \"two\" not found"),
        ("namespaces/default/pods/web", "pods \"default/web\" not found"),
        (
            "namespaces/default/pods/idle",
            "podmetrics.metrics.k8s.io \"default/idle\" not found",
        ),
    ] {
        let (code, answer) = cluster.get(&format!("{METRICS}/{path}")).await;
        assert_eq!((code, message(&answer)), (StatusCode::NOT_FOUND, expected));
    }
    let (code, _) = cluster.delete(&format!("{METRICS}/nodes/one")).await;
    assert_eq!(code, StatusCode::METHOD_NOT_ALLOWED);
}

/// A node tells of the pods that run on it. What it says of others counts for nothing, nor what another machine says in
/// its name.
#[tokio::test]
async fn a_node_is_believed_about_its_own_pods_only() {
    let authority = Authority::new();
    let kubelet = measuring_kubelet(&authority, "one", &["web", "foreign"]).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    // At the address that this node claims, the kubelet of another one answers.
    add_node(&cluster, "two", "127.0.0.1", kubelet.address.port()).await;
    add_pod(&cluster, "web", "one", "203.0.113.7", json!({})).await;
    add_pod(&cluster, "foreign", "two", "203.0.113.8", json!({})).await;
    warm_up(&cluster).await;
    let (_, pods) = cluster.get(&format!("{METRICS}/pods")).await;
    assert_eq!(names(&pods), ["web"]);
    let (_, nodes) = cluster.get(&format!("{METRICS}/nodes")).await;
    assert_eq!(names(&nodes), ["one"]);
}

#[tokio::test]
async fn metrics_are_for_those_who_may_read_them() {
    let authority = Authority::new();
    let kubelet = measuring_kubelet(&authority, "one", &["web"]).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    add_pod(&cluster, "web", "one", "203.0.113.7", json!({})).await;
    let pods = format!("{METRICS}/namespaces/default/pods");
    // The right to read pods is another one.
    let rules = json!([{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}]);
    cluster.grant("reader", "", rules).await;
    let reader = cluster.as_user("reader");
    for path in [&pods, &format!("{pods}/web"), &format!("{METRICS}/nodes/one")] {
        assert_eq!(reader.get(path).await.0, StatusCode::FORBIDDEN, "{path}");
    }
    let rules = json!([{"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["get", "list"]}]);
    cluster.grant("viewer", "default", rules).await;
    let viewer = cluster.as_user("viewer");
    assert_eq!(viewer.get(&pods).await.0, StatusCode::OK);
    assert_eq!(viewer.get(&format!("{METRICS}/pods")).await.0, StatusCode::FORBIDDEN);
    assert_eq!(viewer.get(&format!("{METRICS}/nodes")).await.0, StatusCode::FORBIDDEN);
    let anonymous = cluster.asked_by(User::system("system:anonymous", &["system:unauthenticated"]));
    assert_eq!(anonymous.get(&pods).await.0, StatusCode::FORBIDDEN);
    let (code, role) = cluster
        .get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregated-metrics-reader")
        .await;
    assert_eq!(code, StatusCode::OK);
    let label = &role["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"];
    assert_eq!(label, "true");
}

/// Until a Service is named, and again when it is not named any more, this server answers itself.
#[tokio::test]
async fn an_api_service_that_names_a_service_takes_over() {
    let authority = Authority::new();
    let kubelet = measuring_kubelet(&authority, "one", &[]).await;
    let cluster = cluster(&authority, "one", &kubelet).await;
    let nodes = format!("{METRICS}/nodes");
    warm_up(&cluster).await;
    assert_eq!(cluster.get(METRICS).await.1["resources"][0]["kind"], "NodeMetrics");
    assert_eq!(names(&cluster.get(&nodes).await.1), ["one"]);

    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
    let named = json!({"spec": {
        "service": {"name": "metrics-server", "namespace": "kube-system"}, "insecureSkipTLSVerify": true,
    }});
    let patch = "application/merge-patch+json";
    let (code, answer) = cluster.patch(service, patch, &named).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    wait_for_code(&cluster, &nodes, StatusCode::SERVICE_UNAVAILABLE).await;

    let local = json!({"spec": {"service": null, "insecureSkipTLSVerify": null}});
    let (code, answer) = cluster.patch(service, patch, &local).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    wait_for_code(&cluster, &nodes, StatusCode::OK).await;
    assert_eq!(names(&cluster.get(&nodes).await.1), ["one"]);
}

async fn wait_for_code(cluster: &Cluster, path: &str, expected: StatusCode) {
    let mut last = StatusCode::OK;
    for _ in 0..600 {
        last = cluster.get(path).await.0;
        if last == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{path} is answered with {last} and never with {expected}");
}
