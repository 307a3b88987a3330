//! The rules of containers about their restarts, as scenes and the actions that follow from them.

use expect_test::{Expect, expect};

use super::plan;
use crate::testing::{NOW, Scene};

fn check(scene: &str, expected: Expect) {
    let mut scene = Scene::parse(scene);
    scene.progress.reset = scene.view().reset(NOW);
    let plan = plan(scene.view(), NOW);
    let text: String = plan.actions.iter().map(|action| format!("{action}\n")).collect();
    expected.assert_eq(&text);
}

/// A pod that restarts nothing, but for what the rule of its container says.
fn one(rule: &str, code: i32) -> String {
    format!(
        "pod: {{spec: {{restartPolicy: Never, containers: [{{name: a, restartPolicyRules: [{rule}]}}]}}}}
volumes: mounted
images: [a]
sandboxes: [{{id: s0}}]
containers: [{{name: a, state: {code}, ago: 5}}]
"
    )
}

#[test]
fn the_first_rule_that_matches_decides_before_the_policy() {
    let again = || {
        expect![[r#"
            start a, attempt 1
        "#]]
    };
    let ended = || {
        expect![[r#"
            stop sandbox s0
        "#]]
    };
    let rule = "{action: Restart, exitCodes: {operator: In, values: [42]}}";
    check(&one(rule, 42), again());
    check(&one(rule, 1), ended());
    let others = "{action: Restart, exitCodes: {operator: NotIn, values: [42]}}";
    check(&one(others, 1), again());
    check(&one(others, 42), ended());
    check(&one("{action: Restart}", 42), ended());
}

#[test]
fn what_was_ended_for_other_resources_starts_again_at_once() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut scene = Scene::parse(&format!(
            "pod: {{spec: {{restartPolicy: {policy}, containers: [{{name: a}}]}}}}
volumes: mounted
images: [a]
sandboxes: [{{id: s0}}]
containers: [{{name: a, state: 0, ago: 1}}]
backoff: {{a: 20}}
"
        ));
        let actions = |scene: &Scene| -> Vec<String> {
            let planned = plan(scene.view(), NOW);
            planned.actions.iter().map(ToString::to_string).collect()
        };
        assert!(!actions(&scene).contains(&"start a, attempt 1".to_owned()), "{policy}");
        scene.progress.container_mut("a").replaced = Some("a-0".to_owned());
        assert_eq!(actions(&scene), ["start a, attempt 1"], "{policy}");
        // An earlier instance says nothing about the one that ended.
        scene.progress.container_mut("a").replaced = Some("another".to_owned());
        assert!(!actions(&scene).contains(&"start a, attempt 1".to_owned()), "{policy}");
    }
}

const ALL: &str = "pod: {spec: {restartPolicy: Never, initContainers: [{name: i}, {name: s, restartPolicy: Always}], \
    containers: [{name: a, restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]}, \
    {name: b}]}}
volumes: mounted
images: [i, s, a, b]
sandboxes: [{id: s0}]
";

#[test]
fn a_rule_ends_all_containers_and_starts_them_in_order() {
    check(
        &format!(
            "{ALL}started: [s]
containers: [{{name: i, state: 0, ago: 50}}, {{name: s, state: running, ago: 50}}, {{name: a, state: 42, ago: 5}}, \
             {{name: b, state: running, ago: 50}}]"
        ),
        expect![[r#"
            kill s (s-0) in 0s: RestartAll
            kill b (b-0) in 0s: RestartAll
        "#]],
    );
    check(
        &format!(
            "{ALL}containers: [{{name: i, state: 0, ago: 50}}, {{name: s, state: 137, ago: 5}}, {{name: a, state: 42, ago: 5}}, \
             {{name: b, state: 137, ago: 5}}]"
        ),
        expect![[r#"
            start i, attempt 1
        "#]],
    );
}

#[test]
fn what_comes_after_a_container_that_ends_at_once_is_started_first() {
    let scene = |b: &str| {
        format!(
            "{ALL}started: [s]
containers: [{{name: i, state: 0, ago: 50}}, {{name: s, state: running, ago: 50}}, {{name: a, state: 42, ago: 5}}{b}]"
        )
    };
    check(
        &scene(""),
        expect![[r#"
            start b, attempt 0
        "#]],
    );
    check(
        &scene(", {name: b, state: running, ago: 1}"),
        expect![[r#"
            kill b (b-0) in 0s: RestartAll
            kill s (s-0) in 0s: RestartAll
        "#]],
    );
    // One that cannot start keeps nobody waiting.
    let broken = format!(
        "{}\nimage_failures: {{b: \"ErrImagePull: not found\"}}",
        scene("").replace("images: [i, s, a, b]", "images: [i, s, a]")
    );
    check(
        &broken,
        expect![[r#"
            kill s (s-0) in 0s: RestartAll
        "#]],
    );
}

#[test]
fn what_was_on_its_way_when_the_rule_matched_is_started_again_too() {
    let mut scene = Scene::parse(&format!(
        "{ALL}started: [s]
starting: [b]
containers: [{{name: i, state: 0, ago: 50}}, {{name: s, state: 137, ago: 5}}, {{name: a, state: 42, ago: 5}}]"
    ));
    let reset = scene.view().reset(NOW);
    assert!(reset.as_ref().is_some_and(|reset| !reset.settled));
    scene.progress.reset = reset;
    assert!(
        plan(scene.view(), NOW).actions.is_empty(),
        "until it is known what became of it"
    );
    // It was made after the other one had ended, and before anybody noticed.
    check(
        &format!(
            "{ALL}started: [s]
containers: [{{name: i, state: 0, ago: 50}}, {{name: s, state: 137, ago: 5}}, {{name: a, state: 42, ago: 5}}, \
             {{name: b, state: running, ago: 1}}]"
        ),
        expect![[r#"
            kill b (b-0) in 0s: RestartAll
        "#]],
    );
}

#[test]
fn a_rule_that_has_been_obeyed_is_not_obeyed_again() {
    let after = |a: &str, b: &str| {
        format!(
            "{ALL}started: [s]
containers: [{{name: i, state: 0, ago: 50}}, {{name: s, state: 137, ago: 40}}, {{name: a, state: 42, ago: 40}}, \
             {{name: b, state: 137, ago: 40}}, {{name: i, state: 0, ago: 30, attempt: 1}}, \
             {{name: s, state: running, ago: 29, attempt: 1}}{a}{b}]"
        )
    };
    let (a, b) = (
        ", {name: a, state: running, ago: 28, attempt: 1}",
        ", {name: b, state: running, ago: 27, attempt: 1}",
    );
    check(&after(a, b), expect![""]);
    check(
        &after(", {name: a, state: 0, ago: 28, attempt: 1}", ""),
        expect![[r#"
            start b, attempt 1
        "#]],
    );
}
