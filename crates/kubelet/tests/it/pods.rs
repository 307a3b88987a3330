//! Lives of pods.

use std::time::Instant;

use serde_json::json;

use crate::node::{BUSYBOX, TestNode, is_ready, phase_is};

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_runs_becomes_ready_and_is_deleted() {
    let Some(node) = TestNode::start("10.88.1.0/24").await else {
        return;
    };
    let begun = Instant::now();
    node.create_pod(
        "web",
        json!({"containers": [{
            "name": "main", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"],
            "terminationMessagePath": "/dev/termination-log",
        }]}),
    );
    let pod = node.wait_for("web", "ready", is_ready).await;
    println!("created to ready: {:?}", begun.elapsed());
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    assert!(
        pod["status"]["podIP"]
            .as_str()
            .is_some_and(|ip| ip.starts_with("10.88.1.")),
        "{pod:#}"
    );
    node.api.delete("/api/v1/namespaces/default/pods/web", 5);
    node.wait_gone("web").await;
    println!("events: {:#?}", node.api.events_about("web"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_pod_succeeds() {
    let Some(node) = TestNode::start("10.88.2.0/24").await else {
        return;
    };
    node.create_pod(
        "job",
        json!({"restartPolicy": "Never", "containers": [{
            "name": "main", "image": BUSYBOX, "command": ["sh", "-c", "echo done > /dev/termination-log"],
            "terminationMessagePath": "/dev/termination-log",
        }]}),
    );
    let pod = node.wait_for("job", "finished", phase_is("Succeeded")).await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!(
        (&ended["reason"], &ended["message"]),
        (&json!("Completed"), &json!("done\n"))
    );
}
