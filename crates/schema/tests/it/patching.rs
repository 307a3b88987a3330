use expect_test::{Expect, expect};
use schema::{PatchError, Value};

use crate::{json, kind, yaml};

fn shown(result: Result<Value, PatchError>) -> String {
    match result {
        Ok(patched) => json(&patched),
        Err(PatchError::Malformed(message)) => format!("400: {message}"),
        Err(PatchError::DoesNotApply(message)) => format!("422: {message}"),
        Err(PatchError::TooLarge(message)) => format!("413: {message}"),
        Err(PatchError::Unexpected(message)) => format!("500: {message}"),
    }
}

/// Applies a strategic merge patch to a pod's spec.
fn check_strategic(live: &str, patch: &str, expected: Expect) {
    let ty = kind("v1", "Pod").field("spec").unwrap().target().unwrap();
    expected.assert_eq(&shown(schema::strategic_merge_patch(ty, &yaml(live), &yaml(patch))));
}

fn check_operations(live: &str, patch: &str, expected: Expect) {
    expected.assert_eq(&shown(schema::json_patch(&yaml(live), &yaml(patch))));
}

#[test]
fn scalars_replace_objects_merge_and_null_deletes() {
    check_strategic(
        "{nodeName: a, hostNetwork: true, securityContext: {runAsUser: 1, fsGroup: 2}}",
        "{nodeName: b, hostNetwork: null, securityContext: {fsGroup: 3}}",
        expect![[r#"{"nodeName":"b","securityContext":{"fsGroup":3,"runAsUser":1}}"#]],
    );
}

#[test]
fn items_are_matched_by_merge_key_and_new_ones_come_first() {
    check_strategic(
        "containers: [{name: a, image: x}, {name: b}]",
        "containers: [{name: c}, {name: b, image: z}]",
        expect![[r#"{"containers":[{"name":"c"},{"image":"x","name":"a"},{"image":"z","name":"b"}]}"#]],
    );
}

#[test]
fn lists_without_a_merge_strategy_are_replaced() {
    check_strategic(
        "tolerations: [{key: a}, {key: b}]",
        "tolerations: [{key: c}]",
        expect![[r#"{"tolerations":[{"key":"c"}]}"#]],
    );
}

#[test]
fn a_directive_deletes_an_item_or_replaces_the_list() {
    check_strategic(
        "containers: [{name: a}, {name: b}]",
        "containers: [{name: a, $patch: delete}]",
        expect![[r#"{"containers":[{"name":"b"}]}"#]],
    );
    check_strategic(
        "containers: [{name: a}, {name: b}]",
        "containers: [{name: c}, {$patch: replace}]",
        expect![[r#"{"containers":[{"name":"c"}]}"#]],
    );
}

#[test]
fn a_directive_empties_or_replaces_an_object() {
    check_strategic(
        "securityContext: {runAsUser: 1}",
        "securityContext: {$patch: replace, fsGroup: 2}",
        expect![[r#"{"securityContext":{"fsGroup":2}}"#]],
    );
    check_strategic(
        "securityContext: {runAsUser: 1}",
        "securityContext: {$patch: delete}",
        expect![[r#"{"securityContext":{}}"#]],
    );
    check_strategic(
        "securityContext: {runAsUser: 1}",
        "securityContext: {$patch: sideways}",
        expect!["500: unknown patch type: sideways in map: map[$patch:sideways]"],
    );
}

#[test]
fn retained_keys_push_out_the_others() {
    check_strategic(
        "volumes: [{name: v, emptyDir: {}}]",
        "volumes: [{name: v, $retainKeys: [name, hostPath], hostPath: {path: /data}}]",
        expect![[r#"{"volumes":[{"hostPath":{"path":"/data"},"name":"v"}]}"#]],
    );
    check_strategic(
        "volumes: [{name: v, emptyDir: {}}]",
        "volumes: [{name: v, $retainKeys: [name], hostPath: {path: /data}}]",
        expect!["400: invalid patch format of retainKeys"],
    );
}

#[test]
fn an_order_is_kept_with_live_items_in_their_old_places() {
    check_strategic(
        "containers: [{name: a}, {name: live}, {name: b}]",
        "{$setElementOrder/containers: [{name: b}, {name: a}], containers: [{name: b, image: x}]}",
        expect![[r#"{"containers":[{"name":"live"},{"image":"x","name":"b"},{"name":"a"}]}"#]],
    );
    check_strategic(
        "containers: [{name: a}]",
        "{$setElementOrder/containers: [{name: a}], containers: [{name: b}]}",
        expect![[r#"
            500: The order in patch list:
            [map[name:b]]
             doesn't match $setElementOrder list:
            [map[name:a]]
        "#]],
    );
}

#[test]
fn a_renamed_container_goes_behind_the_live_ones() {
    check_strategic(
        "containers: [{name: old}, {name: sidecar}]",
        "{$setElementOrder/containers: [{name: new}], containers: [{name: new}, {name: old, $patch: delete}]}",
        expect![[r#"{"containers":[{"name":"sidecar"},{"name":"new"}]}"#]],
    );
}

#[test]
fn scalars_are_added_once_and_deleted_by_a_list_beside() {
    let ty = kind("v1", "Pod").field("metadata").unwrap().target().unwrap();
    let check = |live: &str, patch: &str, expected: Expect| {
        expected.assert_eq(&shown(schema::strategic_merge_patch(ty, &yaml(live), &yaml(patch))));
    };
    check(
        "finalizers: [a, b]",
        "finalizers: [c, b]",
        expect![[r#"{"finalizers":["c","a","b"]}"#]],
    );
    check(
        "finalizers: [a, b]",
        "$deleteFromPrimitiveList/finalizers: [a]",
        expect![[r#"{"finalizers":["b"]}"#]],
    );
}

#[test]
fn new_values_are_taken_without_their_nulls_and_directives() {
    check_strategic(
        "{}",
        "{securityContext: {runAsUser: null, fsGroup: 1}, containers: [{name: a, $patch: delete}, {name: b}]}",
        expect![[r#"{"containers":[{"name":"b"}],"securityContext":{"fsGroup":1}}"#]],
    );
}

#[test]
fn what_does_not_fit_the_type_is_refused() {
    check_strategic(
        "containers: [{name: a}]",
        "containers: [{image: x}]",
        expect!["500: map: map[image:x] does not contain declared merge key: name"],
    );
    check_strategic(
        "containers: [{name: a}]",
        "containers: [[]]",
        expect!["500: list element types are not identical: [[map[name:a]] [[]]]"],
    );
    check_strategic(
        "foo: {a: 1}",
        "foo: {a: 2}",
        expect![[r#"500: unable to find api field in struct PodSpec for the json field "foo""#]],
    );
}

#[test]
fn operations_apply_in_order() {
    check_operations(
        "{a: {b: [1, 2]}, c: x}",
        r#"[{op: test, path: /c, value: x}, {op: add, path: /a/b/1, value: 9}, {op: add, path: /a/b/-, value: 3},
            {op: remove, path: /c}, {op: copy, from: /a/b/0, path: /first}, {op: move, from: /a/b, path: /list}]"#,
        expect![[r#"{"a":{},"first":1,"list":[1,9,2,3]}"#]],
    );
}

#[test]
fn pointers_escape_slash_and_tilde_and_count_from_the_end() {
    check_operations(
        r#"{"a/b": {"c~d": 1}, l: [1, 2]}"#,
        r#"[{op: replace, path: /a~1b/c~0d, value: 2}, {op: replace, path: /l/-1, value: 3}]"#,
        expect![[r#"{"a/b":{"c~d":2},"l":[1,3]}"#]],
    );
}

#[test]
fn operations_that_fail_say_so_in_upstreams_words() {
    for (patch, expected) in [
        (
            "{op: test, path: /a, value: 2}",
            "422: testing value /a failed: test failed",
        ),
        (
            "{op: add, path: /x/y, value: 2}",
            r#"422: add operation does not apply: doc is missing path: "/x/y": missing value"#,
        ),
        (
            "{op: remove, path: /x}",
            "422: error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            "{op: replace, path: /l/7, value: 2}",
            "422: replace operation does not apply: doc is missing key: /l/7: missing value",
        ),
        (
            "{op: add, path: /l/7, value: 2}",
            "422: error in add for path: '/l/7': Unable to access invalid index: 7: invalid index referenced",
        ),
        ("{op: frob, path: /a}", "422: Unexpected kind: frob"),
    ] {
        let result = schema::json_patch(&yaml("{a: 1, l: []}"), &yaml(&format!("[{patch}]")));
        assert_eq!(shown(result), expected);
    }
    check_operations(
        "{}",
        "{op: add}",
        expect!["400: json: cannot unmarshal object into Go value of type jsonpatch.Patch"],
    );
}

#[test]
fn copies_may_not_blow_an_object_up() {
    let live = Value::from("x".repeat(2 * 1024 * 1024));
    let live = serde_json::json!({ "a": live });
    let patch = yaml("[{op: copy, from: /a, path: /b}, {op: copy, from: /a, path: /c}]");
    expect![[r#"422: Unable to complete the copy, the accumulated size increase of copy is 4194308, exceeding the limit 3145728"#]]
        .assert_eq(&shown(schema::json_patch(&live, &patch)));
}
