use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::kinds::pod::POD;
use crate::{FieldError, Fields};

/// Defaults and checks a pod with this spec, merged into one that is fine.
fn check(spec: Value, expect: Expect) {
    let mut pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"].set(field, value.clone());
    }
    POD.rules.default(&mut pod);
    show(POD.rules.validate(&pod), expect);
}

fn show(problems: Vec<FieldError>, expect: Expect) {
    expect.assert_eq(
        &problems
            .iter()
            .map(FieldError::to_string)
            .collect::<Vec<_>>()
            .join("\n"),
    );
}

fn check_container(fields: Value, expect: Expect) {
    let mut container = json!({"name": "main", "image": "nginx"});
    for (field, value) in fields.as_object().unwrap() {
        container.set(field, value.clone());
    }
    check(
        json!({"containers": [container], "volumes": [{"name": "data"}]}),
        expect,
    );
}

#[test]
fn a_pod_needs_containers_with_names_and_images() {
    check(json!({}), expect![""]);
    check(json!({"containers": []}), expect!["spec.containers: Required value"]);
    check(
        json!({"containers": [{"name": "Main"}, {"name": "a", "image": "x"}, {"name": "a", "image": "x"}]}),
        expect![[r#"
            spec.containers[0].name: Invalid value: "Main": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
            spec.containers[0].image: Required value
            spec.containers[2].name: Duplicate value: "a""#]],
    );
}

#[test]
fn ports_variables_and_mounts_are_checked() {
    check_container(
        json!({"ports": [{"name": "web", "containerPort": 80}, {"name": "web", "containerPort": 70000}]}),
        expect![[r#"
            spec.containers[0].ports[1].name: Duplicate value: "web"
            spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"#]],
    );
    check_container(
        json!({"env": [{"name": ""}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}),
        expect![[r#"
            spec.containers[0].env[0].name: Required value
            spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath: field label not supported: spec.x"#]],
    );
    check_container(
        json!({"volumeMounts": [
            {"name": "data", "mountPath": "/a"}, {"name": "gone", "mountPath": "/a", "subPath": "../x"},
        ]}),
        expect![[r#"
            spec.containers[0].volumeMounts[1].name: Not found: "gone"
            spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique
            spec.containers[0].volumeMounts.subPath: Invalid value: "../x": must not contain '..'"#]],
    );
}

#[test]
fn a_request_is_within_its_limit() {
    check_container(
        json!({"resources": {"requests": {"cpu": "2", "gold": "1"}, "limits": {"cpu": "1"}}}),
        expect![[r#"
            spec.containers[0].resources.requests[gold]: Invalid value: "gold": must be a standard resource type or fully qualified
            spec.containers[0].resources.requests[gold]: Invalid value: "gold": must be a standard resource for containers
            spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#]],
    );
    check_container(
        json!({"resources": {"requests": {"example.com/gpu": "1500m"}}}),
        expect![[r#"
            spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "1500m": must be an integer
            spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"#]],
    );
}

#[test]
fn probes_have_one_handler_and_sane_numbers() {
    check_container(
        json!({
            "livenessProbe": {"httpGet": {"port": 80}, "exec": {"command": ["true"]}, "successThreshold": 2},
            "readinessProbe": {"timeoutSeconds": -1},
        }),
        expect![[r#"
            spec.containers[0].livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type
            spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1
            spec.containers[0].readinessProbe: Required value: must specify a handler type
            spec.containers[0].readinessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0"#]],
    );
}

#[test]
fn volumes_have_one_source_and_what_it_needs() {
    check(
        json!({"volumes": [
            {"name": "a", "secret": {}, "emptyDir": {}},
            {"name": "a", "configMap": {"name": "m", "items": [{"key": "k", "path": "/abs"}], "defaultMode": 4096}},
            {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 60}}]}},
        ]}),
        expect![[r#"
            spec.volumes[2].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set
            spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type
            spec.volumes[1].configMap.defaultMode: Invalid value: 4096: must be a number between 0 and 0777 (octal), both inclusive
            spec.volumes[1].configMap.items[0].path: Invalid value: "/abs": must be a relative path
            spec.volumes[2].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"#]],
    );
}

#[test]
fn affinity_tolerations_and_spreading_are_checked() {
    let required = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In"}]}]});
    check(
        json!({
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 0, "podAffinityTerm": {"topologyKey": "zone"}}]},
            },
            "tolerations": [{"value": "x"}, {"key": "k", "tolerationSeconds": 5, "operator": "Exists"}],
            "topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "Never"}],
        }),
        expect![[r#"
            spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'
            spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100
            spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero
            spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"
            spec.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys"
            spec.tolerations[1].effect: Invalid value: "": effect must be 'NoExecute' when `tolerationSeconds` is set"#]],
    );
}

#[test]
fn only_a_sidecar_among_init_containers_is_probed() {
    let init = |fields: Value| {
        let mut container = json!({"name": "init", "image": "x", "readinessProbe": {"exec": {"command": ["true"]}}});
        for (field, value) in fields.as_object().unwrap() {
            container.set(field, value.clone());
        }
        json!({"initContainers": [container]})
    };
    check(init(json!({"restartPolicy": "Always"})), expect![""]);
    check(
        init(json!({})),
        expect![
            "spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"
        ],
    );
}

#[test]
fn an_existing_pod_changes_little_more_than_its_image() {
    let pod = |spec: Value| {
        let mut pod = json!({"metadata": {"name": "web"}, "spec": spec});
        POD.rules.default(&mut pod);
        pod
    };
    let old = pod(
        json!({"containers": [{"name": "main", "image": "a"}], "tolerations": [{"key": "k", "operator": "Exists"}]}),
    );
    let check = |spec: Value, expect: Expect| show(POD.rules.validate_update(&pod(spec), &old), expect);
    check(
        json!({
            "containers": [{"name": "main", "image": "b", "imagePullPolicy": "Always"}],
            "tolerations": [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "Exists"}],
            "activeDeadlineSeconds": 5,
        }),
        expect![""],
    );
    check(
        json!({"containers": [{"name": "main", "image": "a"}, {"name": "more", "image": "a"}]}),
        expect!["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    check(
        json!({"containers": [{"name": "main", "image": "a"}], "nodeName": "one"}),
        expect![[r#"
            spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds
            spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)
            (changed: spec.nodeName)"#]],
    );
}
