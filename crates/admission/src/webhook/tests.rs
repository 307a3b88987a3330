use api::kinds::config_map::CONFIG_MAP;
use api::kinds::pod::POD;
use base64::Engine;
use expect_test::expect;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Cluster, create};

fn answer(response: Value, mutating: bool) -> Result<Answer, String> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Answer::parse(review.to_string().as_bytes(), "u1", "v1", mutating)
}

fn hook(fields: Value) -> Hook {
    let mut hook = json!({
        "name": "x.example.com", "sideEffects": "None", "timeoutSeconds": 5, "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "ns", "name": "hook", "port": 443}},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
    });
    hook.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [hook]});
    Hook::all_of(&configuration).remove(0)
}

fn message(result: Result<(), HookError>) -> String {
    result.map_err(HookError::into_error).unwrap_err().message
}

#[test]
fn answers_must_fit_the_question() {
    let problem = |response: Value, mutating: bool| answer(response, mutating).unwrap_err();
    expect![[r#"expected response.uid="u1", got "u2""#]].assert_eq(&problem(json!({"uid": "u2"}), true));
    expect!["webhook returned response.patch but not response.patchType"]
        .assert_eq(&problem(json!({"uid": "u1", "patch": "W10="}), true));
    expect!["webhook returned response.patchType but not response.patch"]
        .assert_eq(&problem(json!({"uid": "u1", "patchType": "JSONPatch"}), true));
    expect!["validating webhook may not return response.patch"].assert_eq(&problem(
        json!({"uid": "u1", "patch": "W10=", "patchType": "JSONPatch"}),
        false,
    ));
    expect!["webhook response was absent"].assert_eq(&problem(Value::Null, true));
    let old = br#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "response": {"uid": "u1"}}"#;
    expect!["expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1beta1, Kind=AdmissionReview"]
        .assert_eq(&Answer::parse(old, "u1", "v1", true).unwrap_err());
    assert!(Answer::parse(old, "u1", "v1beta1", true).is_ok());
}

#[test]
fn refusals_carry_the_webhooks_words_and_code() {
    let denied = |status: Value| answer(json!({"uid": "u1", "allowed": false, "status": status}), false).unwrap();
    let hook = hook(json!({}));
    expect![[r#"admission webhook "x.example.com" denied the request: no"#]]
        .assert_eq(&message(denied(json!({"message": "no"})).allowed_by(&hook)));
    expect![[r#"admission webhook "x.example.com" denied the request: Because"#]]
        .assert_eq(&message(denied(json!({"reason": "Because"})).allowed_by(&hook)));
    expect![[r#"admission webhook "x.example.com" denied the request without explanation"#]]
        .assert_eq(&message(denied(Value::Null).allowed_by(&hook)));
    let Err(HookError::Refused(error)) = denied(json!({"code": 418, "reason": "Teapot"})).allowed_by(&hook) else {
        panic!("the webhook said no");
    };
    assert_eq!((error.code(), &error.to_status()["reason"]), (418, &json!("Teapot")));
}

#[tokio::test]
async fn a_review_names_what_is_asked_and_by_whom() {
    let map = create(&CONFIG_MAP, json!({"metadata": {"name": "m", "namespace": "team"}}));
    let review = Review::new(&map, &CONFIG_MAP, &Cluster::default()).await.unwrap();
    let sent: Value = serde_json::from_slice(&review.encode("v1")).unwrap();
    let mut request = sent["request"].clone();
    request["uid"] = "u".into();
    expect![[r#"{"dryRun":false,"kind":{"group":"","kind":"ConfigMap","version":"v1"},"name":"m","namespace":"team","object":{"metadata":{"name":"m","namespace":"team"}},"oldObject":null,"operation":"CREATE","options":null,"requestKind":{"group":"","kind":"ConfigMap","version":"v1"},"requestResource":{"group":"","resource":"configmaps","version":"v1"},"resource":{"group":"","resource":"configmaps","version":"v1"},"uid":"u","userInfo":{"groups":["system:authenticated"],"username":"jane"}}"#]]
        .assert_eq(&request.to_string());

    let attach = Attributes {
        subresource: "attach".to_owned(),
        ..create(&POD, json!({}))
    };
    let review = Review::new(&attach, &POD, &Cluster::default()).await.unwrap();
    let sent: Value = serde_json::from_slice(&review.encode("v1")).unwrap();
    assert_eq!(sent["request"]["kind"]["kind"], "PodAttachOptions");
    assert_eq!(sent["request"]["subResource"], "attach");
}

#[tokio::test]
async fn a_webhook_that_cannot_be_reached_fails_by_its_policy() {
    let configuration = |policy: &str| {
        json!({"metadata": {"name": "c"}, "webhooks": [{
            "name": "x.example.com", "sideEffects": "None", "timeoutSeconds": 5, "failurePolicy": policy,
            "admissionReviewVersions": ["v1"], "clientConfig": {"service": {"namespace": "ns", "name": "hook"}},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}],
        }]})
    };
    let settings = Settings {
        authorizer: std::sync::Arc::new(auth::authorize::AlwaysAllow),
    };
    let map = create(&CONFIG_MAP, json!({"metadata": {"name": "m", "namespace": "team"}}));
    let ask = async |policy: &str| {
        let cluster = Cluster(vec![(&VALIDATING_WEBHOOK_CONFIGURATION, configuration(policy))]);
        Validating::new(&settings).validate(&map, &cluster).await
    };
    expect![[r#"Internal error occurred: failed calling webhook "x.example.com": failed to call webhook: Post "https://hook.ns.svc:443/?timeout=5s": service "hook" not found"#]]
        .assert_eq(&ask("Fail").await.unwrap_err().message);
    assert!(ask("Ignore").await.is_ok());
    assert!(
        map.remarks
            .annotations()
            .keys()
            .any(|key| key.starts_with("failed-open.validating.webhook"))
    );
}

#[tokio::test]
async fn patches_change_the_object_and_later_changes_bring_a_second_round() {
    let patch = json!([{"op": "add", "path": "/data", "value": {"stage": "1"}}]).to_string();
    let patch = base64::engine::general_purpose::STANDARD.encode(patch);
    let answer = answer(
        json!({"uid": "u1", "allowed": true, "patch": patch, "patchType": "JSONPatch", "warnings": ["careful"]}),
        true,
    )
    .unwrap();
    assert_eq!(answer.warnings, ["careful"]);
    let mut map = create(&CONFIG_MAP, json!({"metadata": {"name": "m", "namespace": "team"}}));
    let review = Review::new(&map, &CONFIG_MAP, &Cluster::default()).await.unwrap();
    let changed = apply(&hook(json!({})), answer, review, &mut map, &Cluster::default()).await;
    assert!(changed.is_ok_and(|changed| changed));
    assert_eq!(map.object["data"]["stage"], "1");

    let rounds = &mut map.reinvocation;
    rounds.called(MUTATING, "first", false, true);
    assert!(!rounds.wanted);
    rounds.called(MUTATING, "second", true, true);
    assert!(rounds.wanted);
    rounds.again = true;
    assert!(rounds.should_call(MUTATING, "first"));
    assert!(!rounds.should_call(MUTATING, "second"), "nothing changed after it");
}
