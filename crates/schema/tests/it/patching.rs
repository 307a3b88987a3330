use expect_test::{Expect, expect};

use crate::{json, kind, yaml};

/// Applies a strategic merge patch to a pod's spec.
fn check(live: &str, patch: &str, expected: Expect) {
    let ty = kind("v1", "Pod").field("spec").unwrap().target().unwrap();
    let text = match schema::strategic_merge_patch(ty, &yaml(live), &yaml(patch)) {
        Ok(patched) => json(&patched),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&text);
}

#[test]
fn items_are_matched_by_merge_key_and_new_ones_come_first() {
    check(
        "containers: [{name: a, image: x}, {name: b}]",
        "containers: [{name: c}, {name: b, image: z}]",
        expect![[r#"{"containers":[{"name":"c"},{"image":"x","name":"a"},{"image":"z","name":"b"}]}"#]],
    );
}
