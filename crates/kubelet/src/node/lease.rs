//! The node's heartbeat: a Lease renewed every ten seconds.

use client::{Client, Patch};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::limits;
use crate::moment::Moment;

const NAMESPACE: &str = "kube-node-lease";

/// Renews the lease for as long as it is not dropped.
pub async fn keep(client: Client, node: String, uid: String) {
    let mut renewal = tokio::time::interval(limits::LEASE_RENEWAL);
    renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        renewal.tick().await;
        if let Err(error) = renew(&client, &node, &uid).await {
            tracing::warn!(node, %error, "Failed to renew the node's Lease; retrying");
        }
    }
}

async fn renew(client: &Client, node: &str, uid: &str) -> Result<(), client::Error> {
    let api = client.resource(&api::kinds::lease::LEASE).in_namespace(NAMESPACE);
    let spec = spec(node);
    let renewed = api
        .patch::<IgnoredAny>(node, Patch::merge(&json!({"spec": spec})))
        .await;
    match renewed {
        Err(error) if error.is_not_found() => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": node,
                    "namespace": NAMESPACE,
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
                },
                "spec": spec,
            });
            api.create::<IgnoredAny>(&lease).await.map(drop)
        }
        other => other.map(drop),
    }
}

fn spec(node: &str) -> Value {
    json!({
        "holderIdentity": node,
        "leaseDurationSeconds": limits::LEASE_SECONDS,
        "renewTime": Moment::now().micros(),
    })
}
