//! Ends the access of nodes that were deleted. Certificates cannot be taken back, so those that were issued before the
//! Node was deleted are refused from then on; who joins again gets a newer one.
//!
//! When each Node was deleted is kept in a ConfigMap for as long as such a certificate may be valid.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use admission::Lookup;
use api::kinds::config_map::CONFIG_MAP;
use api::{Error, Value};
use parking_lot::Mutex;
use registry::{Registry, Scope, Seed, WriteOptions};
use schema::time::Instant;
use serde_json::json;
use tokio::sync::Notify;
use tracing::warn;

use super::Gate;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "karve-deleted-nodes";
/// Signers date certificates back by this much, because clocks differ.
const BACKDATE: i64 = 300;
/// No certificate of a node is valid for longer.
const LONGEST_LIFE: i64 = 366 * 24 * 3600;
/// A ConfigMap has bounds; of more nodes than this the ones that were deleted first are forgotten.
const MAX_NODES: usize = 10_000;
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct DeletedNodes {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    present: HashSet<String>,
    /// When nodes were deleted, in seconds since the epoch.
    deleted: BTreeMap<String, i64>,
}

impl DeletedNodes {
    pub fn appeared(&self, name: &str) {
        let mut state = self.state.lock();
        if !state.present.contains(name) {
            state.present.insert(name.to_owned());
        }
    }

    pub fn disappeared(&self, name: &str, now: i64) {
        let mut state = self.state.lock();
        state.present.remove(name);
        state.deleted.insert(name.to_owned(), now);
        self.changed.notify_one();
    }

    /// Takes in all nodes that there are: those that are missing were deleted while nobody looked.
    pub fn replace(&self, present: HashSet<String>, now: i64) {
        let mut state = self.state.lock();
        let missing: Vec<String> = state.present.difference(&present).cloned().collect();
        state.present = present;
        for name in missing {
            state.deleted.insert(name, now);
            self.changed.notify_one();
        }
    }

    /// Whether a node's certificate ended with its Node. `issued` is when it begins to be valid.
    pub fn refuses(&self, name: &str, issued: i64) -> bool {
        let state = self.state.lock();
        state.deleted.get(name).is_some_and(|at| issued + BACKDATE <= *at)
    }

    /// Takes in what was kept.
    fn remember(&self, map: &Value) {
        let mut state = self.state.lock();
        for (name, at) in map["data"].as_object().into_iter().flatten() {
            let at = at.as_str().and_then(|text| schema::time::parse(text).ok());
            if let Some(at) = at {
                let known = state.deleted.entry(name.clone()).or_insert(at.seconds);
                *known = at.seconds.max(*known);
            }
        }
    }

    /// What is worth keeping.
    fn data(&self, now: i64) -> Value {
        let mut state = self.state.lock();
        state.deleted.retain(|_, at| now - *at < LONGEST_LIFE);
        while state.deleted.len() > MAX_NODES {
            let oldest = state
                .deleted
                .iter()
                .min_by_key(|(_, at)| **at)
                .map(|(name, _)| name.clone());
            oldest.and_then(|name| state.deleted.remove(&name));
        }
        let time = |at: &i64| schema::time::format(Instant { seconds: *at, nanos: 0 });
        state
            .deleted
            .iter()
            .map(|(name, at)| (name.clone(), time(at)))
            .collect()
    }
}

impl Gate {
    /// Takes in what is kept of nodes that were deleted before this server started.
    pub(super) fn load_deleted_nodes(&self, registry: &Registry) {
        if let (Some(nodes), Some(map)) = (&self.deleted_nodes, registry.lookup().get(&CONFIG_MAP, NAMESPACE, NAME)) {
            nodes.remember(&map);
        }
    }

    /// Whether the certificate of this node ended with its Node, by all that watchers can have heard of by now.
    pub(super) fn is_deleted_node(&self, registry: &Registry, name: &str, issued: i64) -> bool {
        let Some(nodes) = &self.deleted_nodes else { return false };
        self.catch_up_nodes(registry);
        nodes.refuses(name, issued)
    }
}

/// Keeps what must outlive this process, for ever.
pub async fn keep_deleted_nodes(registry: Arc<Registry>, gate: Arc<Gate>) {
    let Some(nodes) = &gate.deleted_nodes else { return };
    loop {
        nodes.changed.notified().await;
        while let Err(error) = keep(&registry, nodes).await {
            warn!(%error, "Failed to record which nodes were deleted; after a restart their certificates would be accepted again");
            tokio::time::sleep(AGAIN).await;
        }
    }
}

async fn keep(registry: &Registry, nodes: &DeletedNodes) -> Result<(), Error> {
    let map = json!({"metadata": {"name": NAME, "namespace": NAMESPACE}});
    registry.seed(vec![Seed::new(&CONFIG_MAP, map)]).await?;
    let served = registry.served(&CONFIG_MAP)?.clone();
    let mut change = |current: &Value| {
        // Another server on the same store may know of others.
        nodes.remember(current);
        let mut changed = current.clone();
        changed["data"] = nodes.data(schema::time::now().seconds);
        Ok(changed)
    };
    let options = WriteOptions::own();
    let written = registry.update(&served, NAMESPACE, NAME, Scope::Main, &options, &mut change);
    written.await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_800_000_000;

    #[test]
    fn a_certificate_that_is_older_than_the_deletion_is_refused() {
        let nodes = DeletedNodes::default();
        nodes.appeared("one");
        assert!(!nodes.refuses("one", NOON - 1000));
        nodes.disappeared("one", NOON);
        assert!(nodes.refuses("one", NOON - 1000));
        assert!(nodes.refuses("one", NOON - BACKDATE), "in the same second");
        assert!(!nodes.refuses("one", NOON - BACKDATE + 1), "it has joined again");
        assert!(!nodes.refuses("two", 0), "nobody else is concerned");
        // It may be there again, by the hand of somebody else: its old certificate does not come back with it.
        nodes.appeared("one");
        assert!(nodes.refuses("one", NOON - 1000));
    }

    #[test]
    fn deletions_that_nobody_saw_count_and_absent_nodes_do_not() {
        let nodes = DeletedNodes::default();
        nodes.replace(HashSet::from(["one".to_owned(), "two".to_owned()]), NOON);
        assert!(!nodes.refuses("one", 0) && !nodes.refuses("three", 0));
        nodes.replace(HashSet::from(["two".to_owned()]), NOON);
        assert!(nodes.refuses("one", 0) && !nodes.refuses("two", 0));
    }

    #[test]
    fn what_is_kept_comes_back_until_no_certificate_can_be_valid() {
        let nodes = DeletedNodes::default();
        nodes.disappeared("one", NOON);
        nodes.disappeared("two", NOON - LONGEST_LIFE);
        let data = nodes.data(NOON + 10);
        assert_eq!(data, json!({"one": "2027-01-15T08:00:00Z"}));
        let again = DeletedNodes::default();
        again.remember(&json!({ "data": data }));
        assert!(again.refuses("one", NOON - 1000));
        again.remember(&json!({"data": {"one": "2020-01-01T00:00:00Z", "two": 7, "three": "soon"}}));
        assert!(again.refuses("one", NOON - 1000), "an older record takes nothing back");
        assert!(!again.refuses("three", 0));
    }
}
