//! What a job's policies make of its pods: which failures end the job or an index, and which successes are enough.

use super::indexes::Indexes;
use super::model::{ExitCodes, FailureRule, Job};
use crate::model::{ContainerStatus, Pod};

/// What a failed pod means for its job.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Towards the limits, as every failure does when there is no policy.
    Counts,
    Ignored,
    FailsIndex,
    /// With the message for the job's condition.
    FailsJob(String),
}

/// The first rule that matches decides.
pub fn failure(job: &Job, pod: &Pod) -> Failure {
    let rules = job.spec.pod_failure_policy.iter().flat_map(|policy| &policy.rules);
    for (position, rule) in rules.enumerate() {
        let Some(found) = matched(rule, pod) else { continue };
        return match rule.action.as_str() {
            "Ignore" => Failure::Ignored,
            "FailIndex" => Failure::FailsIndex,
            "FailJob" => Failure::FailsJob(format!("{found} matching FailJob rule at index {position}")),
            _ => Failure::Counts,
        };
    }
    Failure::Counts
}

/// Says what about the pod the rule matches.
fn matched(rule: &FailureRule, pod: &Pod) -> Option<String> {
    let (namespace, name) = (&pod.metadata.namespace, &pod.metadata.name);
    if let Some(codes) = &rule.on_exit_codes {
        let statuses = pod.status.container_statuses.iter();
        let statuses = statuses.chain(&pod.status.init_container_statuses);
        let (status, code) = statuses
            .filter_map(|status| Some((status, exit_code(codes, status)?)))
            .next()?;
        let container = &status.name;
        return Some(format!(
            "Container {container} for pod {namespace}/{name} failed with exit code {code}"
        ));
    }
    let conditions = pod.status.conditions.iter();
    let condition = conditions.filter(|condition| {
        let mut patterns = rule.on_pod_conditions.iter();
        patterns.any(|pattern| (&pattern.kind, &pattern.status) == (&condition.kind, &condition.status))
    });
    let kind = &condition.into_iter().next()?.kind;
    Some(format!("Pod {namespace}/{name} has condition {kind}"))
}

/// The container's exit code if the requirement names it; success is never matched.
fn exit_code(codes: &ExitCodes, status: &ContainerStatus) -> Option<i64> {
    let code = status.state.terminated.as_ref()?.exit_code;
    let named = codes.container_name.as_ref().is_none_or(|name| *name == status.name);
    let listed = codes.values.contains(&code);
    let matches = match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    };
    (code != 0 && named && matches).then_some(code)
}

/// The position of the first rule that the succeeded indexes fulfil.
pub fn success(job: &Job, succeeded: &Indexes) -> Option<usize> {
    let policy = job.spec.success_policy.as_ref()?;
    if succeeded.is_empty() {
        return None;
    }
    policy.rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(text) => {
            let wanted = Indexes::parse(text, job.end());
            let shared = wanted.shared(succeeded);
            !wanted.is_empty() && (shared == wanted.len() || rule.succeeded_count.is_some_and(|count| shared >= count))
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.len() >= count),
    })
}
