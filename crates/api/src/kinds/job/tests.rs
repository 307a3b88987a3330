use expect_test::expect;

use super::*;

#[test]
fn a_job_runs_once_and_knows_its_pods_by_its_uid() {
    let mut job = json!({"metadata": {"name": "once"}, "spec": {"template": {"spec": {"restartPolicy": "Never"}}}});
    JOB.rules.default(&mut job);
    job["metadata"]["uid"] = "1".into();
    JOB.rules.prepare_create(&mut job);
    job["spec"]["template"].remove("spec");
    expect![[r#"{"backoffLimit":6,"completionMode":"NonIndexed","completions":1,"manualSelector":false,"parallelism":1,"podReplacementPolicy":"TerminatingOrFailed","selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"1"}},"suspend":false,"template":{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"1","batch.kubernetes.io/job-name":"once","controller-uid":"1","job-name":"once"}}}}"#]]
        .assert_eq(&job["spec"].to_string());
}

fn job(spec: Value) -> Value {
    let pod = json!({"containers": [{"name": "main", "image": "a"}], "restartPolicy": "Never"});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod});
    let mut job = json!({"metadata": {"name": "once"}, "spec": {
        "selector": {"matchLabels": {"app": "a"}}, "manualSelector": true, "template": template}});
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    JOB.rules.default(&mut job);
    job
}

fn text(problems: Vec<FieldError>) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn policies_are_checked_rule_by_rule() {
    let rules = json!([
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0, 3, 2, 2], "containerName": "other"}},
        {"action": "FailIndex", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "Stop"},
    ]);
    expect![[r#"
        spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "other": must be one of the container or initContainer names in the pod template
        spec.podFailurePolicy.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator
        spec.podFailurePolicy.rules[0].onExitCodes.values[3]: Duplicate value: 2
        spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [0,3,2,2]: must be ordered
        spec.podFailurePolicy.rules[1].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set
        spec.podFailurePolicy.rules[2].action: Unsupported value: "Stop": supported values: "Count", "FailIndex", "FailJob", "Ignore"
        spec.podFailurePolicy.rules[2]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"#]]
    .assert_eq(&text(JOB.rules.validate(&job(json!({"podFailurePolicy": {"rules": rules}})))));
    let rules = json!([{"succeededIndexes": "0,3-1"}, {"succeededIndexes": "0,1", "succeededCount": 3}, {}]);
    let indexed = json!({"completionMode": "Indexed", "completions": 2, "successPolicy": {"rules": rules}});
    expect![[r#"
        spec.successPolicy.rules[0].succeededIndexes: Invalid value: "0,3-1": error parsing succeededIndexes: too large index: "3"
        spec.successPolicy.rules[1].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of specified completions)
        spec.successPolicy.rules[1].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)
        spec.successPolicy.rules[2]: Required value: at least one of succeededCount or succeededIndexes must be specified"#]]
    .assert_eq(&text(JOB.rules.validate(&job(indexed))));
}

#[test]
fn what_only_indexed_jobs_have_needs_the_mode() {
    let plain = json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 1, "managedBy": "me"});
    expect![[r#"
        spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")
        spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode
        spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode"#]]
    .assert_eq(&text(JOB.rules.validate(&job(plain))));
}

#[test]
fn a_suspended_job_may_be_sent_elsewhere() {
    let mut old = job(json!({"suspend": true}));
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    new["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    assert_eq!(text(JOB.rules.validate_update(&new, &old)), "");
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "b".into();
    assert!(text(JOB.rules.validate_update(&new, &old)).contains("field is immutable"));
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "a".into();
    old["status"]["startTime"] = "2026-01-01T12:00:00Z".into();
    assert!(text(JOB.rules.validate_update(&new, &old)).starts_with("spec.template: "));
}

#[test]
fn the_status_stays_consistent() {
    let mut old = job(json!({}));
    old["status"] = json!({"active": 1, "startTime": "2026-01-01T12:00:00Z"});
    let mut new = old.clone();
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    new["status"] = json!({
        "active": 1, "ready": 2, "startTime": "2026-01-01T12:30:00Z", "completionTime": "2026-01-01T12:00:00Z",
        "conditions": [condition("Complete"), condition("Failed")], "completedIndexes": "0",
    });
    expect![[r#"
        status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions
        status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition
        status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition
        status.completionTime: Invalid value: "2026-01-01T12:00:00Z": must be equal to or after `startTime`
        status.active: Invalid value: 1: active>0 is invalid for finished job
        status.ready: Invalid value: 2: cannot set more ready pods than active
        status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode
        status.startTime: Invalid value: "2026-01-01T12:30:00Z": field is immutable for unsuspended job once set"#]]
    .assert_eq(&text(JOB.rules.validate_status_update(&new, &old)));
    let kinds = ["SuccessCriteriaMet", "Complete"].map(condition);
    new["status"] = json!({"startTime": "2026-01-01T12:00:00Z", "completionTime": "2026-01-01T12:30:00Z",
        "succeeded": 1, "ready": 0, "terminating": 0, "conditions": kinds});
    assert_eq!(text(JOB.rules.validate_status_update(&new, &old)), "");
    assert!(!text(JOB.rules.validate_status_update(&old, &new)).is_empty());
}
