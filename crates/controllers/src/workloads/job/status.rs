//! The status of a job.

use std::sync::Arc;

use api::kinds::job::JOB;
use api::{Fields, Value};
use client::when::Moment;
use client::{EventType, ObjectReference};
use serde_json::{Map, json};

use super::model::{Job, is_tracked};
use super::tally::Tally;
use super::tracking::{Tracking, untrack};
use super::verdict::Verdict;
use crate::conditions::{self, Condition};
use crate::model::Pod;
use crate::plan::{Action, Event, Patch, Plan};

/// Numbers and texts whose zero the API leaves out.
const OMITTED_WHEN_ZERO: [&str; 4] = ["active", "succeeded", "failed", "completedIndexes"];

/// Why jobs fail, as their conditions and events say.
const FAILURES: [&str; 5] = [
    "PodFailurePolicy",
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "MaxFailedIndexesExceeded",
    "FailedIndexes",
];

/// Writes the next status, or, when nothing in it is left to be written first, takes the finalizers off what it counts.
pub fn settle(
    job: &Job,
    tally: &Tally,
    pods: &[Arc<Pod>],
    (verdict, tracking): (Option<&Verdict>, &Tracking),
    now: Moment,
    plan: &mut Plan,
) {
    let mut conditions = job.status.list("conditions").to_vec();
    let mut next = counters(job, tally, tracking);
    let is_settled = is_recorded(job, &next) && verdict.is_none_or(|verdict| job.holds(verdict.interim()));
    if is_settled {
        plan.actions.extend(tracking.counted.iter().map(|pod| untrack(pod)));
    }
    if !job.status.has("startTime") && !job.spec.suspend {
        next["startTime"] = now.to_time().into();
    }
    match verdict {
        Some(verdict) => {
            if !job.holds(verdict.interim()) {
                set(&mut conditions, verdict.interim(), verdict, now);
            }
            let is_over = job.holds(verdict.interim())
                && tally.active.is_empty()
                && tally.terminating == 0
                && !pods.iter().any(|pod| is_tracked(pod));
            if is_over {
                finish(job, verdict, &mut conditions, &mut next, now, plan);
            }
        }
        None if !job.metadata.is_deleting() => suspend(job, &mut conditions, &mut next, now, plan),
        None => {}
    }
    next["conditions"] = conditions.into();
    plan.status = patch(job, next);
}

fn counters(job: &Job, tally: &Tally, tracking: &Tracking) -> Value {
    let mut next = json!({
        "active": tally.active.len(),
        "ready": tally.ready,
        "terminating": tally.terminating,
        "succeeded": tracking.succeeded,
        "failed": tracking.failed,
        "uncountedTerminatedPods": {},
    });
    for (field, uids) in [
        ("succeeded", &tracking.uncounted_succeeded),
        ("failed", &tracking.uncounted_failed),
    ] {
        if !uids.is_empty() {
            next["uncountedTerminatedPods"][field] = json!(uids);
        }
    }
    if job.is_indexed() {
        next["completedIndexes"] = tally.completed.to_string().into();
        if let Some(failed) = &tally.failed_indexes {
            next["failedIndexes"] = failed.to_string().into();
        }
    }
    next
}

/// Whether the status already says all that must be known before pods lose their finalizers.
fn is_recorded(job: &Job, next: &Value) -> bool {
    ["uncountedTerminatedPods", "completedIndexes", "failedIndexes"]
        .iter()
        .all(|field| is_same(field, &job.status[*field], &next[*field]))
}

fn set(conditions: &mut Vec<Value>, kind: &str, verdict: &Verdict, now: Moment) {
    let condition = Condition {
        kind,
        status: "True",
        reason: &verdict.reason,
        message: verdict.message.clone(),
    };
    conditions::set(conditions, &condition, now)["lastProbeTime"] = now.to_time().into();
}

fn finish(job: &Job, verdict: &Verdict, conditions: &mut Vec<Value>, next: &mut Value, now: Moment, plan: &mut Plan) {
    set(conditions, verdict.terminal(), verdict, now);
    if !verdict.succeeds {
        let reason = FAILURES.iter().find(|reason| **reason == verdict.reason);
        let reason = reason.copied().unwrap_or("Failed");
        plan.actions
            .push(event(job, EventType::Warning, reason, &verdict.message));
        return;
    }
    next["completionTime"] = now.to_time().into();
    if job
        .spec
        .completions
        .is_some_and(|wanted| next.number("succeeded") > wanted)
    {
        let message = "Too many succeeded pods running after completion count reached";
        plan.actions
            .push(event(job, EventType::Warning, "TooManySucceededPods", message));
    }
    plan.actions
        .push(event(job, EventType::Normal, "Completed", "Job completed"));
}

/// The clock of a job starts anew when it is resumed.
fn suspend(job: &Job, conditions: &mut Vec<Value>, next: &mut Value, now: Moment, plan: &mut Plan) {
    let was = job.holds("Suspended");
    let (status, reason, message, told, start) = match (was, job.spec.suspend) {
        (false, true) => ("True", "JobSuspended", "Job suspended", "Suspended", Value::Null),
        (true, false) => ("False", "JobResumed", "Job resumed", "Resumed", now.to_time().into()),
        _ => return,
    };
    let condition = Condition {
        kind: "Suspended",
        status,
        reason,
        message: message.to_owned(),
    };
    conditions::set(conditions, &condition, now)["lastProbeTime"] = now.to_time().into();
    next["startTime"] = start;
    plan.actions.push(event(job, EventType::Normal, told, message));
}

fn event(job: &Job, kind: EventType, reason: &'static str, message: &str) -> Action {
    Action::Event(Event {
        about: ObjectReference::new(&JOB, &job.metadata),
        kind,
        reason,
        message: message.to_owned(),
    })
}

/// Only what changes. Unlike most counts, `ready` and `terminating` are there even when they are zero.
fn patch(job: &Job, next: Value) -> Option<Patch> {
    let Value::Object(next) = next else { return None };
    let mut changes = Map::new();
    for (field, value) in next {
        let known = &job.status[field.as_str()];
        if !is_same(&field, known, &value) {
            changes.insert(field, value);
        }
    }
    if let Some(Value::Object(lists)) = changes.get_mut("uncountedTerminatedPods") {
        for list in ["succeeded", "failed"] {
            lists.entry(list).or_insert(Value::Null);
        }
    }
    if changes.is_empty() {
        return None;
    }
    let mut patch = Patch::new(&JOB, &job.metadata, json!({"status": changes}))
        .at_revision(&job.metadata)
        .by_update();
    patch.subresource = "status";
    Some(patch)
}

fn is_same(field: &str, known: &Value, next: &Value) -> bool {
    let is_zero = |value: &Value| value.is_null() || *value == 0 || *value == "";
    known == next
        || (OMITTED_WHEN_ZERO.contains(&field) && is_zero(known) && is_zero(next))
        || (field == "conditions" && known.is_null() && next.as_array().is_some_and(Vec::is_empty))
}
