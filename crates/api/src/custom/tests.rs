use expect_test::{Expect, expect};
use serde_json::json;

use super::jsonpath::FullPath;
use super::{
    Definition, Printed, Structural, compare_versions, defaults, naming, prune, validate, validate_definition_schema,
};
use crate::{Path, Value};

fn yaml(text: &str) -> Value {
    schema::parse_yaml(text.as_bytes()).unwrap()
}

const SCHEMA: &str = "
type: object
properties:
  spec:
    type: object
    required: [size]
    properties:
      size: { type: integer, minimum: 1, maximum: 9, multipleOf: 2 }
      name: { type: string, minLength: 2, maxLength: 4, pattern: '^[a-z]+$', default: abc }
      mode: { type: string, enum: [fast, slow], nullable: true }
      port: { x-kubernetes-int-or-string: true }
      address: { type: string, format: ipv4 }
      rest: { type: object, x-kubernetes-preserve-unknown-fields: true, properties: { known: { type: object } } }
      limits: { type: object, additionalProperties: { type: object, properties: { max: { type: integer } } } }
      items:
        type: array
        maxItems: 2
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [key]
        items: { type: object, required: [key], properties: { key: { type: string }, value: { type: string, default: v } } }
      tags: { type: array, x-kubernetes-list-type: set, items: { type: string } }
      object: { type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true }
      either:
        type: object
        properties: { a: { type: string }, b: { type: string } }
        oneOf: [{ required: [a] }, { required: [b] }]
";

fn structural() -> Structural {
    Structural::parse(&yaml(SCHEMA))
}

fn check_pruned(object: &str, dropped: &[&str], kept: Value) {
    let mut value = yaml(object);
    assert_eq!(prune::prune(&structural(), &mut value), dropped, "{object}");
    assert_eq!(value, kept, "{object}");
}

#[test]
fn what_the_schema_does_not_know_is_dropped() {
    check_pruned(
        "{apiVersion: a/v1, kind: A, metadata: {name: a}, extra: 1, spec: {size: 2, foo: {bar: 1}}}",
        &["extra", "spec.foo"],
        json!({ "apiVersion": "a/v1", "kind": "A", "metadata": { "name": "a" }, "spec": { "size": 2 } }),
    );
    check_pruned(
        "{spec: {items: [{key: a, other: 1}], limits: {cpu: {max: 1, min: 0}}}}",
        &["spec.items[0].other", "spec.limits.cpu.min"],
        json!({ "spec": { "items": [{ "key": "a" }], "limits": { "cpu": { "max": 1 } } } }),
    );
}

#[test]
fn unknown_fields_stay_where_the_schema_preserves_them() {
    check_pruned(
        "{spec: {rest: {any: {thing: 1}, known: {not: 1}}, object: {apiVersion: v1, kind: Pod, spec: {a: 1}}}}",
        &["spec.rest.known.not"],
        json!({ "spec": {
            "rest": { "any": { "thing": 1 }, "known": {} },
            "object": { "apiVersion": "v1", "kind": "Pod", "spec": { "a": 1 } },
        } }),
    );
}

#[test]
fn defaults_fill_what_is_absent_and_replace_null_where_null_is_not_allowed() {
    let mut value = yaml("{spec: {name: null, mode: null, size: null, items: [{key: a}, {key: b, value: w}]}}");
    defaults::apply(&structural(), &mut value);
    let items = json!([{ "key": "a", "value": "v" }, { "key": "b", "value": "w" }]);
    assert_eq!(
        value,
        json!({ "spec": { "name": "abc", "mode": null, "items": items } })
    );
    let mut absent = yaml("{}");
    defaults::apply(&structural(), &mut absent);
    assert_eq!(absent, json!({}), "a default does not make its parent");
}

fn check(object: &str, expected: Expect) {
    check_update(object, None, expected);
}

fn check_update(object: &str, old: Option<&str>, expected: Expect) {
    let old = old.map(yaml);
    let problems = validate::validate(&structural(), &yaml(object), old.as_ref());
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    expected.assert_eq(&texts.join("\n"));
}

#[test]
fn values_are_validated_with_upstreams_texts() {
    check(
        "{spec: {size: 2, name: abc, port: 80, mode: fast, address: 10.0.0.1}}",
        expect![[""]],
    );
    check(
        "{spec: {size: two, name: A, mode: medium, port: true, address: here}}",
        expect![[r#"
            spec.address: Invalid value: "here": spec.address in body must be of type ipv4: "here"
            spec.mode: Unsupported value: "medium": supported values: "fast", "slow"
            spec.name: Invalid value: "A": spec.name in body should be at least 2 chars long
            spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"
            spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#]],
    );
    check(
        "{spec: {size: 11, name: abcde}}",
        expect![[r#"
            spec.name: Too long: may not be more than 4 bytes
            spec.size: Invalid value: 11: spec.size in body should be a multiple of 2
            spec.size: Invalid value: 11: spec.size in body should be less than or equal to 9"#]],
    );
    check(
        "{spec: {either: {}, object: {kind: Pod}, tags: [a, a], items: [{key: a}, {key: a}, {value: x}]}}",
        expect![[r#"
            <nil>: Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found none valid
            spec.either.a: Required value
            spec.items[2].key: Required value
            spec.items: Too many: 3: must have at most 2 items
            spec.size: Required value
            spec.object.apiVersion: Required value
            spec.items[1]: Duplicate value: {"key":"a"}
            spec.tags[1]: Duplicate value: "a""#]],
    );
}

#[test]
fn what_was_invalid_before_and_did_not_change_is_let_through() {
    let old = "{spec: {size: 11, name: A}}";
    check_update(
        "{metadata: {labels: {a: b}}, spec: {size: 11, name: A}}",
        Some(old),
        expect![[""]],
    );
    check_update(
        "{spec: {size: 13, name: A}}",
        Some(old),
        expect![[r#"
            spec.size: Invalid value: 13: spec.size in body should be a multiple of 2
            spec.size: Invalid value: 13: spec.size in body should be less than or equal to 9"#]],
    );
}

fn check_schema(text: &str, expected: Expect) {
    let problems = validate_definition_schema(&yaml(text), &Path::new("schema"));
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    expected.assert_eq(&texts.join("\n"));
}

#[test]
fn schemas_must_be_structural() {
    check_schema(SCHEMA, expect![[""]]);
    check_schema(
        "{properties: {a: {}, l: {type: array}, m: {type: object, uniqueItems: true, properties: {x: {type: string}}, additionalProperties: {type: string}}}}",
        expect![[r#"
            schema.type: Required value: must not be empty at the root
            schema.properties[a].type: Required value: must not be empty for specified object fields
            schema.properties[l].items: Required value: must be specified
            schema.properties[m].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic
            schema.properties[m].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"#]],
    );
    check_schema(
        "{type: object, properties: {a: {type: integer, default: x}, b: {type: string, pattern: '('}}, oneOf: [{properties: {c: {minimum: 1, type: integer}}}]}",
        expect![[r#"
            schema.properties[a].default: Invalid value: "string":  in body must be of type integer: "string"
            schema.properties[b].pattern: Invalid value: "(": must be a valid regular expression, but isn't: regex parse error:
                (
                ^
            error: unclosed group
            schema.oneOf[0].properties[c].type: Forbidden: must be empty to be structural
            schema.properties[c]: Required value: because it is defined in schema.oneOf[0].properties[c]"#]],
    );
}

#[test]
fn versions_are_ordered_by_preference() {
    let mut versions = ["v1beta1", "foo", "v2", "v1alpha2", "v10", "v1", "v1beta2"];
    versions.sort_by(|a, b| compare_versions(a, b));
    assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha2", "foo"]);
}

#[test]
fn columns_follow_their_paths() {
    let columns = yaml(
        "- {name: Size, type: integer, jsonPath: .spec.size}
- {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type==\"Ready\")].status'}
- {name: Names, type: string, jsonPath: '.spec.items[*].key'}
- {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
- {name: None, type: string, jsonPath: .spec.none}",
    );
    let printed = Printed::parse(columns.as_array().unwrap());
    let object = yaml(
        "{metadata: {name: a, creationTimestamp: '1970-01-01T00:00:00Z'}, spec: {size: 3, items: [{key: x}, {key: z}]},
          status: {conditions: [{type: Ready, status: 'True'}, {type: Other, status: 'False'}]}}",
    );
    assert_eq!(
        json!(printed.cells(&object, 90)),
        json!(["a", 3, "True", "x", "90s", null])
    );
    assert_eq!(FullPath::parse(".a[").map(|_| ()), None);
}

const DEFINITION: &str = "
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, singular: foo, kind: Foo, listKind: FooList, shortNames: [f]}
  versions:
  - {name: v1, served: true, storage: false, deprecated: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}, selectableFields: [{jsonPath: .spec.color}]}
";

#[test]
fn a_definition_gets_its_names_unless_somebody_has_them() {
    let mut definition = yaml(DEFINITION);
    let status = naming::status(&definition, &[], "now").unwrap();
    assert_eq!(status["acceptedNames"]["shortNames"], json!(["f"]));
    assert_eq!(status["conditions"][0]["reason"], "NoConflicts");
    assert_eq!(status["conditions"][1]["reason"], "InitialNamesAccepted");
    definition["status"] = status;
    assert_eq!(naming::status(&definition, &[], "later"), None, "nothing is left to do");

    let mut other = yaml(DEFINITION);
    other["spec"]["names"]["plural"] = "bars".into();
    let status = naming::status(&other, &[definition], "now").unwrap();
    assert_eq!(status["conditions"][0]["reason"], "SingularConflict");
    assert_eq!(status["conditions"][0]["message"], "\"foo\" is already in use");
    assert_eq!(status["conditions"][1]["status"], "False");
}

#[test]
fn versions_know_their_fields_and_warnings() {
    let definition = Definition::parse(&yaml(DEFINITION));
    assert_eq!(definition.storage, "v2");
    let v2 = definition.version("v2").unwrap();
    let object = yaml("{spec: {color: red}}");
    assert_eq!(v2.field(&object, "spec.color").as_deref(), Some("red"));
    assert_eq!(v2.field(&object, "spec.size"), None);
    let warning = definition.version("v1").unwrap().warning.clone();
    assert_eq!(
        warning.as_deref(),
        Some("example.com/v1 Foo is deprecated; use example.com/v2 Foo")
    );
}

#[test]
fn rules_in_cel_are_asked_of_objects_and_of_changes() {
    let definition = yaml(
        "
spec:
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: { low: { type: integer }, high: { type: integer }, fixed: { type: string } }
            x-kubernetes-validations:
            - { rule: self.low <= self.high, message: low is above high }
            - { rule: self.fixed == oldSelf.fixed, reason: FieldValueForbidden, fieldPath: .fixed }
",
    );
    let version = &Definition::parse(&definition).versions[0];
    let object = |low: i64, fixed: &str| json!({ "spec": { "low": low, "high": 5, "fixed": fixed } });
    let told = |new: &Value, old: Option<&Value>| -> Vec<String> {
        version.validate(new, old).iter().map(ToString::to_string).collect()
    };
    assert_eq!(told(&object(1, "a"), None), [""; 0]);
    expect![[r#"["spec: Invalid value: \"object\": low is above high"]"#]]
        .assert_eq(&format!("{:?}", told(&object(6, "a"), None)));
    expect![[r#"["spec.fixed: Forbidden: failed rule: self.fixed == oldSelf.fixed"]"#]]
        .assert_eq(&format!("{:?}", told(&object(1, "b"), Some(&object(1, "a")))));
    assert_eq!(
        told(&json!({ "spec": { "low": "x" } }), None).len(),
        1,
        "rules are not asked of wrong types"
    );
}

#[test]
fn a_definition_whose_rules_do_not_compile_is_refused() {
    let schema = yaml(
        "
type: object
properties:
  spec:
    type: object
    properties: { low: { type: integer } }
    x-kubernetes-validations: [{ rule: self.lower > 1 }]
",
    );
    let problems = validate_definition_schema(&schema, &Path::new("openAPIV3Schema"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    let told = problems[0].to_string();
    assert!(
        told.starts_with("openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: "),
        "{told}"
    );
    assert!(told.contains("undefined field 'lower'"), "{told}");
}
