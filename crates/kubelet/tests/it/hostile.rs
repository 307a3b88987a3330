//! Pods that try what they must not, one function each.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::node::TestNode;
use crate::scenarios::{Scenario, container, output_of, scenarios, shell};

scenarios! {
    volumes_of_the_kubelet_cannot_be_changed,
    a_subpath_outlives_restarts,
}

/// The pod that changed `..data` had the kubelet remove any directory of the host.
async fn volumes_of_the_kubelet_cannot_be_changed(node: Arc<TestNode>) {
    let host = node.directory("host-directory");
    std::fs::write(host.join("file"), "of the host").expect("a file");
    for (kind, name) in [("configmaps", "frozen"), ("secrets", "hidden")] {
        let object = json!({"metadata": {"name": name}, "data": {"key": "b2xk"}});
        node.api.create(&format!("/api/v1/namespaces/default/{kind}"), object);
    }
    let mut spec = shell(&format!(
        "for v in /c /s /p /d; do ln -sfn {} $v/..data 2>/dev/null && echo $v can be changed; rm -rf $v/..data 2>/dev/null; \
         ls $v; stat -f -c %T $v; done",
        host.display()
    ));
    spec["containers"][0]["volumeMounts"] = ["c", "s", "p", "d"]
        .map(|name| json!({"name": name, "mountPath": format!("/{name}")}))
        .into();
    let labels = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    spec["volumes"] = json!([
        {"name": "c", "configMap": {"name": "frozen"}},
        {"name": "s", "secret": {"secretName": "hidden"}},
        {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        {"name": "d", "downwardAPI": {"items": labels}},
    ]);
    let log = output_of(&node, "frozen", spec).await;
    let kinds: Vec<&str> = log.lines().collect();
    // The disk's type depends on the machine.
    assert_eq!(kinds.len(), 8, "{log}");
    assert_eq!(
        [&kinds[..1], &kinds[2..]].concat(),
        ["key", "key", "tmpfs", "token", "tmpfs", "labels", "tmpfs"]
    );
    let uid = node.pod("frozen").unwrap_or_default()["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    node.delete("frozen", 1);
    node.wait_gone("frozen").await;
    node.wait_untraced(&uid).await;
    assert_eq!(
        std::fs::read_to_string(host.join("file")).expect("the file"),
        "of the host"
    );
}

async fn a_subpath_outlives_restarts(node: Arc<TestNode>) {
    let host = node.directory("precious");
    std::fs::write(host.join("file"), "precious\n").expect("a file");
    let mut spec = json!({"terminationGracePeriodSeconds": 1, "containers": [container("main", "cat /file; exit 1")]});
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "host", "mountPath": "/file", "subPath": "file", "readOnly": true}]);
    spec["volumes"] = json!([{"name": "host", "hostPath": {"path": host}}]);
    node.create_pod("restarts", spec);
    let restarted = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"].as_u64() >= Some(1) && status["state"]["running"].is_null()
    };
    node.wait_for("restarts", "restarted", restarted).await;
    assert_eq!(node.logs("restarts", "main", "").await, "precious\n");
    assert_eq!(
        std::fs::read_to_string(host.join("file")).expect("the file"),
        "precious\n"
    );
    let uid = node.pod("restarts").unwrap_or_default()["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    node.delete("restarts", 1);
    node.wait_gone("restarts").await;
    node.wait_untraced(&uid).await;
    assert_eq!(
        std::fs::read_to_string(host.join("file")).expect("the file"),
        "precious\n"
    );
}
