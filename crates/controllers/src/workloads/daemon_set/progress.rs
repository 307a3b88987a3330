//! The status of a DaemonSet.

use api::Value;
use serde_json::json;

use super::Planner;

impl Planner<'_> {
    pub fn progress(&self) -> Value {
        let (mut desired, mut current, mut misplaced) = (0, 0, 0);
        let (mut ready, mut available, mut updated) = (0, 0, 0);
        for (node, fit) in &self.fits {
            let first = self.pods_on(&node.metadata.name).first();
            desired += i64::from(fit.runs);
            match first {
                Some(pod) if fit.runs => {
                    current += 1;
                    ready += i64::from(pod.is_ready());
                    available += i64::from(self.is_available(pod));
                    updated += i64::from(self.is_current(pod));
                }
                Some(_) => misplaced += 1,
                None => {}
            }
        }
        json!({
            "desiredNumberScheduled": desired,
            "currentNumberScheduled": current,
            "numberMisscheduled": misplaced,
            "numberReady": ready,
            "numberAvailable": available,
            "numberUnavailable": desired - available,
            "updatedNumberScheduled": updated,
            "observedGeneration": self.set.metadata.generation,
        })
    }
}
