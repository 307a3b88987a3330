use api::kinds::config_map::CONFIG_MAP;
use api::kinds::deployment::DEPLOYMENT;
use api::kinds::namespace::NAMESPACE;
use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Cluster, create};

fn settings() -> Settings {
    Settings {
        authorizer: Arc::new(auth::authorize::AlwaysAllow),
    }
}

fn deployment(replicas: i64) -> Attributes {
    create(
        &DEPLOYMENT,
        json!({"metadata": {"name": "web", "namespace": "team"}, "spec": {"replicas": replicas}}),
    )
}

fn constraints() -> Value {
    json!({"resourceRules": [{
        "operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
    }]})
}

fn cluster(policy: &'static Resource, binding: &'static Resource, spec: Value, bound: Value) -> Cluster {
    let mut spec = spec;
    spec["matchConstraints"] = constraints();
    let mut bound = bound;
    bound["policyName"] = "p".into();
    let limit = json!({"metadata": {"name": "limit", "namespace": "team"}, "data": {"max": "2"}});
    Cluster(vec![
        (&NAMESPACE, json!({"metadata": {"name": "team"}})),
        (&CONFIG_MAP, limit),
        (policy, json!({"metadata": {"name": "p"}, "spec": spec})),
        (binding, json!({"metadata": {"name": "b"}, "spec": bound})),
    ])
}

async fn validate(spec: Value, bound: Value, attributes: &Attributes) -> Result<(), Error> {
    let cluster = cluster(
        &VALIDATING_ADMISSION_POLICY,
        &VALIDATING_ADMISSION_POLICY_BINDING,
        spec,
        bound,
    );
    Validating::new(&settings()).validate(attributes, &cluster).await
}

fn deny() -> Value {
    json!({"validationActions": ["Deny"]})
}

#[tokio::test]
async fn a_validation_that_does_not_hold_refuses() {
    let spec = json!({"validations": [{"expression": "object.spec.replicas > 1"}]});
    assert!(validate(spec.clone(), deny(), &deployment(2)).await.is_ok());
    let error = validate(spec, deny(), &deployment(1)).await.unwrap_err();
    expect![[r#"deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: object.spec.replicas > 1"#]]
        .assert_eq(&error.message);
    assert_eq!((error.code(), &error.to_status()["reason"]), (422, &json!("Invalid")));
}

#[tokio::test]
async fn messages_come_from_expressions_variables_are_shared() {
    let spec = json!({
        "variables": [
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "odd", "expression": "variables.replicas % 2 == 1"},
        ],
        "validations": [{
            "expression": "!variables.odd", "messageExpression": "'odd: ' + string(variables.replicas)",
            "reason": "Forbidden",
        }],
    });
    let error = validate(spec.clone(), deny(), &deployment(3)).await.unwrap_err();
    assert!(error.message.ends_with("denied request: odd: 3"), "{}", error.message);
    assert_eq!(error.code(), 403);
    assert!(validate(spec, deny(), &deployment(4)).await.is_ok());
}

#[tokio::test]
async fn warnings_and_notes_do_not_refuse() {
    let spec = json!({
        "validations": [{"expression": "false", "message": "never"}],
        "auditAnnotations": [{"key": "seen", "valueExpression": "'replicas ' + string(object.spec.replicas)"}],
    });
    let attributes = deployment(1);
    let actions = json!({"validationActions": ["Warn", "Audit"]});
    assert!(validate(spec, actions, &attributes).await.is_ok());
    assert_eq!(
        attributes.remarks.warnings(),
        ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': never"]
    );
    let annotations = attributes.remarks.annotations();
    assert_eq!(annotations["p/seen"], "replicas 1");
    assert!(annotations["validation.policy.admission.k8s.io/validation_failure"].contains("\"message\":\"never\""));
}

#[tokio::test]
async fn errors_follow_the_failure_policy_and_conditions_come_first() {
    let broken = |policy: &str| json!({"failurePolicy": policy, "validations": [{"expression": "object.none > 1"}]});
    let error = validate(broken("Fail"), deny(), &deployment(1)).await.unwrap_err();
    assert!(
        error
            .message
            .contains("expression 'object.none > 1' resulted in error: no such key: none"),
        "{error}"
    );
    assert!(validate(broken("Ignore"), deny(), &deployment(1)).await.is_ok());
    let skipped = json!({
        "matchConditions": [{"name": "big", "expression": "object.spec.replicas > 5"}],
        "validations": [{"expression": "false"}],
    });
    assert!(validate(skipped.clone(), deny(), &deployment(1)).await.is_ok());
    assert!(validate(skipped, deny(), &deployment(6)).await.is_err());
}

#[tokio::test]
async fn parameters_are_found_by_the_binding() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.spec.replicas <= int(params.data.max)"}],
    });
    let bound = |name: &str, action: &str| json!({"validationActions": ["Deny"], "paramRef": {"name": name, "parameterNotFoundAction": action}});
    assert!(
        validate(spec.clone(), bound("limit", "Deny"), &deployment(2))
            .await
            .is_ok()
    );
    assert!(
        validate(spec.clone(), bound("limit", "Deny"), &deployment(3))
            .await
            .is_err()
    );
    assert!(
        validate(spec.clone(), bound("none", "Allow"), &deployment(3))
            .await
            .is_ok()
    );
    let error = validate(spec, bound("none", "Deny"), &deployment(1)).await.unwrap_err();
    assert!(
        error
            .message
            .contains("no params found for policy binding with `Deny` parameterNotFoundAction"),
        "{error}"
    );
}

#[tokio::test]
async fn mutations_patch_the_object_one_after_the_other() {
    let spec = json!({"mutations": [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {
            "expression": "Object{metadata: Object.metadata{annotations: {'by': 'policy'}}}",
        }},
        {"patchType": "JSONPatch", "jsonPatch": {
            "expression": "[JSONPatch{op: 'test', path: '/metadata/annotations/by', value: 'policy'}, \
                JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}]",
        }},
    ]});
    let cluster = cluster(
        &MUTATING_ADMISSION_POLICY,
        &MUTATING_ADMISSION_POLICY_BINDING,
        spec,
        json!({}),
    );
    let mut attributes = deployment(1);
    Mutating::new(&settings())
        .mutate(&mut attributes, &cluster)
        .await
        .unwrap();
    assert_eq!(attributes.object["metadata"]["annotations"]["by"], "policy");
    assert_eq!(attributes.object["spec"]["replicas"], 2);
    assert!(attributes.reinvocation.wanted);
}
