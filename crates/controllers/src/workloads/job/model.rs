//! What the controller reads of a job and of its pods.

use api::{Fields, LabelSelector, ObjectMeta, Value};
use client::when::Moment;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::indexes::Indexes;
use crate::conditions;
use crate::model::{Pod, with_metadata};

/// Pods carry it until the job's status has counted them.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
const INDEX_IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The value of `managedBy` that means this controller.
const OWN_NAME: &str = "kubernetes.io/job-controller";

with_metadata!(Job);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Job {
    pub metadata: ObjectMeta,
    pub spec: JobSpec,
    pub status: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct JobSpec {
    pub parallelism: Option<i64>,
    pub completions: Option<i64>,
    pub completion_mode: String,
    pub backoff_limit: Option<i64>,
    pub backoff_limit_per_index: Option<i64>,
    pub max_failed_indexes: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    pub ttl_seconds_after_finished: Option<i64>,
    pub suspend: bool,
    pub managed_by: Option<String>,
    pub pod_replacement_policy: String,
    pub pod_failure_policy: Option<PodFailurePolicy>,
    pub success_policy: Option<SuccessPolicy>,
    pub selector: Option<LabelSelector>,
    pub template: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodFailurePolicy {
    pub rules: Vec<FailureRule>,
}

/// A rule has either of the two requirements.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FailureRule {
    pub action: String,
    pub on_exit_codes: Option<ExitCodes>,
    pub on_pod_conditions: Vec<PodConditionPattern>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ExitCodes {
    pub container_name: Option<String>,
    pub operator: String,
    pub values: Vec<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodConditionPattern {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    pub rules: Vec<SuccessRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SuccessRule {
    pub succeeded_indexes: Option<String>,
    pub succeeded_count: Option<i64>,
}

impl Job {
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode == "Indexed"
    }

    /// How many indexes there are.
    pub fn end(&self) -> i64 {
        self.spec.completions.unwrap_or(0)
    }

    pub fn is_finished(&self) -> bool {
        self.holds("Complete") || self.holds("Failed")
    }

    /// Whether the status has this condition, and it is true.
    pub fn holds(&self, kind: &str) -> bool {
        let condition = conditions::find(self.status.list("conditions"), kind);
        condition.is_some_and(|condition| condition.text("status") == "True")
    }

    pub fn is_ours(&self) -> bool {
        self.spec.managed_by.as_deref().is_none_or(|name| name == OWN_NAME)
    }

    /// Pods that are being deleted are replaced only once they have really ended.
    pub fn replaces_only_failed(&self) -> bool {
        self.spec.pod_replacement_policy == "Failed" || self.spec.pod_failure_policy.is_some()
    }

    pub fn start_time(&self) -> Option<Moment> {
        Moment::parse(self.status.text("startTime"))
    }

    pub fn template(&self) -> Value {
        let text = self.spec.template.as_deref().map_or("null", RawValue::get);
        // The text was part of an object that parsed.
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn completed_indexes(&self) -> Indexes {
        Indexes::parse(self.status.text("completedIndexes"), self.end())
    }

    /// Whether the pod counts as failed. Deleted pods do too, unless a job waits until they have ended: a pod whose
    /// node is gone never reaches the phase.
    pub fn is_failed(&self, pod: &Pod) -> bool {
        match pod.status.phase.as_str() {
            "Failed" => true,
            "Succeeded" => false,
            _ => !self.replaces_only_failed() && pod.metadata.is_deleting(),
        }
    }

    /// Whether the pod may count: one of an indexed job needs an index that the job has.
    pub fn counts(&self, pod: &Pod) -> bool {
        !self.is_indexed() || index(pod).is_some_and(|index| index < self.end())
    }
}

pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING)
}

pub fn index(pod: &Pod) -> Option<i64> {
    let text = pod.metadata.annotations.get(COMPLETION_INDEX)?;
    text.parse().ok().filter(|index| *index >= 0)
}

/// How many pods of this pod's index have failed before it, those that a policy ignores apart.
pub fn failures_before(pod: &Pod) -> (i64, i64) {
    let number = |annotation: &str| {
        let text = pod.metadata.annotations.get(annotation);
        let number = text.and_then(|text| text.parse::<i32>().ok());
        number.filter(|number| *number >= 0).map_or(0, i64::from)
    };
    (number(INDEX_FAILURES), number(INDEX_IGNORED_FAILURES))
}

/// Notes on a new pod how many pods of its index failed before it.
pub fn note_failures(annotations: &mut Value, failures: i64, ignored: i64) {
    annotations.set(INDEX_FAILURES, failures.to_string());
    if ignored > 0 {
        annotations.set(INDEX_IGNORED_FAILURES, ignored.to_string());
    }
}
