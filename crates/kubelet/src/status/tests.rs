//! Statuses as documentation: what a user sees of a pod in each situation.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::{Phase, Surroundings, compute, patch};
use crate::features::{HandlerFeatures, ReportedFeatures};
use crate::plan::{Busy, Task};
use crate::pod::LinuxUser;
use crate::testing::{NOW, Scene};

fn around() -> Surroundings {
    Surroundings {
        host_ips: vec!["192.0.2.1".to_owned()],
        runtime_name: "karve".to_owned(),
        ..Surroundings::default()
    }
}

fn status(scene: &str) -> super::PodStatus {
    let scene = Scene::parse(scene);
    compute(scene.view(), &around(), &scene.pod.status.conditions, NOW)
}

/// Phase, conditions and containers, a line each.
fn check(scene: &str, expected: Expect) {
    let status = status(scene);
    let mut text = format!("{:?} {}\n", status.phase, status.reason).replace(" \n", "\n");
    for condition in &status.conditions {
        let line = format!(
            "{}={} {} {}",
            condition.kind, condition.status, condition.reason, condition.message
        );
        text += line.trim_end();
        text += "\n";
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses);
    for container in containers {
        let state = serde_json::to_string(&container.state).unwrap();
        let last = serde_json::to_string(&container.last_state).unwrap();
        text += &format!(
            "{}: {state} last {last} ready={} started={} restarts={}\n",
            container.name, container.ready, container.started, container.restart_count
        );
    }
    expected.assert_eq(&text.replace("2023-11-14T", ""));
}

#[test]
fn a_new_pod_is_pending() {
    check(
        "pod: {spec: {initContainers: [{name: init}], containers: [{name: web}]}}",
        expect![[r#"
            Pending
            PodReadyToStartContainers=False
            Initialized=False ContainersNotInitialized containers with incomplete status: [init]
            Ready=False ContainersNotReady containers with unready status: [web]
            ContainersReady=False ContainersNotReady containers with unready status: [web]
            PodScheduled=True
            init: {"waiting":{"reason":"PodInitializing"}} last {} ready=false started=false restarts=0
            web: {"waiting":{"reason":"PodInitializing"}} last {} ready=false started=false restarts=0
        "#]],
    );
}

#[test]
fn a_pod_that_is_deleted_while_it_starts_has_not_failed_yet() {
    let phase = |task: Option<Task>, sandboxes: &str| {
        let pod = "{metadata: {deletionTimestamp: 2023-11-14T22:13:20Z}, spec: {containers: [{name: web}]}}";
        let mut scene = Scene::parse(&format!("pod: {pod}\nsandboxes: {sandboxes}"));
        scene.progress.busy.extend(task.map(|task| (task, Busy::default())));
        compute(scene.view(), &around(), &[], NOW).phase
    };
    assert_eq!(phase(Some(Task::Sandbox), "[]"), Phase::Pending);
    assert_eq!(phase(Some(Task::Start("web".to_owned())), "[]"), Phase::Pending);
    assert_eq!(phase(None, "[{id: s0}]"), Phase::Pending);
    // Its volumes are unmounted when everything else has ended.
    assert_eq!(phase(Some(Task::Volumes), "[]"), Phase::Failed);
    assert_eq!(phase(None, "[]"), Phase::Failed);
}

#[test]
fn a_running_pod_is_ready_when_its_probes_say_so() {
    let pod = "pod: {spec: {containers: [{name: web, readinessProbe: {}}]}}
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]
";
    check(
        pod,
        expect![[r#"
        Running
        PodReadyToStartContainers=True
        Initialized=True
        Ready=False ContainersNotReady containers with unready status: [web]
        ContainersReady=False ContainersNotReady containers with unready status: [web]
        PodScheduled=True
        web: {"running":{"startedAt":"22:13:19Z"}} last {} ready=false started=true restarts=0
    "#]],
    );
    check(
        &format!("{pod}ready: [web]"),
        expect![[r#"
        Running
        PodReadyToStartContainers=True
        Initialized=True
        Ready=True
        ContainersReady=True
        PodScheduled=True
        web: {"running":{"startedAt":"22:13:19Z"}} last {} ready=true started=true restarts=0
    "#]],
    );
}

#[test]
fn a_readiness_gate_holds_back_ready_alone() {
    check(
        r#"
pod: {spec: {readinessGates: [{conditionType: example.com/lb}], containers: [{name: web}]}}
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]
"#,
        expect![[r#"
            Running
            PodReadyToStartContainers=True
            Initialized=True
            Ready=False ReadinessGatesNotReady corresponding condition of pod readiness gate "example.com/lb" does not exist.
            ContainersReady=True
            PodScheduled=True
            web: {"running":{"startedAt":"22:13:19Z"}} last {} ready=true started=true restarts=0
        "#]],
    );
}

#[test]
fn a_crashing_container_waits_and_shows_its_last_end() {
    check(
        r#"
pod: {spec: {containers: [{name: web}]}}
sandboxes: [{id: s0}]
containers: [{name: web, state: 1, attempt: 2, ago: 4}]
backoff: {web: 20}
"#,
        expect![[r#"
            Running
            PodReadyToStartContainers=True
            Initialized=True
            Ready=False ContainersNotReady containers with unready status: [web]
            ContainersReady=False ContainersNotReady containers with unready status: [web]
            PodScheduled=True
            web: {"waiting":{"reason":"CrashLoopBackOff","message":"back-off 20s restarting failed container=web pod=web_default(uid-1)"}} last {"terminated":{"exitCode":1,"reason":"Error","startedAt":"22:13:15Z","finishedAt":"22:13:16Z","containerID":"karve://web-2"}} ready=false started=false restarts=2
        "#]],
    );
}

#[test]
fn a_container_that_is_being_restarted_shows_how_it_ended() {
    let text = serde_json::to_string(
        &status(
            r#"
pod: {spec: {containers: [{name: web}]}}
sandboxes: [{id: s0}]
containers: [{name: web, state: 1}]
backoff: {web: 10}
starting: [web]
"#,
        )
        .container_statuses[0]
            .state,
    );
    assert!(text.unwrap().starts_with("{\"terminated\""));
}

#[test]
fn a_failed_pull_is_shown_as_such_and_then_as_back_off() {
    check(
        r#"
pod: {spec: {containers: [{name: web, image: nowhere/x}]}}
sandboxes: [{id: s0}]
image_failures: {web: "ErrImagePull: not found"}
"#,
        expect![[r#"
            Pending
            PodReadyToStartContainers=True
            Initialized=True
            Ready=False ContainersNotReady containers with unready status: [web]
            ContainersReady=False ContainersNotReady containers with unready status: [web]
            PodScheduled=True
            web: {"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image \"nowhere/x\": ErrImagePull: not found"}} last {} ready=false started=false restarts=0
        "#]],
    );
}

#[test]
fn a_finished_pod_has_succeeded_or_failed() {
    let pod = |code: i32| {
        format!(
            "pod: {{spec: {{restartPolicy: Never, containers: [{{name: job}}]}}}}
sandboxes: [{{id: s0, lost: true}}]
containers: [{{name: job, state: {code}}}]"
        )
    };
    check(
        &pod(0),
        expect![[r#"
        Succeeded
        PodReadyToStartContainers=False
        Initialized=True PodCompleted
        Ready=False PodCompleted
        ContainersReady=False PodCompleted
        PodScheduled=True
        job: {"terminated":{"exitCode":0,"reason":"Completed","startedAt":"22:13:19Z","finishedAt":"22:13:20Z","containerID":"karve://job-0"}} last {} ready=false started=false restarts=0
    "#]],
    );
    check(
        &pod(2),
        expect![[r#"
        Failed
        PodReadyToStartContainers=False
        Initialized=True
        Ready=False PodFailed
        ContainersReady=False PodFailed
        PodScheduled=True
        job: {"terminated":{"exitCode":2,"reason":"Error","startedAt":"22:13:19Z","finishedAt":"22:13:20Z","containerID":"karve://job-0"}} last {} ready=false started=false restarts=0
    "#]],
    );
}

#[test]
fn a_pod_past_its_deadline_has_failed_while_it_still_ends() {
    check(
        r#"
pod: {spec: {containers: [{name: web}]}}
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]
stop: deadline
"#,
        expect![[r#"
            Failed DeadlineExceeded
            PodReadyToStartContainers=True
            Initialized=True
            Ready=False PodFailed
            ContainersReady=False PodFailed
            PodScheduled=True
            web: {"running":{"startedAt":"22:13:19Z"}} last {} ready=true started=true restarts=0
        "#]],
    );
}

#[test]
fn a_completed_init_container_is_ready_and_kept_when_the_runtime_forgets_it() {
    check(
        r#"
pod:
  spec: {initContainers: [{name: init}], containers: [{name: web}]}
  status:
    initContainerStatuses:
    - {name: init, ready: true, containerID: "karve://i", restartCount: 1, state: {terminated: {exitCode: 0, reason: Completed}}}
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]
"#,
        expect![[r#"
            Running
            PodReadyToStartContainers=True
            Initialized=True
            Ready=True
            ContainersReady=True
            PodScheduled=True
            init: {"terminated":{"exitCode":0,"reason":"Completed","startedAt":null,"finishedAt":null}} last {} ready=true started=false restarts=1
            web: {"running":{"startedAt":"22:13:19Z"}} last {} ready=true started=true restarts=0
        "#]],
    );
}

#[test]
fn a_patch_names_only_what_changed() {
    let scene = "pod: {metadata: {generation: 1}, spec: {containers: [{name: web}]}}
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]";
    let wanted = status(scene);
    let mut current = serde_json::to_value(&wanted).unwrap();
    assert_eq!(patch::patch("uid-1", &current, &wanted), None);

    current["conditions"][2]["status"] = json!("False");
    current["conditions"][2]["reason"] = json!("ContainersNotReady");
    current["nominatedNodeName"] = json!("somebody else's");
    current["reason"] = json!("Outdated");
    current["podIPs"] = json!([{"ip": "10.0.0.9"}]);
    let patch: Value = patch::patch("uid-1", &current, &wanted).unwrap();
    expect![[r#"
        {
          "metadata": {
            "uid": "uid-1"
          },
          "status": {
            "conditions": [
              {
                "lastProbeTime": null,
                "lastTransitionTime": "2023-11-14T22:13:20Z",
                "message": null,
                "observedGeneration": 1,
                "reason": null,
                "status": "True",
                "type": "Ready"
              }
            ],
            "podIPs": [
              {
                "ip": "10.0.0.5"
              },
              {
                "$patch": "replace"
              }
            ],
            "reason": null
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&patch).unwrap());
}

/// What another kubelet has written, such as upstream's for a cgroup without a limit, must go, or a status would never be
/// as wanted.
#[test]
fn resources_that_a_pod_does_not_have_are_taken_out_of_its_status() {
    let scene = "pod: {spec: {containers: [{name: web, resources: {requests: {cpu: 100m}}}]}}
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]";
    let wanted = status(scene);
    let mut current = serde_json::to_value(&wanted).unwrap();
    current["resources"]["limits"] = json!({"memory": "9007199254740988Ki"});
    current["allocatedResources"]["memory"] = json!("1Gi");
    let patch = patch::patch("uid-1", &current, &wanted).unwrap();
    let expected = json!({
        "resources": {"requests": {"cpu": "100m"}, "$patch": "replace"},
        "allocatedResources": {"cpu": "100m", "$patch": "replace"},
    });
    assert_eq!(patch["status"], expected);

    let pod = schema::builtin().object("v1", "Pod").unwrap();
    let before = json!({"metadata": {"uid": "uid-1"}, "status": current});
    let patched = schema::strategic_merge_patch(pod, &before, &patch).unwrap();
    assert_eq!(patch::patch("uid-1", &patched["status"], &wanted), None);
}

#[test]
fn a_condition_keeps_its_time_while_its_status_stays() {
    let scene = r#"
pod:
  spec: {containers: [{name: web}]}
  status:
    conditions:
    - {type: Ready, status: "True", lastTransitionTime: "2023-01-01T00:00:00Z"}
    - {type: ContainersReady, status: "False", lastTransitionTime: "2023-01-01T00:00:00Z"}
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]
"#;
    let times: Vec<_> = status(scene)
        .conditions
        .iter()
        .map(|condition| format!("{} {}", condition.kind, condition.last_transition_time.seconds()))
        .collect();
    assert_eq!(
        times[2..4],
        ["Ready 2023-01-01T00:00:00Z", "ContainersReady 2023-11-14T22:13:20Z"]
    );
}

/// The node was taken down with everything on it: what ran before is not forgotten, and counts as a restart to come.
#[test]
fn a_container_that_was_lost_is_started_again_and_its_end_is_not_known() {
    let scene = r#"
pod:
  spec: {containers: [{name: web}]}
  status: {phase: Running, containerStatuses: [{name: web, restartCount: 2, containerID: "karve://c", state: {running: {}}}]}
"#;
    let status = status(scene);
    let web = &status.container_statuses[0];
    assert_eq!((web.restart_count, web.container_id.as_str()), (2, ""));
    let last = web.last_state.terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_str()), (137, "ContainerStatusUnknown"));
}

/// An evicted pod has failed, and says that it was not its own fault.
#[test]
fn an_evicted_pod_is_disrupted() {
    let mut scene = Scene::parse("pod: {spec: {containers: [{name: web}]}}");
    scene.progress.stop = Some(crate::plan::Stop::Evicted {
        message: "low on memory".to_owned(),
    });
    let status = compute(scene.view(), &around(), &[], NOW);
    assert_eq!(
        (status.phase, status.reason.as_str()),
        (super::Phase::Failed, "Evicted")
    );
    let target = status
        .conditions
        .iter()
        .find(|condition| condition.kind == "DisruptionTarget");
    assert_eq!(target.unwrap().reason, "TerminationByKubelet");
}

/// A condition about a change that is over is taken away.
#[test]
fn a_resize_that_is_over_is_no_longer_told() {
    let current = json!({"conditions": [{"type": "PodResizeInProgress", "status": "True"}, {"type": "Other"}]});
    let patch = patch::patch("u", &current, &status("pod: {spec: {containers: [{name: web}]}}")).unwrap();
    let conditions = patch["status"]["conditions"].as_array().unwrap();
    let deleted: Vec<&Value> = conditions
        .iter()
        .filter(|condition| condition["$patch"] == "delete")
        .collect();
    assert_eq!(deleted, [&json!({"type": "PodResizeInProgress", "$patch": "delete"})]);
}

#[test]
fn recursive_read_only_mounts_are_reported_as_what_the_runtime_makes_of_them() {
    let scene = Scene::parse(
        r#"
pod: {spec: {containers: [{name: web, volumeMounts: [
  {name: a, mountPath: /a, readOnly: true, recursiveReadOnly: IfPossible},
  {name: b, mountPath: /b, readOnly: true, recursiveReadOnly: Enabled},
  {name: c, mountPath: /c, readOnly: true},
  {name: d, mountPath: /d}]}]}}
"#,
    );
    let modes = |around: &Surroundings| {
        let status = compute(scene.view(), around, &[], NOW);
        let mounts = status.container_statuses[0].volume_mounts.iter();
        mounts
            .map(|mount| mount.recursive_read_only.clone().unwrap_or_default())
            .collect::<Vec<_>>()
    };
    let able = around();
    let features = HandlerFeatures {
        recursive_read_only_mounts: true,
        ..HandlerFeatures::default()
    };
    able.features.put(ReportedFeatures {
        handlers: [(String::new(), features)].into(),
        ..ReportedFeatures::default()
    });
    assert_eq!(modes(&able), ["Enabled", "Enabled", "Disabled", ""]);
    assert_eq!(modes(&around()), ["Disabled", "Disabled", "Disabled", ""]);
}

#[test]
fn a_container_shows_who_it_runs_as_where_the_runtime_says() {
    let yaml =
        "pod: {spec: {containers: [{name: web}]}}\nsandboxes: [{id: s}]\ncontainers: [{name: web, state: running}]";
    let mut scene = Scene::parse(yaml);
    let user = |scene: &Scene| {
        let status = compute(scene.view(), &around(), &[], NOW);
        serde_json::to_value(&status.container_statuses[0]).unwrap()["user"].clone()
    };
    assert_eq!(user(&scene), Value::Null);
    scene.observed.containers[0].user = Some(LinuxUser {
        uid: 1000,
        gid: 0,
        supplemental_groups: vec![0, 60000],
    });
    let expected = json!({"linux": {"uid": 1000, "gid": 0, "supplementalGroups": [0, 60000]}});
    assert_eq!(user(&scene), expected);
}
