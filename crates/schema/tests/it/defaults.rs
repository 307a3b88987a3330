use expect_test::{Expect, expect};

use crate::{json, kind, yaml};

fn check(api_version: &str, name: &str, object: &str, expected: Expect) {
    let mut value = yaml(object);
    schema::apply_table_defaults(kind(api_version, name), &mut value);
    expected.assert_eq(&json(&value));
}

#[test]
fn missing_and_empty_fields_take_the_tables_default() {
    check(
        "v1",
        "Pod",
        "{spec: {containers: [{ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]}]}}",
        expect![[
            r#"{"spec":{"containers":[{"ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":53,"protocol":"UDP"}]}]}}"#
        ]],
    );
    check(
        "v1",
        "ReplicationController",
        "{spec: {}}",
        expect![[r#"{"spec":{"replicas":1}}"#]],
    );
    check(
        "v1",
        "ReplicationController",
        "{spec: {replicas: 0}}",
        expect![[r#"{"spec":{"replicas":0}}"#]],
    );
}

#[test]
fn constants_stand_for_their_values() {
    check(
        "v1",
        "Pod",
        "{spec: {volumes: [{name: v, azureDisk: {diskName: d}}]}}",
        expect![[
            r#"{"spec":{"volumes":[{"azureDisk":{"cachingMode":"ReadWrite","diskName":"d","fsType":"ext4","kind":"Shared","readOnly":false},"name":"v"}]}}"#
        ]],
    );
}

#[test]
fn a_struct_that_is_not_there_gets_nothing() {
    check("v1", "Pod", "{spec: {}}", expect![[r#"{"spec":{}}"#]]);
}
