//! Pods that have a node but wait for a plugin's permission to be bound to it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::pod::Pod;
use crate::queued_pod::QueuedPod;
use crate::rejection::Rejection;

/// No pod waits longer than this for permission, whatever the plugin asks for; upstream's limit.
const MAX_WAIT: Duration = Duration::from_secs(15 * 60);

#[derive(Default)]
pub struct WaitingPods {
    by_uid: HashMap<String, Waiting>,
    /// Those about which there is nothing left to wait for.
    settled: Vec<Settled>,
}

struct Waiting {
    queued: QueuedPod,
    node: String,
    /// The plugins that have not said yes, and until when each is waited for and since how long.
    pending: BTreeMap<&'static str, (Instant, Duration)>,
}

/// How a wait ended.
pub struct Settled {
    pub queued: QueuedPod,
    pub node: String,
    pub outcome: Result<(), Rejection>,
}

impl WaitingPods {
    /// Keeps the pod until every one of the plugins has allowed it.
    pub(crate) fn add(&mut self, queued: QueuedPod, node: &str, plugins: &[(&'static str, Duration)], now: Instant) {
        let until = |wait: &Duration| {
            let wait = (*wait).min(MAX_WAIT);
            (now + wait, wait)
        };
        let pending = plugins.iter().map(|(plugin, wait)| (*plugin, until(wait))).collect();
        let uid = queued.pod.uid().to_owned();
        let node = node.to_owned();
        self.by_uid.insert(uid, Waiting { queued, node, pending });
    }

    /// The plugin has nothing more against the pod. It is bound when no other plugin has either.
    pub fn allow(&mut self, uid: &str, plugin: &'static str) {
        let Some(waiting) = self.by_uid.get_mut(uid) else {
            return;
        };
        waiting.pending.remove(plugin);
        if waiting.pending.is_empty() {
            self.settle(uid, Ok(()));
        }
    }

    /// The pod will not be bound, whatever other plugins say. Returns whether it was waiting.
    pub fn reject(&mut self, uid: &str, rejection: Rejection) -> bool {
        self.settle(uid, Err(rejection))
    }

    /// The pods that wait, and the nodes they would go to.
    pub fn iter(&self) -> impl Iterator<Item = (&Pod, &str)> {
        let waiting = self.by_uid.values();
        waiting.map(|waiting| (&*waiting.queued.pod, waiting.node.as_str()))
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// The pod is gone: nobody needs to hear how its wait ended.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.by_uid.remove(uid);
        self.settled.retain(|settled| settled.queued.pod.uid() != uid);
    }

    /// The next pod whose wait has ended, be it by time.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Settled> {
        let late = self.by_uid.iter().find_map(|(uid, waiting)| {
            let late = waiting.pending.iter().find(|(_, (until, _))| *until <= now);
            late.map(|(plugin, (_, wait))| (uid.clone(), *plugin, *wait))
        });
        if let Some((uid, plugin, wait)) = late {
            let reason = format!("rejected due to timeout after waiting {wait:?} at plugin {plugin}");
            self.settle(&uid, Err(Rejection::new(plugin, reason)));
        }
        self.settled.pop()
    }

    /// When a wait ends by time.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let pending = self.by_uid.values().flat_map(|waiting| waiting.pending.values());
        pending.map(|(until, _)| *until).min()
    }

    fn settle(&mut self, uid: &str, outcome: Result<(), Rejection>) -> bool {
        let Some(waiting) = self.by_uid.remove(uid) else {
            return false;
        };
        let (queued, node) = (waiting.queued, waiting.node);
        self.settled.push(Settled { queued, node, outcome });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::SchedulingQueue;
    use std::sync::Arc;

    const SECOND: Duration = Duration::from_secs(1);

    fn queued(uid: &str, now: Instant) -> QueuedPod {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.to_owned();
        let mut queue = SchedulingQueue::default();
        queue.add(Arc::new(pod), false, now);
        queue.pop(now).unwrap()
    }

    #[test]
    fn every_plugin_must_allow_and_one_is_enough_to_reject() {
        let (mut waiting, now) = (WaitingPods::default(), Instant::now());
        waiting.add(queued("a", now), "one", &[("Gang", SECOND), ("Quota", SECOND)], now);
        waiting.allow("a", "Gang");
        assert!(waiting.next(now).is_none());
        waiting.allow("a", "Quota");
        let settled = waiting.next(now).unwrap();
        assert_eq!((settled.node.as_str(), settled.outcome), ("one", Ok(())));

        waiting.add(queued("b", now), "one", &[("Gang", SECOND), ("Quota", SECOND)], now);
        assert!(waiting.reject("b", Rejection::new("Gang", "no")));
        assert_eq!(waiting.next(now).unwrap().outcome, Err(Rejection::new("Gang", "no")));
        assert!(!waiting.reject("b", Rejection::new("Gang", "no")));
    }

    #[test]
    fn waits_end_by_time() {
        let (mut waiting, now) = (WaitingPods::default(), Instant::now());
        waiting.add(
            queued("a", now),
            "one",
            &[("Gang", 3600 * SECOND), ("Quota", 2 * SECOND)],
            now,
        );
        assert_eq!(waiting.wake_at(), Some(now + 2 * SECOND));
        assert!(waiting.next(now + SECOND).is_none());
        let outcome = waiting.next(now + 2 * SECOND).unwrap().outcome.unwrap_err();
        assert_eq!(
            outcome.reasons,
            ["rejected due to timeout after waiting 2s at plugin Quota"]
        );

        waiting.add(queued("b", now), "one", &[("Gang", 3600 * SECOND)], now);
        assert_eq!(waiting.wake_at(), Some(now + MAX_WAIT));
        waiting.remove("b");
        assert!(waiting.next(now + MAX_WAIT).is_none());
    }
}
