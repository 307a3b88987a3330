//! Objects that look fine and are not, and one that looks wrong and is. All texts are upstream's.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use expect_test::expect;
use serde_json::{Value, json};

use super::core_tests::{check, check_pod};

fn volume(field: &str, value: Value) -> Value {
    let mut spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "example.com", "volumeHandle": "h"},
    });
    if field == "hostPath" {
        spec.as_object_mut().unwrap().remove("csi");
    }
    spec[field] = value;
    json!({"spec": spec})
}

#[test]
fn a_persistent_volume_on_a_host_has_a_plain_path_and_a_known_type() {
    let volume = |path: &str, kind: &str| volume("hostPath", json!({"path": path, "type": kind}));
    check(
        &super::persistent_volume::PERSISTENT_VOLUME,
        volume("/x", "File"),
        expect![""],
    );
    check(
        &super::persistent_volume::PERSISTENT_VOLUME,
        volume("/x/../y", "Odd"),
        expect![[r#"
            spec.hostPath.path: Invalid value: "/x/../y": must not contain '..'
            spec.hostPath.type: Unsupported value: "Odd": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket""#]],
    );
}

#[test]
fn only_drivers_have_classes_of_attributes() {
    let resource = &super::persistent_volume::PERSISTENT_VOLUME;
    let class = |name: &str| volume("volumeAttributesClassName", name.into());
    check(resource, class("gold"), expect![""]);
    check(
        resource,
        class(""),
        expect!["spec.volumeAttributesClassName: Required value: an empty string is disallowed"],
    );
    let mut local = volume("hostPath", json!({"path": "/x"}));
    local["spec"]["volumeAttributesClassName"] = "gold".into();
    check(
        resource,
        local,
        expect!["spec.csi: Required value: has to be specified when using volumeAttributesClassName"],
    );
}

#[test]
fn a_container_names_a_claim_or_parts_of_it_once() {
    let container = |claims: Value| {
        json!({
            "containers": [{"name": "main", "image": "nginx", "resources": {"claims": claims}}],
            "resourceClaims": [{"name": "a", "resourceClaimName": "x"}],
        })
    };
    check_pod(
        container(json!([{"name": "a", "request": "r"}, {"name": "a", "request": "s"}])),
        expect![""],
    );
    check_pod(
        container(json!([{"name": "a"}, {"name": "a", "request": "r"}])),
        expect![[r#"spec.containers[0].resources.claims[1]: Duplicate value: "a""#]],
    );
    check_pod(
        container(json!([{"name": "a", "request": "r"}, {"name": "a"}])),
        expect![[r#"spec.containers[0].resources.claims[1]: Duplicate value: "a""#]],
    );
    check_pod(
        container(json!([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}])),
        expect![[r#"spec.containers[0].resources.claims[1]: Duplicate value: "a/r""#]],
    );
}

#[test]
fn templates_carry_labels_and_annotations_alone() {
    let metadata = json!({"labels": {"a": "b"}, "annotations": {"a": "b"}, "name": "n", "finalizers": ["x"]});
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let template = json!({"metadata": metadata, "spec": claim});
    check_pod(
        json!({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]}),
        expect![[r#"
            spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.finalizers: Forbidden: cannot be set
            spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set"#]],
    );
    let devices = json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]});
    check(
        &super::resource_claim_template::RESOURCE_CLAIM_TEMPLATE,
        json!({"spec": {"metadata": {"name": "n"}, "spec": {"devices": devices}}}),
        expect!["spec.metadata.name: Forbidden: cannot be set"],
    );
}

#[test]
fn ports_of_init_containers_need_not_be_the_nodes() {
    let ports = json!([{"hostPort": 81, "containerPort": 80}]);
    let container = json!({"name": "first", "image": "nginx", "ports": ports});
    check_pod(json!({"hostNetwork": true, "initContainers": [container]}), expect![""]);
    check_pod(
        json!({"hostNetwork": true, "containers": [container]}),
        expect![
            "spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"
        ],
    );
}

#[test]
fn variables_come_from_files_of_an_empty_dir_alone() {
    let reference = json!({"volumeName": "v", "path": "env", "key": "A"});
    let container = json!({
        "name": "main", "image": "nginx", "env": [{"name": "A", "valueFrom": {"fileKeyRef": reference}}],
    });
    let spec = |source: &str| json!({"containers": [container], "volumes": [{"name": "v", source: {}}]});
    check_pod(spec("emptyDir"), expect![""]);
    check_pod(
        spec("downwardAPI"),
        expect![[
            r#"spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "v": referenced volume must be of type emptyDir"#
        ]],
    );
}

#[test]
fn a_container_that_ended_runs_again_only_where_a_rule_can_restart_all() {
    let pod = |rules: serde_json::Value, state: serde_json::Value| {
        json!({
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "a", "restartPolicy": "Never", "restartPolicyRules": rules}, {"name": "b"},
            ]},
            "status": {"containerStatuses": [{"name": "b", "state": state}]},
        })
    };
    let refused = |rules: serde_json::Value| {
        let (ended, running) = (json!({"terminated": {"exitCode": 1}}), json!({"running": {}}));
        let rules_of_pods = super::pod::POD.rules;
        rules_of_pods.validate_status_update(&pod(rules.clone(), running), &pod(rules, ended))
    };
    assert_eq!(refused(json!([])).len(), 1);
    let all = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    assert!(refused(all).is_empty());
}

#[test]
fn an_ephemeral_container_is_never_restarted_or_resized() {
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}});
    let container = json!({
        "name": "debug", "image": "busybox", "restartPolicy": "Always", "restartPolicyRules": [rule],
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}],
    });
    check_pod(
        json!({"ephemeralContainers": [container], "volumes": [{"name": "v", "emptyDir": {}}]}),
        expect![[r#"
            spec.ephemeralContainers[0].resizePolicy: Forbidden: cannot be set for an Ephemeral Container
            spec.ephemeralContainers[0].restartPolicy: Forbidden: cannot be set for an Ephemeral Container
            spec.ephemeralContainers[0].restartPolicyRules: Forbidden: cannot be set for an Ephemeral Container
            spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container
            spec.ephemeralContainers: Forbidden: cannot be set on create"#]],
    );
}

#[test]
fn a_binding_of_a_mutating_policy_is_not_for_deletions() {
    let rule = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["DELETE"]});
    check(
        &super::mutating_admission_policy_binding::MUTATING_ADMISSION_POLICY_BINDING,
        json!({"spec": {"policyName": "p", "matchResources": {"resourceRules": [rule]}}}),
        expect![[
            r#"spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE""#
        ]],
    );
}

#[test]
fn a_device_class_stands_for_an_extended_resource() {
    let class = |name: &str| json!({"spec": {"extendedResourceName": name}});
    let resource = &super::device_class::DEVICE_CLASS;
    check(resource, class("example.com/gpu"), expect![""]);
    for name in ["", "bad", "kubernetes.io/x", "requests.example.com/x", "example.com/"] {
        let problems = resource.rules.validate(&class(name));
        assert_eq!(problems.len(), 1, "{name}");
        assert_eq!(problems[0].field, "spec.extendedResourceName", "{name}");
    }
}

#[test]
fn a_device_says_in_one_way_where_it_is() {
    let slice = |by_device: bool, device: Value| {
        let mut spec = json!({
            "driver": "example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": [device],
        });
        match by_device {
            true => spec["perDeviceNodeSelection"] = true.into(),
            false => spec["nodeName"] = "one".into(),
        }
        json!({"spec": spec})
    };
    let resource = &super::resource_slice::RESOURCE_SLICE;
    check(
        resource,
        slice(true, json!({"name": "d", "nodeName": "one"})),
        expect![""],
    );
    check(
        resource,
        slice(false, json!({"name": "d", "nodeName": "one"})),
        expect![
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        ],
    );
    check(
        resource,
        slice(true, json!({"name": "d", "nodeName": "one", "allNodes": true})),
        expect![[
            r#"spec.devices[0]: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"#
        ]],
    );
    let policy = json!({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}});
    let device = json!({"name": "d", "capacity": {"m": {"value": "10", "requestPolicy": policy}}});
    check(
        resource,
        slice(false, device),
        expect![[
            r#"spec.devices[0].capacity[m].requestPolicy: Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#
        ]],
    );
}

#[test]
fn a_node_declares_features_in_order_and_once() {
    let node = |features: Value| json!({"status": {"declaredFeatures": features}});
    let resource = &super::node::NODE;
    check(resource, node(json!(["A1", "A1/B", "Ab/c/d"])), expect![""]);
    check(
        resource,
        node(json!(["B", "A", "A"])),
        expect![[r#"
            status.declaredFeatures[1]: Invalid value: "A": list must be sorted alphabetically
            status.declaredFeatures[2]: Duplicate value: "A""#]],
    );
    for name in ["", "a", "A/", "A/1", "B_", "Bad feature"] {
        assert_eq!(resource.rules.validate(&node(json!([name]))).len(), 1, "{name}");
    }
}

#[test]
fn an_event_of_the_newer_group_has_no_source_of_the_older() {
    let event = json!({
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i",
        "action": "a", "reason": "r", "type": "Normal", "deprecatedSource": {"component": "c"},
    });
    let problems = super::event::EVENTS_EVENT.rules.validate_create(&event);
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [r#"source: Invalid value: "": needs to be unset"#]);
}

/// Tools print what a request says before the request itself.
#[test]
fn text_may_stand_before_a_certificate_request() {
    let request = |pem: &str| {
        let encoded = BASE64.encode(pem);
        json!({"spec": {"signerName": "example.com/x", "usages": ["client auth"], "request": encoded}})
    };
    let resource = &super::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
    let block = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n";
    for (pem, is_fine) in [
        (block.to_owned(), true),
        (format!("Certificate Request:\n    Data:\n{block}"), true),
        (format!("text {block}"), false),
        (block.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"), false),
        (format!("-----BEGIN PRIVATE KEY-----\nAAAA\n{block}"), false),
        ("garbage".to_owned(), false),
    ] {
        let problems = resource.rules.validate(&request(&pem));
        assert_eq!(problems.is_empty(), is_fine, "{pem}");
    }
}
