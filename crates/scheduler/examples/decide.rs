//! How fast decisions are made, without an API server: `cargo run --release -p scheduler --example decide`.
//!
//! Arguments: the number of pods (10,000), of nodes (5,000) and of different sorts of pods (1).

use std::sync::Arc;

use bytes::Bytes;
use client::Object;
use scheduler::core::Core;
use scheduler::node::Node;
use scheduler::pod::Pod;
use serde_json::json;
use tokio::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let pods = arguments.next().unwrap_or(10_000);
    let nodes = arguments.next().unwrap_or(5_000);
    let sorts = arguments.next().unwrap_or(1).max(1);
    let now = Instant::now();
    let mut core = Core::new(vec![scheduler::Profile::default()], 7);
    for number in 0..nodes {
        core.node_changed(None, Some(&node(number)), now);
    }
    for number in 0..pods {
        core.pod_changed(None, Some(&Arc::new(pod(number, sorts))), now);
    }
    let begun = Instant::now();
    let mut placed = 0;
    while let Some(decision) = core.next(now) {
        placed += usize::from(decision.result.is_ok());
    }
    let took = begun.elapsed();
    let rate = pods as f64 / took.as_secs_f64();
    println!("{placed} of {pods} pods of {sorts} sorts on {nodes} nodes in {took:?}: {rate:.0} decisions/s");
}

fn node(number: usize) -> Node {
    let object = json!({
        "metadata": {
            "name": format!("node-{number}"),
            "labels": {"topology.kubernetes.io/zone": format!("zone-{}", number % 3)},
        },
        "status": {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}},
    });
    Node::decode(&Bytes::from(object.to_string())).expect("the node is well-formed")
}

fn pod(number: usize, sorts: usize) -> Pod {
    let cpu = format!("{}m", 100 + number % sorts);
    let object = json!({
        "metadata": {"name": format!("pod-{number}"), "namespace": "default", "uid": format!("uid-{number}")},
        "spec": {"containers": [{"name": "pause", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}]},
    });
    Pod::decode(&Bytes::from(object.to_string())).expect("the pod is well-formed")
}
