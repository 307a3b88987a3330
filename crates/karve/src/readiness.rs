//! Whether a node is Ready by the word of the process that was just started.
//!
//! The Node in the API says Ready for a while after its kubelet is gone. A kubelet renews its Lease only after it has
//! written its own status, so a Lease renewed after the start means that the status is this kubelet's.

use std::time::{Duration, Instant};

use api::kinds::lease::LEASE;
use api::kinds::node::NODE;
use client::Client;
use client::when::Moment;
use serde_json::Value;

pub const POLL: Duration = Duration::from_millis(5);
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Waits until the node that a process started after `since` runs is Ready; `false` when that takes longer than `patience`.
pub async fn wait_for_node(client: &Client, name: &str, since: Moment, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if is_node_ready(client, name, since).await {
            return true;
        }
        tokio::time::sleep(POLL).await;
    }
    false
}

pub async fn is_node_ready(client: &Client, name: &str, since: Moment) -> bool {
    let leases = client.resource(&LEASE).in_namespace(LEASE_NAMESPACE);
    match leases.get::<Value>(name).await {
        Ok(lease) if is_renewed_since(&lease, since) => (),
        _ => return false,
    }
    let node = client.resource(&NODE).get::<Value>(name).await;
    node.is_ok_and(|node| is_ready(&node))
}

fn is_renewed_since(lease: &Value, since: Moment) -> bool {
    let renewed = lease["spec"]["renewTime"].as_str().and_then(Moment::parse);
    renewed.is_some_and(|renewed| renewed >= since)
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_of_the_process_before_says_nothing_about_this_one() {
        let lease = |renewed: &str| json!({"spec": {"renewTime": renewed}});
        let started = Moment::parse("2026-01-31T08:05:09.500000Z").unwrap_or_default();
        assert!(!is_renewed_since(&lease("2026-01-31T08:05:09.499999Z"), started));
        assert!(is_renewed_since(&lease("2026-01-31T08:05:09.500001Z"), started));
        assert!(!is_renewed_since(&json!({}), started));
        assert!(!is_renewed_since(&lease("soon"), started));
    }

    #[test]
    fn a_node_is_ready_by_its_condition() {
        let node = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_ready(&node("True")));
        assert!(!is_ready(&node("Unknown")));
        assert!(!is_ready(&json!({})));
    }
}
