//! The kubelet as a whole, on a real container runtime and an API server in memory.
//!
//! Starting a containerd takes a second or two, so that all scenarios share one; each has its own pods.

mod api;
mod claims;
mod containerd;
mod csi;
mod csi_driver;
mod hostile;
mod images;
mod node;
mod sandbox_loss;
mod scenarios;
mod server;
mod statics;
mod streams;

use std::sync::Arc;
use std::time::{Duration, Instant};

use node::TestNode;
use scenarios::SCENARIOS;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn pods_live_as_they_should_on_containerd() {
    let Some(node) = TestNode::start("10.88.1.0/24").await else {
        return;
    };
    let node = Arc::new(node);
    let only = std::env::var("SCENARIO").unwrap_or_default();
    let mut running = JoinSet::new();
    let all = SCENARIOS
        .iter()
        .chain(hostile::SCENARIOS)
        .chain(claims::SCENARIOS)
        .chain(statics::SCENARIOS)
        .chain(csi::SCENARIOS);
    for (name, scenario) in all.filter(|(name, _)| name.contains(&only)) {
        let node = node.clone();
        let begun = Instant::now();
        running.spawn(async move {
            let ended = tokio::spawn(scenario(node)).await;
            (*name, ended.is_ok(), begun.elapsed())
        });
    }
    let mut failed = Vec::new();
    while let Some(ended) = running.join_next().await {
        let (name, good, took) = ended.expect("scenarios are joined");
        println!("{} {name} ({took:.1?})", if good { "ok    " } else { "FAILED" });
        if !good {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
}

/// A kubelet that is gone for a while misses nothing and breaks nothing.
#[test]
fn a_restart_adopts_what_runs_and_removes_what_is_orphaned() {
    let first = tokio::runtime::Runtime::new().expect("a runtime");
    let Some(mut node) = first.block_on(TestNode::start("10.88.2.0/24")) else {
        return;
    };
    let before = first.block_on(async {
        node.create_pod("stays", scenarios::sleeper());
        node.create_pod("goes", scenarios::sleeper());
        node.wait_for("goes", "ready", node::is_ready).await;
        node.wait_for("stays", "ready", node::is_ready).await
    });
    // All of the first kubelet's tasks end here, in the middle of whatever they do.
    drop(node.kubelet.take());
    first.shutdown_timeout(Duration::from_secs(1));
    node.api.delete("/api/v1/namespaces/default/pods/goes", 0);

    let second = tokio::runtime::Runtime::new().expect("a runtime");
    second.block_on(async {
        node.start_kubelet().await;
        let begun = Instant::now();
        while node.containers_of("goes").await > 0 {
            assert!(
                begun.elapsed() < Duration::from_secs(45),
                "the orphan's container is still there"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let after = node.pod("stays").expect("the pod is there");
        assert_eq!(
            after["status"]["containerStatuses"],
            before["status"]["containerStatuses"]
        );
        assert_eq!(after["status"]["conditions"], before["status"]["conditions"]);
        node.create_pod("later", scenarios::sleeper());
        node.wait_for("later", "ready", node::is_ready).await;
    });
    drop(node);
}
