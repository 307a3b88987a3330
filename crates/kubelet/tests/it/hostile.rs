//! Pods that try what they must not, one function each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::{LOG_FILES, PATIENCE, POD_MAX_PIDS, TestNode, phase_is};
use crate::scenarios::{Scenario, container, output_of, scenarios, shell};

scenarios! {
    volumes_of_the_kubelet_cannot_be_changed,
    a_subpath_outlives_restarts,
    pods_that_must_not_run_here_are_refused,
    processes_are_bounded,
    what_is_written_to_the_disk_is_limited,
    a_flooded_log_is_bounded,
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
    // A container that was just created has written nothing yet, and a runtime may write its log after its end.
    let begun = Instant::now();
    while node.logs("restarts", "main", "").await != "precious\n" {
        assert!(
            begun.elapsed() < PATIENCE,
            "the restarted container did not read the file"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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

/// Their creator names the node, so that no scheduler has looked at them.
async fn pods_that_must_not_run_here_are_refused(node: Arc<TestNode>) {
    let sysctl = json!({"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "0"}]});
    let cases = [
        (
            "windows",
            json!({"os": {"name": "windows"}}),
            "PodOSNotSupported",
            "Failed to admit pod as the OS field",
        ),
        (
            "sysctl",
            json!({"hostNetwork": true, "securityContext": sysctl}),
            "SysctlForbidden",
            "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled",
        ),
        (
            "greedy",
            json!({"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100000"}}}]}),
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 100000000",
        ),
    ];
    for (name, fields, reason, message) in cases {
        let mut spec = shell("true");
        for (field, value) in fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        node.create_pod(name, spec);
        let pod = node.wait_for(name, "refused", phase_is("Failed")).await;
        assert_eq!(pod["status"]["reason"], reason);
        let told = pod["status"]["message"].as_str().unwrap_or_default();
        assert!(told.starts_with(&format!("Pod was rejected: {message}")), "{told}");
        node.wait_for_event(name, reason).await;
        assert_eq!(node.containers_of(name).await, 0);
        node.delete(name, 0);
    }
}

async fn processes_are_bounded(node: Arc<TestNode>) {
    let all = node.pods_cgroup("pids", "pids.max").unwrap_or_default();
    assert!(
        all.trim().parse::<u64>().is_ok_and(|limit| limit > POD_MAX_PIDS),
        "all pods may have {all:?}"
    );
    let spec = shell(&format!(
        "i=0; while [ $i -lt {} ]; do sleep 600 & i=$((i+1)); done; echo has all of them",
        2 * POD_MAX_PIDS
    ));
    let mut spec = spec;
    spec["restartPolicy"] = json!("Never");
    node.create_pod("bomb", spec);
    let pod = node.wait_for("bomb", "failed", phase_is("Failed")).await;
    let log = node.logs("bomb", "main", "").await;
    assert!(
        log.contains("can't fork") && !log.contains("has all"),
        "{log}\n{:#}",
        pod["status"]
    );
    node.delete("bomb", 0);
}

async fn what_is_written_to_the_disk_is_limited(node: Arc<TestNode>) {
    let write = |path: &str| format!("dd if=/dev/zero of={path} bs=1M count=200; sleep 600");
    let mut volume = shell(&write("/v/large"));
    volume["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    volume["volumes"] = json!([{"name": "v", "emptyDir": {"sizeLimit": "10Mi"}}]);
    let mut layer = shell(&write("/large"));
    layer["containers"][0]["resources"] = json!({"limits": {"ephemeral-storage": "20Mi"}});
    let cases = [
        (
            "volume",
            volume,
            "Usage of EmptyDir volume \"v\" exceeds the limit \"10Mi\". ",
        ),
        (
            "layer",
            layer,
            "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ",
        ),
    ];
    for (name, spec, message) in cases {
        node.create_pod(name, spec);
        let pod = node.wait_for(name, "evicted", phase_is("Failed")).await;
        assert_eq!(pod["status"]["reason"], "Evicted");
        assert_eq!(pod["status"]["message"], message);
        node.wait_for_event(name, "Evicted ").await;
        node.delete(name, 0);
    }
}

/// A container that floods its log for ten seconds, with logs of at most a megabyte. It pauses now and then: on a busy
/// machine all of a flood without pauses may be over before the kubelet gets its turn.
async fn a_flooded_log_is_bounded(node: Arc<TestNode>) {
    const WRITTEN: u64 = 100_000_000;
    let burst = format!("yes {} | head -c {}", "x".repeat(100), WRITTEN / 100);
    let mut spec = shell(&format!(
        "i=0; while [ $i -lt 100 ]; do {burst}; i=$((i+1)); sleep 0.1; done"
    ));
    spec["restartPolicy"] = json!("Never");
    node.create_pod("flood", spec);
    let pod = node
        .wait_for("flood", "there", |pod| !pod["metadata"]["uid"].is_null())
        .await;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let logs = node.logs_of("flood", &uid);
    let begun = std::time::Instant::now();
    let mut largest = 0;
    while !node.pod("flood").is_some_and(|pod| phase_is("Succeeded")(&pod)) {
        let files = std::fs::read_dir(&logs).into_iter().flatten().flatten();
        let sizes = files.filter_map(|file| file.metadata().ok()).map(|file| file.len());
        largest = sizes.sum::<u64>().max(largest);
        assert!(begun.elapsed().as_secs() < 120, "the flood does not end");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    println!(
        "of {} MB that were written at most {} MB were there",
        WRITTEN >> 20,
        largest >> 20
    );
    assert!(largest < WRITTEN / 2, "{} MB were there", largest >> 20);
    let files = std::fs::read_dir(&logs).into_iter().flatten().flatten().count();
    // One is being compressed, perhaps.
    assert!(files <= LOG_FILES + 1, "{files} files");
    node.delete("flood", 0);
}
