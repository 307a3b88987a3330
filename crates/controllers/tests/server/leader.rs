//! Leader election against a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::kinds::config_map::CONFIG_MAP;
use api::kinds::lease::LEASE;
use client::Client;
use client::leader::{Election, lead_until};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;

/// A candidate whose component writes one object, counts itself and then waits.
fn candidate(cluster: &Cluster, identity: &str, leading: &Arc<AtomicUsize>) -> JoinHandle<()> {
    candidate_until(cluster, identity, leading, std::future::pending())
}

fn candidate_until(
    cluster: &Cluster,
    identity: &str,
    leading: &Arc<AtomicUsize>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let election = Election {
        client: cluster.client.clone(),
        namespace: "kube-system".to_owned(),
        name: "test".to_owned(),
        identity: identity.to_owned(),
    };
    let (leading, name) = (leading.clone(), identity.to_owned());
    tokio::spawn(async move {
        lead_until(election, stop, |client: Client| {
            let (leading, name) = (leading.clone(), name.clone());
            async move {
                let maps = client.resource(&CONFIG_MAP).in_namespace("default");
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                maps.create::<Value>(&map).await.unwrap();
                leading.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
        })
        .await;
    })
}

#[tokio::test]
async fn one_of_two_candidates_leads_and_may_write() {
    let cluster = Cluster::start().await;
    let leading = Arc::new(AtomicUsize::new(0));
    let first = candidate(&cluster, "first", &leading);
    cluster
        .until("a leader", async || leading.load(Ordering::Relaxed) == 1)
        .await;
    let second = candidate(&cluster, "second", &leading);
    // Long enough for a renewal of the one and an attempt of the other.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    assert_eq!(leading.load(Ordering::Relaxed), 1);
    let lease = cluster.get(&LEASE, "kube-system", "test").await.unwrap();
    let spec = &lease["spec"];
    assert_eq!(spec["holderIdentity"], "first");
    assert_eq!(spec["leaseDurationSeconds"], 15);
    assert_eq!(spec["leaseTransitions"], 0);
    assert_ne!(spec["renewTime"], spec["acquireTime"]);
    first.abort();
    second.abort();
    cluster.stop().await;
}

#[tokio::test]
async fn a_leader_that_is_stopped_lets_the_next_one_lead_before_its_lease_expires() {
    let cluster = Cluster::start().await;
    let leading = Arc::new(AtomicUsize::new(0));
    let stop = Arc::new(tokio::sync::Notify::new());
    let stopped = stop.clone();
    let first = candidate_until(&cluster, "first", &leading, async move { stopped.notified().await });
    cluster
        .until("a leader", async || leading.load(Ordering::Relaxed) == 1)
        .await;
    let second = candidate(&cluster, "second", &leading);
    stop.notify_one();
    first.await.unwrap();
    let lease = cluster.get(&LEASE, "kube-system", "test").await.unwrap();
    assert_ne!(lease["spec"]["holderIdentity"], "first", "{lease}");
    cluster
        .until("the next leader", async || leading.load(Ordering::Relaxed) == 2)
        .await;
    second.abort();
    cluster.stop().await;
}
