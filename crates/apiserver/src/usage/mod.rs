//! What nodes and containers use of CPU and memory: the table behind `metrics.k8s.io`.
//!
//! Kubelets count the CPU time that was used since a start, so a rate needs two readings. `exposition` reads the page of a
//! kubelet, `series` makes rates of readings, and the table here keeps the last two of each. The table is filled by
//! `resource_metrics` while somebody asks for it.

mod exposition;
mod series;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

pub use exposition::Sample;
pub use series::{NodeFigures, Usage};

/// Figures of a kubelet that has not answered for this long are not told any more.
const STALE: Duration = Duration::from_secs(60);
/// Kubelets are not asked any more when nobody has asked for figures for this long.
const IDLE: Duration = Duration::from_secs(300);
/// How long a request waits for the first rates. Later ones find them in the table.
const WARM_UP_PATIENCE: Duration = Duration::from_secs(6);
/// The rounds of readings that a rate needs.
const ROUNDS_FOR_RATES: u32 = 2;

pub struct UsageTable {
    nodes: Mutex<HashMap<String, Arc<NodeFigures>>>,
    /// The nodes whose kubelets did not answer the last time.
    failing: Mutex<HashSet<String>>,
    asked: Mutex<Option<Instant>>,
    wanted: Notify,
    /// The rounds of readings since figures were first wanted.
    rounds: watch::Sender<u32>,
}

impl Default for UsageTable {
    fn default() -> UsageTable {
        UsageTable {
            nodes: Mutex::default(),
            failing: Mutex::default(),
            asked: Mutex::default(),
            wanted: Notify::new(),
            rounds: watch::channel(0).0,
        }
    }
}

impl UsageTable {
    /// Says that figures are wanted, and waits a little if there are no rates yet.
    pub async fn want(&self) {
        *self.asked.lock() = Some(Instant::now());
        self.wanted.notify_one();
        let mut rounds = self.rounds.subscribe();
        let warm = rounds.wait_for(|rounds| *rounds >= ROUNDS_FOR_RATES);
        // Whoever gives up is answered from what is there.
        let _ = tokio::time::timeout(WARM_UP_PATIENCE, warm).await;
    }

    /// Done at once while figures are wanted, and when they are wanted again otherwise.
    pub async fn wanted(&self) {
        let is_wanted = || self.asked.lock().is_some_and(|asked| asked.elapsed() < IDLE);
        if is_wanted() {
            return;
        }
        // Rates over the time when nobody asked would tell nothing of the present.
        self.nodes.lock().clear();
        self.rounds.send_replace(0);
        while !is_wanted() {
            self.wanted.notified().await;
        }
    }

    /// Whether there are enough readings for rates, after one more round of them.
    pub fn finish_round(&self) -> bool {
        self.rounds.send_modify(|rounds| *rounds = rounds.saturating_add(1));
        *self.rounds.borrow() >= ROUNDS_FOR_RATES
    }

    /// Forgets the nodes that are gone.
    pub fn retain(&self, names: &BTreeSet<String>) {
        self.nodes.lock().retain(|name, _| names.contains(name));
        self.failing.lock().retain(|name| names.contains(name));
    }

    pub fn read(&self, node: &str, sample: Sample) {
        self.failing.lock().remove(node);
        let mut nodes = self.nodes.lock();
        let next = NodeFigures::next(nodes.get(node).map(Arc::as_ref), sample, Instant::now());
        nodes.insert(node.to_owned(), Arc::new(next));
    }

    /// Notes that a kubelet did not answer; whether that is new.
    pub fn failed(&self, node: &str) -> bool {
        self.failing.lock().insert(node.to_owned())
    }

    /// What is known of a node and of its pods, and of nobody else's.
    pub fn of_node(&self, node: &str) -> Option<Arc<NodeFigures>> {
        let found = self.nodes.lock().get(node).cloned();
        found.filter(|figures| figures.read.elapsed() < STALE)
    }
}

#[cfg(test)]
mod tests;
