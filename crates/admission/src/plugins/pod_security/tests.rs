use api::kinds::deployment::DEPLOYMENT;
use expect_test::expect;
use serde_json::json;

use super::*;
use crate::testing::{Cluster, create, pod, run, update};

fn namespace(labels: Value) -> Value {
    json!({"metadata": {"name": "default", "labels": labels}})
}

fn cluster(mode: &str, level: &str) -> Cluster {
    let label = format!("pod-security.kubernetes.io/{mode}");
    Cluster(vec![(&NAMESPACE, namespace(json!({ label: level })))])
}

fn refusal(level: &str, spec: Value) -> String {
    let error = run(&PodSecurity, create(&POD, pod(spec)), &cluster("enforce", level)).unwrap_err();
    error.split_once(": ").map_or(error.clone(), |(_, why)| why.to_owned())
}

#[test]
fn the_restricted_standard_asks_for_a_lot() {
    expect![[r#"violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#]]
        .assert_eq(&refusal("restricted", json!({"containers": [{"name": "c"}]})));
    let good = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        }}],
    });
    assert!(run(&PodSecurity, create(&POD, pod(good)), &cluster("enforce", "restricted")).is_ok());
}

#[test]
fn the_baseline_standard_keeps_pods_off_their_node() {
    let spec = json!({
        "hostNetwork": true, "hostPID": true,
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
        "securityContext": {"sysctls": [{"name": "kernel.msgmax"}]},
        "containers": [
            {"name": "a", "ports": [{"hostPort": 80}], "securityContext": {"privileged": true}},
            {"name": "b", "ports": [{"hostPort": 81}], "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}},
        ],
    });
    expect![[r#"violates PodSecurity "baseline:latest": non-default capabilities (container "b" must not include "NET_ADMIN" in securityContext.capabilities.add), host namespaces (hostNetwork=true, hostPID=true), hostPath volumes (volume "v"), hostPort (containers "a", "b" use hostPorts 80, 81), privileged (container "a" must not set securityContext.privileged=true), forbidden sysctls (kernel.msgmax)"#]]
        .assert_eq(&refusal("baseline", spec));
    assert!(
        run(
            &PodSecurity,
            create(&POD, pod(json!({"containers": [{"name": "c"}]}))),
            &cluster("enforce", "baseline")
        )
        .is_ok()
    );
}

#[test]
fn older_versions_ask_for_less() {
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "v1.18",
    });
    let cluster = Cluster(vec![(&NAMESPACE, namespace(labels))]);
    let error = run(
        &PodSecurity,
        create(&POD, pod(json!({"containers": [{"name": "c"}]}))),
        &cluster,
    )
    .unwrap_err();
    assert!(
        error.contains("restricted:v1.18") && !error.contains("seccomp") && !error.contains("capabilities"),
        "{error}"
    );
}

#[test]
fn templates_only_warn() {
    let deployment = json!({
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"template": {"spec": {"hostNetwork": true, "containers": [{"name": "c"}]}}},
    });
    let attributes = create(&DEPLOYMENT, deployment);
    let remarks = attributes.remarks.clone();
    assert!(run(&PodSecurity, attributes, &cluster("warn", "baseline")).is_ok());
    assert_eq!(
        remarks.warnings(),
        ["would violate PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)"]
    );
}

#[test]
fn labels_of_a_namespace_are_checked_and_existing_pods_named() {
    let wrong = create(
        &NAMESPACE,
        namespace(json!({"pod-security.kubernetes.io/enforce": "strict"})),
    );
    expect![[r#"Namespace "default" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted"#]]
        .assert_eq(&run(&PodSecurity, wrong, &Cluster::default()).unwrap_err());
    let stricter = update(
        &NAMESPACE,
        namespace(json!({})),
        namespace(json!({"pod-security.kubernetes.io/enforce": "baseline"})),
    );
    let remarks = stricter.remarks.clone();
    let mut host = pod(json!({"hostNetwork": true, "containers": []}));
    host["metadata"]["name"] = "p".into();
    assert!(run(&PodSecurity, stricter, &Cluster(vec![(&POD, host)])).is_ok());
    assert_eq!(
        remarks.warnings(),
        [
            "existing pods in namespace \"default\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "p: host namespaces"
        ]
    );
}
