//! The status of a Deployment: counts, and conditions as `kubectl rollout status` reads them.

use std::time::Duration;

use api::{Fields, Value};
use client::when::Moment;
use serde_json::json;

use super::Planner;
use crate::conditions::{self, Condition};

const PROGRESSING: &str = "Progressing";
const NEW_AVAILABLE: &str = "NewReplicaSetAvailable";
const DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";

impl Planner<'_> {
    /// A pause stops the clock of the deadline, which is visible as a condition.
    pub fn note_pause(&mut self) {
        if self.deployment.progress_deadline_seconds().is_none() {
            return;
        }
        let reason = self.progressing_reason();
        let (paused, noted) = (self.deployment.spec.paused, reason == "DeploymentPaused");
        if reason == DEADLINE_EXCEEDED || paused == noted {
            return;
        }
        let (reason, message) = if paused {
            ("DeploymentPaused", "Deployment is paused")
        } else {
            ("DeploymentResumed", "Deployment is resumed")
        };
        self.set_condition(PROGRESSING, "Unknown", reason, message.to_owned());
    }

    /// The counts and the Available condition.
    pub fn status(&mut self) -> Value {
        let deployment = self.deployment;
        let sum = |count: fn(&super::sets::SetStatus) -> i64| {
            let counts = self.sets.all().iter().map(|set| count(&set.status));
            counts.sum::<i64>()
        };
        let available = sum(|status| status.available);
        let (replicas, ready) = (sum(|status| status.replicas), sum(|status| status.ready));
        let terminating = sum(|status| status.terminating);
        let updated = self.sets.current().map_or(0, |set| set.status.replicas);
        let unavailable = (self.sets.total() - available).max(0);
        let (status, reason, message) = if available >= deployment.replicas() - deployment.max_unavailable() {
            (
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            (
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        };
        self.set_condition("Available", status, reason, message.to_owned());
        json!({
            "observedGeneration": deployment.metadata.generation,
            "replicas": replicas,
            "updatedReplicas": updated,
            "readyReplicas": ready,
            "availableReplicas": available,
            "unavailableReplicas": unavailable,
            "terminatingReplicas": terminating,
            "collisionCount": self.collisions,
            "conditions": self.conditions,
        })
    }

    /// The status with what it says about the rollout's progress.
    pub fn progressed_status(&mut self) -> Value {
        let mut status = self.status();
        if self.deployment.progress_deadline_seconds().is_none() {
            conditions::remove(&mut self.conditions, PROGRESSING);
        } else {
            self.note_progress(&status);
        }
        self.copy_replica_failure();
        status["conditions"] = self.conditions.clone().into();
        status
    }

    /// When to look again whether the deadline has passed.
    pub fn deadline_left(&self, status: &Value) -> Option<Duration> {
        let deadline = self.deployment.progress_deadline_seconds()?;
        let condition = conditions::find(&self.conditions, PROGRESSING)?;
        if self.is_complete(status) || matches!(condition.text("reason"), NEW_AVAILABLE | DEADLINE_EXCEEDED) {
            return None;
        }
        let since = Moment::parse(condition.text("lastUpdateTime"))?;
        let ends = since.plus(Duration::from_secs(deadline.unsigned_abs()));
        Some(ends.since(self.now) + Duration::from_secs(1))
    }

    fn note_progress(&mut self, status: &Value) {
        // A set that the plan creates is noted before anything else can be said of it.
        let subject = match self.sets.current() {
            Some(set) => format!("ReplicaSet {:?}", set.name),
            None => format!("Deployment {:?}", self.deployment.metadata.name),
        };
        let current = self.sets.current();
        if let Some(set) = current.filter(|set| set.source().is_none()) {
            let message = format!("Created new replica set {:?}", set.name);
            return self.touch_condition("NewReplicaSetCreated", message);
        }
        if let Some(set) = current
            && conditions::find(&self.conditions, PROGRESSING).is_none()
        {
            let message = format!("Found new replica set {:?}", set.name);
            self.set_condition(PROGRESSING, "True", "FoundNewReplicaSet", message);
        }
        let settled =
            status.number("replicas") == status.number("updatedReplicas") && self.progressing_reason() == NEW_AVAILABLE;
        if settled {
            return;
        }
        if self.is_complete(status) {
            let message = format!("{subject} has successfully progressed.");
            self.set_condition(PROGRESSING, "True", NEW_AVAILABLE, message);
        } else if is_progress(&self.deployment.status, status) {
            self.touch_condition("ReplicaSetUpdated", format!("{subject} is progressing."));
        } else if self.is_timed_out() {
            let message = format!("{subject} has timed out progressing.");
            self.set_condition(PROGRESSING, "False", DEADLINE_EXCEEDED, message);
        }
    }

    fn is_complete(&self, status: &Value) -> bool {
        let wanted = self.deployment.replicas();
        ["updatedReplicas", "replicas", "availableReplicas"]
            .iter()
            .all(|count| status.number(count) == wanted)
            // A set that is about to be created has yet to replace anything.
            && self.sets.current().is_some_and(|set| set.source().is_some())
    }

    fn is_timed_out(&self) -> bool {
        let (Some(deadline), Some(condition)) = (
            self.deployment.progress_deadline_seconds(),
            conditions::find(&self.conditions, PROGRESSING),
        ) else {
            return false;
        };
        match condition.text("reason") {
            NEW_AVAILABLE => false,
            DEADLINE_EXCEEDED => true,
            _ => Moment::parse(condition.text("lastUpdateTime"))
                .is_some_and(|since| self.now.since(since).as_secs() > deadline.unsigned_abs()),
        }
    }

    /// A ReplicaSet that cannot create its pods explains why on the Deployment too.
    fn copy_replica_failure(&mut self) {
        let failure = |conditions: &[Value]| conditions::find(conditions, "ReplicaFailure").cloned();
        let current = self.sets.current().and_then(|set| failure(&set.status.conditions));
        let found = current.or_else(|| self.sets.old().find_map(|set| failure(&set.status.conditions)));
        match found {
            Some(failure) => {
                let (status, reason) = (failure.text("status"), failure.text("reason"));
                self.set_condition("ReplicaFailure", status, reason, failure.text("message").to_owned());
            }
            None => conditions::remove(&mut self.conditions, "ReplicaFailure"),
        }
    }

    fn progressing_reason(&self) -> String {
        let condition = conditions::find(&self.conditions, PROGRESSING);
        condition.map_or(String::new(), |condition| condition.text("reason").to_owned())
    }

    /// Sets a condition unless it says the same already.
    fn set_condition(&mut self, kind: &str, status: &str, reason: &str, message: String) {
        let wanted = Condition {
            kind,
            status,
            reason,
            message,
        };
        if !conditions::says(&self.conditions, &wanted) {
            let condition = conditions::set(&mut self.conditions, &wanted, self.now);
            condition["lastUpdateTime"] = self.now.to_time().into();
        }
    }

    /// Says that the rollout moves, and restarts the clock of its deadline.
    fn touch_condition(&mut self, reason: &str, message: String) {
        let wanted = Condition {
            kind: PROGRESSING,
            status: "True",
            reason,
            message,
        };
        let condition = conditions::set(&mut self.conditions, &wanted, self.now);
        condition["lastUpdateTime"] = self.now.to_time().into();
    }
}

/// Whether more pods are updated, ready or available, or fewer are old, than the status so far says.
fn is_progress(before: &Value, after: &Value) -> bool {
    let old = |status: &Value| status.number("replicas") - status.number("updatedReplicas");
    let more = |count: &str| after.number(count) > before.number(count);
    more("updatedReplicas") || old(after) < old(before) || more("readyReplicas") || more("availableReplicas")
}
