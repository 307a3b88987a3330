use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::kinds::config_map::CONFIG_MAP;
use crate::kinds::deployment::DEPLOYMENT;

fn check(resource: &Resource, object: Value, expected: Expect) {
    let usage: Vec<String> = usage(resource, &object, 1000)
        .iter()
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    for name in usage.iter().filter_map(|text| text.split('=').next()) {
        assert!(tracks(resource, name), "{name} is used but not tracked");
    }
    expected.assert_eq(&usage.join(" "));
}

#[test]
fn pods_use_what_they_ask_for_until_they_end() {
    let resources =
        json!({"requests": {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "2"}, "limits": {"cpu": "1"}});
    let pod = json!({"spec": {"containers": [{"name": "a", "resources": resources}], "overhead": {"cpu": "100m"}}});
    check(
        &POD,
        pod.clone(),
        expect![
            "count/pods=1 cpu=600m limits.cpu=1100m memory=1Gi pods=1 requests.cpu=600m requests.example.com/gpu=2 requests.memory=1Gi"
        ],
    );
    let mut ended = pod;
    ended["status"]["phase"] = "Failed".into();
    check(&POD, ended, expect!["count/pods=1"]);
}

#[test]
fn services_count_by_what_they_want() {
    let service = |kind: &str| json!({"spec": {"type": kind, "ports": [{"port": 1}, {"port": 2}]}});
    check(
        &SERVICE,
        service("ClusterIP"),
        expect!["count/services=1 services=1 services.loadbalancers=0 services.nodeports=0"],
    );
    check(
        &SERVICE,
        service("LoadBalancer"),
        expect!["count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"],
    );
}

#[test]
fn claims_count_by_class_too() {
    let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}});
    check(
        &PERSISTENT_VOLUME_CLAIM,
        claim,
        expect![
            "count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi"
        ],
    );
    let requests = json!([{"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}]);
    check(
        &RESOURCE_CLAIM,
        json!({"spec": {"devices": {"requests": requests}}}),
        expect!["count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=2"],
    );
}

#[test]
fn everything_else_is_counted() {
    check(&CONFIG_MAP, json!({}), expect!["configmaps=1 count/configmaps=1"]);
    check(&DEPLOYMENT, json!({}), expect!["count/deployments.apps=1"]);
}

#[test]
fn scopes_choose_pods() {
    let is_in = |quota: Value, pod: Value| matches(&json!({"spec": quota}), &POD, &json!({"spec": pod}));
    let asks = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}], "activeDeadlineSeconds": 5});
    assert!(is_in(
        json!({"scopes": ["BestEffort", "NotTerminating"]}),
        json!({"containers": [{}]})
    ));
    assert!(!is_in(json!({"scopes": ["BestEffort"]}), asks.clone()));
    assert!(is_in(json!({"scopes": ["NotBestEffort", "Terminating"]}), asks));
    let high = |operator: &str| {
        json!({"scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": operator, "values": ["high"]}]}})
    };
    assert!(is_in(high("In"), json!({"priorityClassName": "high"})));
    assert!(!is_in(high("In"), json!({})));
    assert!(is_in(high("NotIn"), json!({})));
    assert!(!matches(
        &json!({"spec": {"scopes": ["BestEffort"]}}),
        &CONFIG_MAP,
        &json!({})
    ));
}
