use expect_test::{Expect, expect};

use super::*;
use crate::testing::{noon, object, objects};

const STARTED: &str = "startTime: '2026-01-01T11:50:00Z', ready: 0, terminating: 0, uncountedTerminatedPods: {}";

fn job(spec: &str, status: &str) -> String {
    format!(
        "
metadata: {{name: sums, namespace: default, uid: job-uid, resourceVersion: '7'}}
spec:
  selector: {{matchLabels: {{app: sums}}}}
  template: {{metadata: {{labels: {{app: sums}}}}, spec: {{containers: [{{name: main}}], restartPolicy: Never}}}}
  {spec}
status: {{{status}}}
"
    )
}

fn pod(name: &str, rest: &str) -> String {
    let finalizers = "finalizers: [batch.kubernetes.io/job-tracking]";
    pod_with(name, finalizers, rest)
}

fn pod_with(name: &str, metadata: &str, rest: &str) -> String {
    format!(
        "---
metadata:
  name: {name}
  namespace: default
  uid: {name}-uid
  resourceVersion: '5'
  labels: {{app: sums}}
  {metadata}
  ownerReferences: [{{apiVersion: batch/v1, kind: Job, name: sums, uid: job-uid, controller: true}}]
{rest}
"
    )
}

fn indexed(name: &str, index: i64, rest: &str) -> String {
    let metadata = format!(
        "finalizers: [batch.kubernetes.io/job-tracking]\n  annotations: {{batch.kubernetes.io/job-completion-index: '{index}'}}"
    );
    pod_with(name, &metadata, rest)
}

fn failed(code: i64) -> String {
    format!(
        "status: {{phase: Failed, containerStatuses: [{{name: main, state: {{terminated: {{exitCode: {code}, finishedAt: '2026-01-01T11:59:55Z'}}}}}}]}}"
    )
}

fn check(job: &str, pods: &[String], expected: Expect) {
    let candidates: Vec<Arc<Pod>> = objects(&format!("\n{}", pods.concat()));
    let tracked = candidates.iter().filter(|pod| is_tracked(pod)).cloned().collect();
    let job = (!job.is_empty()).then(|| object(job));
    let view = View {
        job,
        candidates,
        tracked,
    };
    expected.assert_eq(&plan(&view, noon()).to_string());
}

#[test]
fn pods_are_started_with_the_finalizer() {
    check(
        &job("completions: 5\n  parallelism: 1\n  backoffLimit: 6", ""),
        &[],
        expect![[r#"
            create pods in default: {"apiVersion":"v1","kind":"Pod","metadata":{"finalizers":["batch.kubernetes.io/job-tracking"],"generateName":"sums-","labels":{"app":"sums"},"ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"sums","uid":"job-uid"}]},"spec":{"containers":[{"name":"main"}],"restartPolicy":"Never"}}
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"ready":0,"startTime":"2026-01-01T12:00:00Z","terminating":0,"uncountedTerminatedPods":{"failed":null,"succeeded":null}}}
        "#]],
    );
}

#[test]
fn a_pod_is_named_then_released_then_counted() {
    let spec = "completions: 1\n  parallelism: 1\n  backoffLimit: 6";
    let succeeded = "status: {phase: Succeeded}";
    check(
        &job(spec, STARTED),
        &[pod("a", succeeded)],
        expect![[r#"
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached expected number of succeeded pods","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"}],"uncountedTerminatedPods":{"failed":null,"succeeded":["a-uid"]}}}
        "#]],
    );
    let met = "conditions: [{type: SuccessCriteriaMet, status: 'True', reason: CompletionsReached, message: Reached}]";
    let named = STARTED.replace("Pods: {}", "Pods: {succeeded: [a-uid]}");
    check(
        &job(spec, &format!("{named}, {met}")),
        &[pod("a", succeeded)],
        expect![[r#"
            patch pods default/a: {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
        "#]],
    );
    check(
        &job(spec, &format!("{named}, {met}")),
        &[pod_with("a", "", succeeded)],
        expect![[r#"
            event Normal Completed: Job completed
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"completionTime":"2026-01-01T12:00:00Z","conditions":[{"message":"Reached","reason":"CompletionsReached","status":"True","type":"SuccessCriteriaMet"},{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Reached","reason":"CompletionsReached","status":"True","type":"Complete"}],"succeeded":1,"uncountedTerminatedPods":{"failed":null,"succeeded":null}}}
        "#]],
    );
}

#[test]
fn failures_are_followed_by_pauses_and_end_at_the_limit() {
    let spec = "completions: 1\n  parallelism: 1\n  backoffLimit: 1";
    check(
        &job(spec, &format!("{STARTED}, failed: 1")),
        &[pod_with("a", "", &failed(1))],
        expect![[r#"
            again after 5s
        "#]],
    );
    check(
        &job(spec, &format!("{STARTED}, failed: 1")),
        &[pod("b", &failed(1)), pod("c", "status: {phase: Running}")],
        expect![[r#"
            delete pods default/c
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"active":1,"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has reached the specified backoff limit","reason":"BackoffLimitExceeded","status":"True","type":"FailureTarget"}],"uncountedTerminatedPods":{"failed":["b-uid"],"succeeded":null}}}
        "#]],
    );
}

#[test]
fn a_policy_ignores_failures_or_makes_them_final() {
    let rules = "podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}, {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: 'True'}]}]}";
    let spec = format!("completions: 1\n  parallelism: 1\n  backoffLimit: 0\n  {rules}");
    check(
        &job(&spec, STARTED),
        &[pod("a", &failed(42))],
        expect![[r#"
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Container main for pod default/a failed with exit code 42 matching FailJob rule at index 0","reason":"PodFailurePolicy","status":"True","type":"FailureTarget"}],"uncountedTerminatedPods":{"failed":["a-uid"],"succeeded":null}}}
        "#]],
    );
    check(
        &job(&spec, STARTED),
        &[pod(
            "a",
            "status: {phase: Failed, conditions: [{type: DisruptionTarget, status: 'True'}, {type: Ready, status: 'False', lastTransitionTime: '2026-01-01T11:59:00Z'}]}",
        )],
        expect![[r#"
            create pods in default: {"apiVersion":"v1","kind":"Pod","metadata":{"finalizers":["batch.kubernetes.io/job-tracking"],"generateName":"sums-","labels":{"app":"sums"},"ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"sums","uid":"job-uid"}]},"spec":{"containers":[{"name":"main"}],"restartPolicy":"Never"}}
            patch pods default/a: {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
        "#]],
    );
}

#[test]
fn indexed_pods_learn_their_index() {
    check(
        &job(
            "completions: 3\n  parallelism: 2\n  completionMode: Indexed\n  backoffLimit: 6",
            STARTED,
        ),
        &[
            indexed("a", 0, "status: {phase: Succeeded}"),
            indexed("b", 1, "status: {phase: Running}"),
        ],
        expect![[r#"
            create pods in default: {"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"batch.kubernetes.io/job-completion-index":"2"},"finalizers":["batch.kubernetes.io/job-tracking"],"generateName":"sums-2-","labels":{"app":"sums","batch.kubernetes.io/job-completion-index":"2"},"ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"sums","uid":"job-uid"}]},"spec":{"containers":[{"env":[{"name":"JOB_COMPLETION_INDEX","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['batch.kubernetes.io/job-completion-index']"}}}],"name":"main"}],"hostname":"sums-2","restartPolicy":"Never"}}
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"active":1,"completedIndexes":"0","succeeded":1}}
        "#]],
    );
}

#[test]
fn an_index_that_failed_too_often_fails_alone() {
    let spec = "completions: 2\n  parallelism: 2\n  completionMode: Indexed\n  backoffLimitPerIndex: 0\n  backoffLimit: 2147483647";
    check(
        &job(spec, STARTED),
        &[indexed("a", 0, &failed(1)), indexed("b", 1, "status: {phase: Running}")],
        expect![[r#"
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"active":1,"failedIndexes":"0","uncountedTerminatedPods":{"failed":["a-uid"],"succeeded":null}}}
        "#]],
    );
    check(
        &job(
            &format!("{spec}\n  maxFailedIndexes: 0"),
            &format!("{STARTED}, failedIndexes: '0'"),
        ),
        &[],
        expect![[r#"
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job has exceeded the specified maximal number of failed indexes","reason":"MaxFailedIndexesExceeded","status":"True","type":"FailureTarget"}]}}
        "#]],
    );
}

#[test]
fn the_last_failed_pod_of_an_index_stays_until_it_is_replaced() {
    let spec = "completions: 1\n  parallelism: 1\n  completionMode: Indexed\n  backoffLimitPerIndex: 2\n  backoffLimit: 2147483647";
    check(
        &job(spec, &format!("{STARTED}, failedIndexes: ''")),
        &[indexed("a", 0, &failed(1))],
        expect![[r#"
            again after 5s
        "#]],
    );
    let before = failed(1).replace("11:59:55", "11:59:00");
    check(
        &job(spec, &format!("{STARTED}, failedIndexes: ''")),
        &[indexed("a", 0, &before)],
        expect![[r#"
            create pods in default: {"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"batch.kubernetes.io/job-completion-index":"0","batch.kubernetes.io/job-index-failure-count":"1"},"finalizers":["batch.kubernetes.io/job-tracking"],"generateName":"sums-0-","labels":{"app":"sums","batch.kubernetes.io/job-completion-index":"0"},"ownerReferences":[{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"sums","uid":"job-uid"}]},"spec":{"containers":[{"env":[{"name":"JOB_COMPLETION_INDEX","valueFrom":{"fieldRef":{"fieldPath":"metadata.labels['batch.kubernetes.io/job-completion-index']"}}}],"name":"main"}],"hostname":"sums-0","restartPolicy":"Never"}}
        "#]],
    );
}

#[test]
fn enough_successes_end_an_indexed_job() {
    check(
        &job(
            "completions: 3\n  parallelism: 3\n  completionMode: Indexed\n  backoffLimit: 6\n  successPolicy: {rules: [{succeededIndexes: 0-1, succeededCount: 1}]}",
            &format!("{STARTED}, active: 1"),
        ),
        &[
            indexed("a", 1, "status: {phase: Succeeded}"),
            indexed("b", 2, "status: {phase: Running}"),
        ],
        expect![[r#"
            delete pods default/b
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"completedIndexes":"1","conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Matched rules at index 0","reason":"SuccessPolicy","status":"True","type":"SuccessCriteriaMet"}],"succeeded":1}}
        "#]],
    );
}

#[test]
fn a_job_that_is_suspended_stops_and_starts_again_later() {
    let spec = "completions: 1\n  parallelism: 1\n  backoffLimit: 6";
    check(
        &job(&format!("{spec}\n  suspend: true"), &format!("{STARTED}, active: 1")),
        &[pod("a", "status: {phase: Running}")],
        expect![[r#"
            delete pods default/a
            event Normal Suspended: Job suspended
            patch jobs default/sums/status: {"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"lastProbeTime":"2026-01-01T12:00:00Z","lastTransitionTime":"2026-01-01T12:00:00Z","message":"Job suspended","reason":"JobSuspended","status":"True","type":"Suspended"}],"startTime":null}}
        "#]],
    );
    check(
        &job(
            &format!("{spec}\n  activeDeadlineSeconds: 60"),
            "startTime: '2026-01-01T11:59:30Z', ready: 0, terminating: 0, uncountedTerminatedPods: {}, active: 1",
        ),
        &[pod("a", "status: {phase: Running}")],
        expect![[r#"
            again after 30s
        "#]],
    );
}

#[test]
fn pods_nobody_will_count_lose_the_finalizer() {
    let untracked = expect![[r#"
        patch pods default/a: {"metadata":{"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"],"uid":"a-uid"}}
    "#]];
    check("", &[pod("a", "")], untracked);
    let foreign = job("managedBy: example.com/other", "");
    check(&foreign, &[pod("a", "status: {phase: Failed}")], expect![""]);
}

#[test]
fn orphans_are_adopted_with_the_finalizer_and_strangers_released_without() {
    let orphan = pod_with("a", "", "").replace(", controller: true", "");
    let stranger = pod("b", "").replace("{app: sums}", "{app: other}");
    check(
        &job("parallelism: 2\n  completions: 2", STARTED),
        &[orphan, stranger],
        expect![[r#"
            adopt: patch pods default/a: {"metadata":{"finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"sums","uid":"job-uid"},{"apiVersion":"batch/v1","blockOwnerDeletion":true,"controller":true,"kind":"Job","name":"sums","uid":"job-uid"}],"resourceVersion":"5","uid":"a-uid"}}
            patch pods default/b: {"metadata":{"finalizers":[],"ownerReferences":[],"resourceVersion":"5","uid":"b-uid"}}
        "#]],
    );
}
