use expect_test::{Expect, expect};
use schema::ProtobufError;

use crate::{json, kind, yaml};

/// The bytes of an object's message, in hexadecimal and as text where they are text.
fn check(api_version: &str, name: &str, object: &str, expected: Expect) {
    let ty = kind(api_version, name);
    let mut value = yaml(object);
    schema::normalize(ty, &mut value).unwrap();
    let bytes = schema::encode_protobuf(ty, &value).unwrap();
    let again = schema::decode_protobuf(ty, &bytes).unwrap();
    assert_eq!(json(&again), json(&value), "the message must read as it was written");
    expected.assert_eq(&bytes.escape_ascii().to_string());
}

fn round_trip(object: &str) {
    let mut value = yaml(object);
    let (api_version, name) = (value["apiVersion"].as_str().unwrap(), value["kind"].as_str().unwrap());
    let ty = kind(api_version, name);
    schema::normalize(ty, &mut value).unwrap();
    let bytes = schema::encode_object(schema::builtin(), &value).unwrap();
    let again = schema::decode_object(schema::builtin(), &bytes).unwrap();
    assert_eq!(json(&again), json(&value));
}

#[test]
fn plain_scalars_are_written_even_when_zero_and_pointers_are_not() {
    check(
        "autoscaling/v1",
        "Scale",
        "{}",
        expect![[r#"\n\x10\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12\x02\x08\x00\x1a\x04\x08\x00\x12\x00"#]],
    );
    check("v1", "DeleteOptions", "{}", expect![[""]]);
    check(
        "v1",
        "DeleteOptions",
        "{gracePeriodSeconds: 0}",
        expect![[r#"\x08\x00"#]],
    );
}

#[test]
fn maps_are_entries_in_the_order_of_their_keys_and_bytes_are_raw() {
    check(
        "v1",
        "Secret",
        "{data: {b: AAE=, a: ''}, type: Opaque}",
        expect![[
            r#"\n\x10\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12\x05\n\x01a\x12\x00\x12\x07\n\x01b\x12\x02\x00\x01\x1a\x06Opaque"#
        ]],
    );
}

#[test]
fn times_quantities_and_ports_are_messages() {
    check(
        "v1",
        "Service",
        "{spec: {ports: [{port: 80, targetPort: http}]}}",
        expect![[
            r#"\n\x10\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x00\x12&\n\x14\n\x00\x12\x00\x18P\"\n\x08\x01\x10\x00\x1a\x04http(\x00\x1a\x00\"\x00:\x00B\x00R\x00Z\x00`\x00h\x00\x1a\x02\n\x00"#
        ]],
    );
    check(
        "v1",
        "PersistentVolume",
        "{metadata: {creationTimestamp: 2024-01-01T00:00:00Z}, spec: {capacity: {storage: 1Gi}}}",
        expect![[
            r#"\n\x18\n\x00\x12\x00\x1a\x00\"\x00*\x002\x008\x00B\x08\x08\x80\x81\xc8\xac\x06\x10\x00\x12\x18\n\x10\n\x07storage\x12\x05\n\x031Gi\x12\x00*\x002\x00\x1a\x06\n\x00\x12\x00\x1a\x00"#
        ]],
    );
}

#[test]
fn objects_survive_the_trip_through_their_messages() {
    round_trip(
        "
        apiVersion: v1
        kind: Pod
        metadata: {name: a, labels: {x: z}, creationTimestamp: 2024-01-01T00:00:00Z}
        spec:
          volumes: [{name: v, hostPath: {path: /x}}]
          containers:
          - name: c
            ports: [{containerPort: 80}]
            livenessProbe: {httpGet: {port: http}, periodSeconds: 3}
            resources: {limits: {cpu: 100m}}
        ",
    );
    round_trip(
        "{apiVersion: v1, kind: PodList, metadata: {resourceVersion: '7'}, items: [{metadata: {name: a}, spec: {containers: [{name: c}]}}]}",
    );
    round_trip(
        "{apiVersion: v1, kind: Status, status: Failure, reason: NotFound, code: 404, details: {causes: [{field: a}]}}",
    );
    round_trip("{apiVersion: v1, kind: DeleteOptions, gracePeriodSeconds: 0, preconditions: {uid: u}, dryRun: [All]}");
    round_trip(
        "{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}, spec: {replicas: 3}, status: {replicas: 2, selector: a=b}}",
    );
    round_trip(
        "{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {audiences: [a], expirationSeconds: 3600}}",
    );
    round_trip("{apiVersion: policy/v1, kind: Eviction, metadata: {name: a}, deleteOptions: {gracePeriodSeconds: 1}}");
    round_trip("{apiVersion: v1, kind: Binding, metadata: {name: a}, target: {kind: Node, name: node-1}}");
    round_trip("{apiVersion: coordination.k8s.io/v1, kind: Lease, spec: {renewTime: '2024-01-01T00:00:00.000001Z'}}");
    round_trip("{apiVersion: authorization.k8s.io/v1, kind: SubjectAccessReview, spec: {extra: {scopes: [a, b]}}}");
    round_trip("{apiVersion: v1, kind: List, metadata: {}, items: [{apiVersion: v1, kind: Pod}]}");
}

#[test]
fn a_watch_event_carries_an_enveloped_object() {
    let schema = schema::builtin();
    let mut pod = yaml("{apiVersion: v1, kind: Pod, metadata: {name: a}}");
    schema::normalize(kind("v1", "Pod"), &mut pod).unwrap();
    let object = schema::encode_object(schema, &pod).unwrap();
    let event = schema::watch_event("ADDED", &object);
    let read = schema::decode_protobuf(schema.named("meta/v1.WatchEvent").unwrap(), &event).unwrap();
    expect![[r#"{"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":null},"status":{}},"type":"ADDED"}"#]]
        .assert_eq(&json(&read));
}

#[test]
fn packed_numbers_and_unknown_tags_are_read() {
    let ty = kind("v1", "PodPortForwardOptions");
    let packed = [0x0a, 0x03, 80, 0xbb, 0x03, 0x98, 0x06, 0x01];
    expect![[r#"{"ports":[80,443]}"#]].assert_eq(&json(&schema::decode_protobuf(ty, &packed).unwrap()));
}

#[test]
fn what_has_no_message_is_an_error() {
    let table = kind("meta.k8s.io/v1", "Table");
    assert!(matches!(
        schema::encode_protobuf(table, &yaml("{rows: []}")),
        Err(ProtobufError::JsonOnly { .. })
    ));
    let unknown = schema::envelope::encode("example.com/v1", "Widget", b"");
    expect!["no protobuf message is known for example.com/v1 Widget"].assert_eq(
        &schema::decode_object(schema::builtin(), &unknown)
            .unwrap_err()
            .to_string(),
    );
    expect!["the bytes do not begin with the protobuf envelope's prefix"]
        .assert_eq(&schema::decode_object(schema::builtin(), b"{}").unwrap_err().to_string());
}

#[test]
fn a_value_that_was_not_normalised_is_refused() {
    let result = schema::encode_protobuf(kind("v1", "ConfigMap"), &yaml("data: {a: 1}"));
    expect!["core/v1.ConfigMap.data: a number cannot be written as string"].assert_eq(&result.unwrap_err().to_string());
}
