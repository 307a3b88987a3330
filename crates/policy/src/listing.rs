//! What is asked of the API server beside the caches: the newest policies, and why the caches stay empty.

use std::time::Duration;

use api::{ObjectMeta, Resource, kinds};
use client::{Client, Key, List, ListOptions};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::Enforcer;

/// The pause before an API server that did not answer is asked again for the policies of a pod that waits.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The first lists take no longer where all is well.
const FIRST_LISTS: Duration = Duration::from_secs(1);
/// All that policies depend on.
const RESOURCES: [&Resource; 4] = [
    &kinds::network_policy::NETWORK_POLICY,
    &kinds::pod::POD,
    &kinds::namespace::NAMESPACE,
    &kinds::endpoint_slice::ENDPOINT_SLICE,
];

/// What tells one state of a policy from another.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PolicyHead {
    pub metadata: ObjectMeta,
}

impl PolicyHead {
    pub fn key(&self) -> Key {
        Key::new(&self.metadata.namespace, &self.metadata.name)
    }
}

/// The policies that there are at this moment: a cache may not have one yet that was made before the pod.
pub async fn policies_of(client: &Client, namespace: &str, enforcer: &Enforcer) -> List<PolicyHead> {
    let policies = client.resource(&kinds::network_policy::NETWORK_POLICY);
    let policies = policies.in_namespace(namespace);
    loop {
        match policies.list(&ListOptions::default()).await {
            Ok(list) => {
                enforcer.unhindered();
                return list;
            }
            Err(error) => {
                tracing::warn!(namespace, %error, "Failed to list NetworkPolicies for a pod that is to start; retrying");
                enforcer.hindered(format!("list networkpolicies: {error}"));
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// Finds out why the first lists take long, for pods that wait for them. Does not return.
pub async fn explain_delay(client: &Client, enforcer: &Enforcer) {
    loop {
        tokio::time::sleep(FIRST_LISTS).await;
        match first_failure(client).await {
            Some((resource, error)) => {
                tracing::error!(resource, %error, "Failed to list what NetworkPolicies depend on; no pod starts until it is listed");
                enforcer.hindered(format!("list {resource}: {error}"));
            }
            // The caches will have it when they ask again.
            None => enforcer.unhindered(),
        }
    }
}

async fn first_failure(client: &Client) -> Option<(&'static str, client::Error)> {
    let one = ListOptions {
        limit: 1,
        ..ListOptions::default()
    };
    for resource in RESOURCES {
        if let Err(error) = client.resource(resource).list::<IgnoredAny>(&one).await {
            return Some((resource.plural, error));
        }
    }
    None
}
