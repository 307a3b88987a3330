//! The planner's rules, as scenes and the actions that follow from them.

use expect_test::{Expect, expect};

use super::{Task, Volumes, plan};
use crate::testing::{NOW, Scene};

fn check(scene: &str, expected: Expect) {
    check_scene(&Scene::parse(scene), expected);
}

fn check_scene(scene: &Scene, expected: Expect) {
    let plan = plan(scene.view(), NOW);
    let mut text: String = plan.actions.iter().map(|action| format!("{action}\n")).collect();
    if let Some(at) = plan.wake_at {
        text += &format!("wake in {}ms\n", at.0 - NOW.0);
    }
    expected.assert_eq(&text);
}

#[test]
fn a_new_pod_gets_volumes_and_a_sandbox_at_once() {
    check(
        "pod: {spec: {containers: [{name: web}]}}",
        expect![[r#"
            mount volumes
            create sandbox, attempt 0
            ensure image of web
        "#]],
    );
}

#[test]
fn with_a_sandbox_all_images_are_ensured_together() {
    check(
        r#"
pod: {spec: {containers: [{name: a}, {name: b}]}}
volumes: mounted
sandboxes: [{id: s0}]
"#,
        expect![[r#"
            ensure image of a
            ensure image of b
        "#]],
    );
}

#[test]
fn containers_start_one_after_the_other() {
    check(
        r#"
pod: {spec: {containers: [{name: a}, {name: b}]}}
volumes: mounted
images: [a, b]
sandboxes: [{id: s0}]
"#,
        expect![[r#"
            start a, attempt 0
        "#]],
    );
    check(
        r#"
pod: {spec: {containers: [{name: a}, {name: b}]}}
volumes: mounted
images: [a, b]
sandboxes: [{id: s0}]
containers: [{name: a, state: running}]
starting: [a]
"#,
        expect![""],
    );
    check(
        r#"
pod: {spec: {containers: [{name: a}, {name: b}]}}
volumes: mounted
images: [b]
sandboxes: [{id: s0}]
containers: [{name: a, state: running}]
"#,
        expect![[r#"
            start b, attempt 0
        "#]],
    );
}

#[test]
fn no_container_starts_before_its_volumes_are_there() {
    check(
        r#"
pod: {spec: {containers: [{name: a}]}}
volumes: failed
images: [a]
sandboxes: [{id: s0}]
"#,
        expect![[r#"
            wake in 8000ms
        "#]],
    );
}

#[test]
fn what_failed_for_want_of_an_object_is_tried_again_when_that_comes() {
    let mut scene = Scene::parse(
        r#"
pod: {spec: {containers: [{name: a}, {name: b}]}}
volumes: failed
images: [a, b]
failures: {a: "CreateContainerConfigError: no such key", b: "CreateContainerError: no such device"}
sandboxes: [{id: s0}]
"#,
    );
    check_scene(
        &scene,
        expect![[r#"
            wake in 8000ms
        "#]],
    );
    scene.progress.objects_changed();
    check_scene(
        &scene,
        expect![[r#"
            mount volumes
            wake in 8000ms
        "#]],
    );
    scene.progress.volumes = Volumes::Mounted;
    check_scene(
        &scene,
        expect![[r#"
            start a, attempt 0
            wake in 8000ms
        "#]],
    );
}

#[test]
fn what_reads_an_object_while_it_changes_is_overtaken() {
    let mut scene = Scene::parse(
        r#"
pod: {spec: {containers: [{name: a}]}}
starting: [a]
killing: {b-0: 5}
"#,
    );
    scene.progress.objects_changed();
    let overtaken: Vec<_> = scene.progress.busy.iter().filter(|(_, busy)| busy.overtaken).collect();
    assert_eq!(overtaken.len(), 1, "{overtaken:?}");
    assert!(scene.progress.busy[&Task::Start("a".to_owned())].overtaken);
}

#[test]
fn init_containers_run_in_order_before_the_others() {
    let pod = "pod: {spec: {initContainers: [{name: i1}, {name: i2}], containers: [{name: app}]}}
volumes: mounted
images: [i1, i2, app]
sandboxes: [{id: s0}]
";
    let with = |containers: &str, expected: Expect| check(&format!("{pod}containers: {containers}"), expected);
    with(
        "[]",
        expect![[r#"
        start i1, attempt 0
    "#]],
    );
    with("[{name: i1, state: running}]", expect![""]);
    with(
        "[{name: i1, state: 0}]",
        expect![[r#"
        start i2, attempt 0
    "#]],
    );
    with(
        "[{name: i1, state: 0}, {name: i2, state: 1}]",
        expect![[r#"
        start i2, attempt 1
    "#]],
    );
    with(
        "[{name: i1, state: 0}, {name: i2, state: 0}]",
        expect![[r#"
        start app, attempt 0
    "#]],
    );
    with(
        "[{name: i1, state: 0}, {name: i2, state: 0}, {name: app, state: running}]",
        expect![""],
    );
}

#[test]
fn a_sidecar_holds_the_next_until_it_has_started_and_is_kept_running() {
    let pod = "pod:
  spec:
    initContainers:
    - {name: side, restartPolicy: Always, startupProbe: {exec: {command: [x]}}}
    containers: [{name: app}]
volumes: mounted
images: [side, app]
sandboxes: [{id: s0}]
";
    let with = |rest: &str, expected: Expect| check(&format!("{pod}{rest}"), expected);
    with("containers: [{name: side, state: running}]", expect![""]);
    with(
        "containers: [{name: side, state: running}]\nstarted: [side]",
        expect![[r#"
        start app, attempt 0
    "#]],
    );
    with(
        "containers: [{name: side, state: 0}, {name: app, state: running}]\nstarted: [side]",
        expect![[r#"
            start side, attempt 1
        "#]],
    );
}

#[test]
fn an_init_container_that_fails_for_good_ends_the_pod() {
    check(
        r#"
pod: {spec: {restartPolicy: Never, initContainers: [{name: i1}], containers: [{name: app}]}}
volumes: mounted
images: [i1, app]
sandboxes: [{id: s0}]
containers: [{name: i1, state: 3}]
"#,
        expect![[r#"
            stop sandbox s0
        "#]],
    );
}

#[test]
fn the_first_restart_is_immediate_and_later_ones_wait() {
    let pod = "pod: {spec: {containers: [{name: web}]}}
volumes: mounted
images: [web]
sandboxes: [{id: s0}]
";
    let with = |rest: &str, expected: Expect| check(&format!("{pod}{rest}"), expected);
    with(
        "containers: [{name: web, state: 1}]",
        expect![[r#"
        start web, attempt 1
    "#]],
    );
    with(
        "containers: [{name: web, state: 1, attempt: 1, ago: 4}]\nbackoff: {web: 10}",
        expect![[r#"
            wake in 6000ms
        "#]],
    );
    with(
        "containers: [{name: web, state: 1, attempt: 1, ago: 11}]\nbackoff: {web: 10}",
        expect![[r#"
            start web, attempt 2
        "#]],
    );
}

#[test]
fn restart_policies_decide_what_starts_again() {
    let check_policy = |policy: &str, code: i32, expected: Expect| {
        check(
            &format!(
                "pod: {{spec: {{restartPolicy: {policy}, containers: [{{name: web}}]}}}}
volumes: mounted
images: [web]
sandboxes: [{{id: s0}}]
containers: [{{name: web, state: {code}}}]"
            ),
            expected,
        );
    };
    check_policy(
        "Always",
        0,
        expect![[r#"
        start web, attempt 1
    "#]],
    );
    check_policy(
        "OnFailure",
        0,
        expect![[r#"
        stop sandbox s0
    "#]],
    );
    check_policy(
        "OnFailure",
        1,
        expect![[r#"
        start web, attempt 1
    "#]],
    );
    check_policy(
        "Never",
        1,
        expect![[r#"
        stop sandbox s0
    "#]],
    );
}

#[test]
fn an_unhealthy_container_is_killed_with_its_probes_grace() {
    check(
        r#"
pod:
  spec:
    terminationGracePeriodSeconds: 20
    containers:
    - {name: a, livenessProbe: {terminationGracePeriodSeconds: 5}}
    - {name: b, livenessProbe: {}}
volumes: mounted
sandboxes: [{id: s0}]
containers: [{name: a, state: running}, {name: b, state: running}]
unhealthy: {a: liveness, b: liveness}
"#,
        expect![[r#"
            kill a (a-0) in 5s: Liveness
            kill b (b-0) in 20s: Liveness
        "#]],
    );
}

#[test]
fn a_lost_sandbox_is_replaced_and_everything_in_it_runs_again() {
    let pod = "pod: {spec: {initContainers: [{name: init}], containers: [{name: web}]}}
volumes: mounted
images: [init, web]
";
    let with = |rest: &str, expected: Expect| check(&format!("{pod}{rest}"), expected);
    with(
        "sandboxes: [{id: s0, lost: true}]\ncontainers: [{name: init, state: 0}, {name: web, state: running}]",
        expect![[r#"
            kill web (web-0) in 30s: SandboxLost
        "#]],
    );
    with(
        "sandboxes: [{id: s0, lost: true}]\ncontainers: [{name: init, state: 0}, {name: web, state: 137}]",
        expect![[r#"
            create sandbox, attempt 1
        "#]],
    );
    with(
        "sandboxes: [{id: s1, attempt: 1}, {id: s0, lost: true}]
containers: [{name: init, state: 0, sandbox: s0}, {name: web, state: 137, sandbox: s0}]",
        expect![[r#"
            start init, attempt 1
        "#]],
    );
}

#[test]
fn old_instances_are_removed_but_for_the_one_before_the_newest() {
    check(
        r#"
pod: {spec: {containers: [{name: web}]}}
volumes: mounted
sandboxes: [{id: s1, attempt: 1}, {id: s0, lost: true}]
containers:
- {name: web, state: running, attempt: 3}
- {name: web, state: 1, attempt: 2}
- {name: web, state: 1, attempt: 1, sandbox: s0}
- {name: web, state: 1, attempt: 0, sandbox: s0}
"#,
        expect![[r#"
            remove container web-1
            remove container web-0
            remove sandbox s0
        "#]],
    );
}

#[test]
fn a_deleted_pod_ends_from_its_containers_to_its_object() {
    let pod = "pod:
  metadata: {deletionTimestamp: '2023-11-14T22:13:20Z', deletionGracePeriodSeconds: 7}
  spec:
    initContainers: [{name: s1, restartPolicy: Always}, {name: s2, restartPolicy: Always}]
    containers: [{name: a}, {name: b}]
";
    let with = |rest: &str, expected: Expect| check(&format!("{pod}{rest}"), expected);
    let running = |names: &[&str]| {
        let all: Vec<_> = names
            .iter()
            .map(|name| format!("{{name: {name}, state: running}}"))
            .collect();
        format!(
            "volumes: mounted\nsandboxes: [{{id: s0}}]\ncontainers: [{}]",
            all.join(", ")
        )
    };
    with(
        &running(&["s1", "s2", "a", "b"]),
        expect![[r#"
        kill a (a-0) in 7s: Ending
        kill b (b-0) in 7s: Ending
    "#]],
    );
    with(
        &running(&["s1", "s2"]),
        expect![[r#"
        kill s2 (s2-0) in 7s: Ending
    "#]],
    );
    with(
        &running(&["s1"]),
        expect![[r#"
        kill s1 (s1-0) in 7s: Ending
    "#]],
    );
    with(
        &running(&[]),
        expect![[r#"
        stop sandbox s0
    "#]],
    );
    with(
        "volumes: mounted\nsandboxes: [{id: s0, lost: true}]",
        expect![[r#"
        unmount volumes
    "#]],
    );
    with(
        "volumes: unmounted\nsandboxes: [{id: s0, lost: true}]",
        expect![[r#"
        delete the pod in the API
    "#]],
    );
    with(
        "volumes: unmounted\nsandboxes: [{id: s0, lost: true}]\nstop: gone",
        expect![[r#"
        remove sandbox s0
    "#]],
    );
    with(
        "volumes: unmounted\nstop: gone",
        expect![[r#"
        clean up
    "#]],
    );
}

#[test]
fn a_kill_is_repeated_only_when_the_grace_has_become_shorter() {
    let with = |seconds: u64, expected: Expect| {
        check(
            &format!(
                "pod:
  metadata: {{deletionTimestamp: '2023-11-14T22:13:20Z', deletionGracePeriodSeconds: 5}}
  spec: {{containers: [{{name: a}}]}}
sandboxes: [{{id: s0}}]
containers: [{{name: a, state: running}}]
killing: {{a-0: {seconds}}}"
            ),
            expected,
        );
    };
    with(4, expect![""]);
    with(
        30,
        expect![[r#"
        kill a (a-0) in 5s: Ending
    "#]],
    );
}

#[test]
fn a_pod_past_its_deadline_is_stopped() {
    let with = |seconds: u64, expected: Expect| {
        check(
            &format!(
                "pod:
  spec: {{activeDeadlineSeconds: {seconds}, containers: [{{name: a}}]}}
  status: {{startTime: '2023-11-14T22:13:10Z'}}
volumes: mounted
sandboxes: [{{id: s0}}]
containers: [{{name: a, state: running}}]"
            ),
            expected,
        );
    };
    with(
        10,
        expect![[r#"
        stop the pod: Deadline
    "#]],
    );
    with(
        15,
        expect![[r#"
        wake in 5000ms
    "#]],
    );
}

#[test]
fn an_image_that_cannot_be_pulled_does_not_hold_up_its_neighbours() {
    check(
        r#"
pod: {spec: {containers: [{name: a}, {name: b}]}}
volumes: mounted
images: [b]
image_failures: {a: "ErrImagePull: no route to host"}
sandboxes: [{id: s0}]
"#,
        expect![[r#"
            start b, attempt 0
            wake in 8000ms
        "#]],
    );
}

#[test]
fn the_api_remembers_restarts_when_the_runtime_has_forgotten_them() {
    check(
        r#"
pod:
  spec: {containers: [{name: web}]}
  status: {containerStatuses: [{name: web, restartCount: 4, containerID: "containerd://x"}]}
volumes: mounted
images: [web]
sandboxes: [{id: s0}]
"#,
        expect![[r#"
            start web, attempt 5
        "#]],
    );
}

/// The runtime and the status have forgotten the instance, but not that there was one.
#[test]
fn restarts_go_on_counting_after_the_node_was_taken_down() {
    check(
        r#"
pod:
  spec: {containers: [{name: web}]}
  status: {containerStatuses: [{name: web, restartCount: 4, lastState: {terminated: {exitCode: 137}}}]}
volumes: mounted
images: [web]
sandboxes: [{id: s1}]
"#,
        expect![[r#"
            start web, attempt 5
        "#]],
    );
}

#[test]
fn a_running_container_gets_its_new_resources_and_one_that_says_so_is_started_again() {
    let scene = |policy: &str| {
        let text = format!(
            r#"
pod:
  spec:
    containers:
    - name: web
      resources: {{requests: {{cpu: 200m}}}}
      resizePolicy: [{{resourceName: cpu, restartPolicy: {policy}}}]
volumes: mounted
sandboxes: [{{id: s0}}]
containers: [{{name: web, state: running}}]
"#
        );
        let mut scene = Scene::parse(&text);
        let id = scene.observed.containers[0].id.clone();
        scene.progress.container_mut("web").applied = Some(super::Applied {
            container: "web".to_owned(),
            id,
            compute: crate::pod::resources::Compute {
                cpu_request_milli: 100,
                ..Default::default()
            },
        });
        let plan = plan(scene.view(), NOW);
        plan.actions
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert_eq!(scene("NotRequired"), "resize");
    assert_eq!(scene("RestartContainer"), "resize; kill web (web-0) in 30s: Resize");
}

#[test]
fn a_pod_becomes_smaller_only_when_its_containers_have() {
    let compute = |cpu_request_milli| crate::pod::resources::Compute {
        cpu_request_milli,
        ..Default::default()
    };
    let mut scene = Scene::parse(
        r#"
pod:
  spec:
    containers:
    - name: web
      resources: {requests: {cpu: 100m}}
      resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]
volumes: mounted
sandboxes: [{id: s0}]
containers: [{name: web, state: running}]
"#,
    );
    let id = scene.observed.containers[0].id.clone();
    scene.progress.pod_applied = Some(compute(200));
    scene.progress.container_mut("web").applied = Some(super::Applied {
        container: "web".to_owned(),
        id,
        compute: compute(200),
    });
    let actions = |scene: &Scene| -> Vec<String> {
        let planned = plan(scene.view(), NOW);
        planned.actions.iter().map(ToString::to_string).collect()
    };
    assert_eq!(scene.view().pod_target(), compute(200));
    assert_eq!(actions(&scene), ["kill web (web-0) in 30s: Resize"]);
    // The container that took its place.
    let applied = scene.progress.container_mut("web").applied.as_mut();
    applied.expect("it was set above").compute = compute(100);
    assert_eq!(scene.view().pod_target(), compute(100));
    assert_eq!(actions(&scene), ["resize"]);
}
