use expect_test::{Expect, expect};

use crate::{json, kind};

fn check(api_version: &str, name: &str, input: &str, expected: Expect) {
    let text = match schema::decode_json(kind(api_version, name), input.as_bytes()) {
        Ok(decoded) => {
            let mut lines = vec![json(&decoded.value)];
            lines.extend(decoded.problems);
            lines.join("\n")
        }
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&text);
}

fn check_deployment(input: &str, expected: Expect) {
    check("apps/v1", "Deployment", input, expected);
}

fn check_pod(input: &str, expected: Expect) {
    check("v1", "Pod", input, expected);
}

#[test]
fn structs_are_always_there_and_lists_without_omitempty_are_null() {
    check_deployment(
        r#"{"kind":"Deployment","apiVersion":"apps/v1","spec":{"template":{"spec":{}}}}"#,
        expect![[
            r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{},"spec":{"selector":null,"strategy":{},"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#
        ]],
    );
}

#[test]
fn zero_values_and_nulls_are_dropped_but_pointers_keep_zero() {
    check_deployment(
        r#"{"metadata":{"name":"","labels":{},"annotations":null,"generation":0,"creationTimestamp":null},
            "spec":{"replicas":0,"paused":false,"minReadySeconds":0,"selector":{},
                    "template":{"spec":{"containers":[],"securityContext":{}}}}}"#,
        expect![[
            r#"{"metadata":{},"spec":{"replicas":0,"selector":{},"strategy":{},"template":{"metadata":{},"spec":{"containers":[],"securityContext":{}}}},"status":{}}"#
        ]],
    );
}

#[test]
fn null_inside_lists_and_maps_is_the_zero_value() {
    check_pod(
        r#"{"metadata":{"labels":{"a":null}},"spec":{"containers":[null]}}"#,
        expect![[r#"{"metadata":{"labels":{"a":""}},"spec":{"containers":[{"name":"","resources":{}}]},"status":{}}"#]],
    );
}

#[test]
fn quantities_and_times_are_canonical() {
    check_pod(
        r#"{"metadata":{"creationTimestamp":"2024-05-01T12:00:00.25+02:00"},
            "spec":{"overhead":{"cpu":0.5,"memory":"1024Mi","x":"1000m","y":null}, "containers":null}}"#,
        expect![[
            r#"{"metadata":{"creationTimestamp":"2024-05-01T10:00:00Z"},"spec":{"containers":null,"overhead":{"cpu":"500m","memory":"1Gi","x":"1","y":"0"}},"status":{}}"#
        ]],
    );
}

#[test]
fn strict_problems_come_in_the_order_of_the_input() {
    check_deployment(
        r#"{"z":1,"spec":{"replicas":1,"foo":{"bar":[1,{"a":"b"}]},"replicas":2,
             "template":{"spec":{"containers":[{"name":"a","imag":"x"},{"name":"b","env":[{"nam":1}]}]},
             "metadata":{"labels":{"a":"1","a":"2"}}}}}"#,
        expect![[r#"
            {"metadata":{},"spec":{"replicas":2,"selector":null,"strategy":{},"template":{"metadata":{"labels":{"a":"2"}},"spec":{"containers":[{"name":"a","resources":{}},{"env":[{"name":""}],"name":"b","resources":{}}]}}},"status":{}}
            unknown field "z"
            unknown field "spec.foo"
            duplicate field "spec.replicas"
            unknown field "spec.template.spec.containers[0].imag"
            unknown field "spec.template.spec.containers[1].env[0].nam"
            duplicate field "spec.template.metadata.labels.a""#]],
    );
}

#[test]
fn wrong_types_are_named_as_go_names_them() {
    check_deployment(
        r#"{"spec":{"replicas":"3"}}"#,
        expect!["error: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"],
    );
    check_deployment(
        r#"{"spec":{"replicas":3.5}}"#,
        expect![
            "error: json: cannot unmarshal number 3.5 into Go struct field DeploymentSpec.spec.replicas of type int32"
        ],
    );
    check_pod(
        r#"{"metadata":{"labels":{"a":1}}}"#,
        expect!["error: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"],
    );
    check_pod(
        r#"{"spec":{"containers":{"name":"a"}}}"#,
        expect![
            "error: json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"
        ],
    );
    check_pod(
        r#"{"spec":{"volumes":[{"name":"a","hostPath":"x"}]}}"#,
        expect![
            "error: json: cannot unmarshal string into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource"
        ],
    );
    check_pod(
        "[]",
        expect!["error: json: cannot unmarshal array into Go value of type v1.Pod"],
    );
}

#[test]
fn broken_syntax_is_reported_as_go_does_and_comes_first() {
    check_pod("", expect!["error: unexpected end of JSON input"]);
    check_pod("{", expect!["error: unexpected end of JSON input"]);
    check_pod(
        "{]",
        expect!["error: invalid character ']' looking for beginning of object key string"],
    );
    check_pod(r#"{"a" 1}"#, expect!["error: invalid character '1' after object key"]);
    check_pod(
        r#"{"a":1 "b"}"#,
        expect![[r#"error: invalid character '"' after object key:value pair"#]],
    );
    check_pod(
        r#"{"a":[1 2]}"#,
        expect!["error: invalid character '2' after array element"],
    );
    check_pod(
        r#"{"a":tru}"#,
        expect!["error: invalid character '}' in literal true (expecting 'e')"],
    );
    check_pod(
        r#"{"spec":1} x"#,
        expect!["error: invalid character 'x' after top-level value"],
    );
}

#[test]
fn raw_json_stays_as_it_is() {
    check(
        "apps/v1",
        "ControllerRevision",
        r#"{"data":{"spec":{"a":[1,2.5,null],"b":"<&>"}},"revision":1}"#,
        expect![[r#"{"metadata":{},"data":{"spec":{"a":[1,2.5,null],"b":"\u003c\u0026\u003e"}},"revision":1}"#]],
    );
}

#[test]
fn yaml_is_read_as_json_would_be() {
    let check = |input: &str, expected: Expect| {
        let text = match schema::decode_yaml(kind("v1", "ConfigMap"), input.as_bytes()) {
            Ok(decoded) => format!("{}\n{}", json(&decoded.value), decoded.problems.join("\n")),
            Err(error) => format!("error: {error}"),
        };
        expected.assert_eq(&text);
    };
    check(
        "
apiVersion: v1
kind: ConfigMap
data:
  a: |
    two
    lines
  n: \"5\"
foo: 1
",
        expect![[r#"
            {"apiVersion":"v1","kind":"ConfigMap","metadata":{},"data":{"a":"two\nlines\n","n":"5"}}
            unknown field "foo""#]],
    );
    check(
        "data:\n  a: x\n  a: z\n",
        expect![[r#"
        {"metadata":{},"data":{"a":"z"}}
        yaml: unmarshal errors:
          line 3: key "a" already set in map"#]],
    );
    check(
        "data: {a: 5}",
        expect!["error: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"],
    );
    check(
        "data: [",
        expect!["error: error converting YAML to JSON: yaml: line 1: unclosed bracket '[' at line 1, column 7"],
    );
}

#[test]
fn documents_without_a_schema_report_what_comes_twice() {
    let decoded =
        schema::decode_untyped(br#"{"a":[{"b":1,"b":2}],"c":{"d":1e3,"e":12345678901234567890},"c":1}"#).unwrap();
    expect![[r#"
        {"a":[{"b":2}],"c":1}
        duplicate field "a[0].b"
        duplicate field "c""#]]
    .assert_eq(&format!("{}\n{}", json(&decoded.value), decoded.problems.join("\n")));
}

#[test]
fn text_that_is_not_unicode_is_replaced_as_go_replaces_it() {
    let input = [
        br#"{"metadata":{"name":""#.as_slice(),
        b"\xff\xe2\x80",
        br#"\ud800\ud83d\ude00"}}"#,
    ]
    .concat();
    let decoded = schema::decode_json(kind("v1", "ConfigMap"), &input).unwrap();
    expect![[r#"{"metadata":{"name":"����😀"}}"#]].assert_eq(&json(&decoded.value));
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| {
        let open = r#"{"not":"#.repeat(depth);
        let close = "}".repeat(depth);
        format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{open}{{}}{close}}}}}]}}}}"#)
    };
    let ty = kind("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let deepest = schema::MAX_DEPTH - 6;
    let mut value = schema::decode_json(ty, nested(deepest).as_bytes()).unwrap().value;
    schema::normalize(ty, &mut value).unwrap();
    let message = schema::encode_protobuf(ty, &value).unwrap();
    assert_eq!(schema::decode_protobuf(ty, &message).unwrap(), value);
    assert!(schema::strategic_merge_patch(ty, &value, &value).is_ok());
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &nested(deepest + 1),
        expect!["error: exceeded max depth"],
    );
    check("v1", "Pod", &"[".repeat(100_000), expect!["error: exceeded max depth"]);
}
