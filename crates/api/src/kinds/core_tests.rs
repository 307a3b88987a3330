//! The rules of the core kinds, one test for each that says why there is one. All texts are upstream's.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::{FieldError, Fields, Resource};

fn show(problems: Vec<FieldError>, expect: Expect) {
    let shown: Vec<String> = problems.iter().map(FieldError::to_string).collect();
    expect.assert_eq(&shown.join("\n"));
}

/// The object as the registry would validate it.
fn created(resource: &Resource, mut object: Value) -> Value {
    object["kind"] = resource.kind.into();
    object["apiVersion"] = resource.api_version().into();
    object.ensure("metadata").fill("name", "base");
    resource.rules.default(&mut object);
    resource.rules.prepare_create(&mut object);
    resource.rules.default(&mut object);
    object
}

pub(super) fn check(resource: &Resource, object: Value, expect: Expect) {
    let object = created(resource, object);
    let mut problems = resource.rules.validate(&object);
    problems.extend(resource.rules.validate_create(&object));
    show(problems, expect);
}

fn pod(spec: Value) -> Value {
    let mut whole = json!({"containers": [{"name": "main", "image": "nginx"}]});
    for (field, value) in spec.as_object().unwrap() {
        whole.set(field, value.clone());
    }
    json!({"metadata": {"name": "web", "labels": {"app": "web"}}, "spec": whole})
}

pub(super) fn check_pod(spec: Value, expect: Expect) {
    check(&super::pod::POD, pod(spec), expect);
}

#[test]
fn a_mount_knows_only_volumes_that_are_fine() {
    let container = json!({"name": "main", "image": "nginx", "volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    check_pod(
        json!({"containers": [container], "volumes": [{"name": "v", "configMap": {}}]}),
        expect![[r#"
            spec.volumes[0].configMap.name: Required value
            spec.containers[0].volumeMounts[0].name: Not found: "v""#]],
    );
}

#[test]
fn the_claim_of_a_volume_has_a_name_that_is_made_from_the_pods() {
    let claim = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let volume = json!({"name": "own", "ephemeral": {"volumeClaimTemplate": claim}});
    let mut long = pod(json!({"volumes": [volume]}));
    long["metadata"]["name"] = "a".repeat(253).into();
    let problems = super::pod::POD.rules.validate(&created(&super::pod::POD, long));
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].field, "spec.volumes[0].name");
    assert!(problems[0].detail.ends_with("must be no more than 253 characters"));
}

#[test]
fn amounts_are_shown_in_whole_units() {
    let variable = |divisor: &str| {
        let reference = json!({"resource": "limits.cpu", "divisor": divisor});
        let env = json!([{"name": "X", "valueFrom": {"resourceFieldRef": reference}}]);
        json!({"containers": [{"name": "main", "image": "nginx", "env": env}]})
    };
    check_pod(variable("1m"), expect![""]);
    check_pod(
        variable("7"),
        expect![[
            r#"spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#
        ]],
    );
}

#[test]
fn processes_of_a_windows_host_use_its_network() {
    check_pod(
        json!({"securityContext": {"windowsOptions": {"hostProcess": true}}}),
        expect![
            "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers"
        ],
    );
}

#[test]
fn a_key_that_is_merged_into_a_selector_was_not_there_before() {
    let term = json!({
        "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "other"}}, "matchLabelKeys": ["app"],
    });
    check_pod(
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
        expect![[
            r#"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector"#
        ]],
    );
}

#[test]
fn a_pod_that_is_held_back_can_only_be_told_more() {
    let terms = |values: Value| {
        let expression = json!({"key": "zone", "operator": "In", "values": values});
        json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]})
    };
    let spec = |selector: Value, values: Value| {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let affinity = json!({"nodeAffinity": {(required): terms(values)}});
        let gates = json!([{"name": "example.com/wait"}]);
        pod(json!({"schedulingGates": gates, "nodeSelector": selector, "affinity": affinity}))
    };
    let old = created(&super::pod::POD, spec(json!({"disk": "ssd"}), json!(["a"])));
    let change = |new: Value, expect: Expect| {
        let new = created(&super::pod::POD, new);
        show(super::pod::POD.rules.validate_update(&new, &old), expect);
    };
    change(spec(json!({"disk": "ssd", "cpu": "fast"}), json!(["a"])), expect![""]);
    change(
        spec(json!({"disk": "hdd"}), json!(["b"])),
        expect![[r#"
        spec.nodeSelector: Invalid value: {"disk":"hdd"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)
        spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {"matchExpressions":[{"key":"zone","operator":"In","values":["b"]}]}: only additions are allowed (no mutations or deletions)"#]],
    );
}

#[test]
fn profiles_that_annotations_name_become_fields() {
    let mut object = pod(json!({}));
    object["metadata"]["annotations"] = json!({"container.apparmor.security.beta.kubernetes.io/main": "unconfined"});
    let made = created(&super::pod::POD, object);
    let profile = &made["spec"]["containers"][0]["securityContext"]["appArmorProfile"];
    assert_eq!(*profile, json!({"type": "Unconfined"}));
    assert_eq!(super::pod::POD.rules.early_warnings(&made).len(), 1);
}

#[test]
fn a_node_has_one_range_of_each_family_and_the_older_field_counts() {
    let node = &super::node::NODE;
    let made = created(
        node,
        json!({"spec": {"podCIDR": "10.2.0.0/24", "podCIDRs": ["10.1.0.0/24"]}}),
    );
    assert_eq!(made["spec"]["podCIDRs"], json!(["10.2.0.0/24"]));
    check(
        node,
        json!({"spec": {"podCIDRs": ["10.1.0.0/24", "10.2.0.0/24"]}}),
        expect![[
            r#"spec.podCIDRs: Invalid value: ["10.1.0.0/24","10.2.0.0/24"]: may specify no more than one CIDR for each IP family"#
        ]],
    );
}

#[test]
fn an_address_of_a_node_is_given_once_and_devices_are_whole() {
    let address = json!({"type": "InternalIP", "address": "1.2.3.4"});
    let status = json!({"addresses": [address, address], "capacity": {"pods": "1.5"}});
    let problems = super::node::NODE
        .rules
        .validate_status_update(&json!({"status": status}), &json!({}));
    show(
        problems,
        expect![[r#"
        status.addresses[1]: Duplicate value: {"address":"1.2.3.4","type":"InternalIP"}
        status.capacity.pods: Invalid value: "1500m": must be an integer"#]],
    );
}

#[test]
fn only_load_balancers_have_addresses_of_their_own() {
    let ingress = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "hostname": "1.2.3.4"}]}});
    let check = |kind: &str, expect: Expect| {
        let service = json!({"spec": {"type": kind}, "status": ingress});
        let problems = super::service::SERVICE
            .rules
            .validate_status_update(&service, &json!({}));
        show(problems, expect);
    };
    check(
        "ClusterIP",
        expect!["status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"],
    );
    check(
        "LoadBalancer",
        expect![[r#"
        status.loadBalancer.ingress[0].ipMode: Required value: must be specified when `ip` is set
        status.loadBalancer.ingress[0].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address"#]],
    );
}

#[test]
fn the_older_source_of_a_claim_is_a_claim_or_a_snapshot() {
    let claim = |source: Value| {
        let resources = json!({"requests": {"storage": "1Gi"}});
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": resources});
        spec.set("dataSource", source);
        created(
            &super::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM,
            json!({"spec": spec}),
        )
    };
    let kept = claim(json!({"kind": "PersistentVolumeClaim", "name": "other"}));
    assert_eq!(kept["spec"]["dataSourceRef"], kept["spec"]["dataSource"]);
    assert!(!claim(json!({"kind": "Pod", "name": "other"}))["spec"].has("dataSource"));
    let nameless = claim(json!({"kind": "PersistentVolumeClaim"}));
    show(
        super::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM
            .rules
            .validate(&nameless),
        expect![[r#"
            spec.dataSource.name: Required value
            spec.dataSourceRef.name: Required value"#]],
    );
}

#[test]
fn a_scope_goes_with_what_pods_ask_for() {
    check(
        &super::resource_quota::RESOURCE_QUOTA,
        json!({"spec": {"hard": {"pods": "1", "requests.cpu": "1"}, "scopes": ["BestEffort"]}}),
        expect![[r#"spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource"#]],
    );
    let expressions =
        json!([{"scopeName": "PriorityClass", "operator": "In"}, {"scopeName": "Odd", "operator": "Odd"}]);
    check(
        &super::resource_quota::RESOURCE_QUOTA,
        json!({"spec": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": expressions}}}),
        expect![[r#"
            spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector
            spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Odd": unsupported scope
            spec.scopeSelector.matchExpressions.operator: Invalid value: "Odd": not a valid selector operator"#]],
    );
}

#[test]
fn a_ratio_is_at_least_one_and_at_most_what_the_bounds_allow() {
    let limit =
        json!({"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}});
    check(
        &super::limit_range::LIMIT_RANGE,
        json!({"spec": {"limits": [limit]}}),
        expect![[
            r#"spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000"#
        ]],
    );
}

#[test]
fn of_an_event_nothing_changes_but_how_often_it_happened() {
    let event = |note: &str, count: i64| {
        created(
            &super::event::EVENTS_EVENT,
            json!({
                "metadata": {"namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
                "action": "Did", "reason": "Because", "reportingController": "example.com/me",
                "reportingInstance": "me-1", "regarding": {"kind": "Pod", "namespace": "default"}, "note": note,
                "series": {"count": count, "lastObservedTime": "2026-01-01T00:00:00.000000Z"},
            }),
        )
    };
    let rules = super::event::EVENTS_EVENT.rules;
    show(rules.validate_update(&event("a", 3), &event("a", 2)), expect![""]);
    show(
        rules.validate_update(&event("b", 2), &event("a", 2)),
        expect![[r#"message: Invalid value: "b": field is immutable"#]],
    );
    show(
        rules.validate(&event("a", 1)),
        expect![[r#"series.count: Invalid value: "": should be at least 2"#]],
    );
}

#[test]
fn a_job_marks_its_pods_as_its_own() {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}});
    let job = json!({"metadata": {"name": "base", "uid": "1"}, "spec": {"template": template}});
    let mut made = created(&super::job::JOB, job);
    show(super::job::JOB.rules.validate(&made), expect![""]);
    made["spec"]["template"]["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove("job-name");
    show(
        super::job::JOB.rules.validate(&made),
        expect!["spec.template.metadata.labels[job-name]: Required value: must be 'base'"],
    );
}

#[test]
fn a_scale_to_nothing_needs_a_metric_that_does_not_come_from_pods() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    check(
        &super::horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER_V1,
        json!({"spec": {"scaleTargetRef": target, "minReplicas": 0, "maxReplicas": 2}}),
        expect![[r#"
            spec.minReplicas: Invalid value: 0: must be greater than or equal to 1
            spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"#]],
    );
}

#[test]
fn a_hint_names_each_zone_once() {
    let hints = json!({"forZones": [{"name": "a"}, {"name": "a"}], "forNodes": [{"name": "Bad"}]});
    let endpoint = json!({"addresses": ["2001:DB8::1"], "hints": hints});
    check(
        &super::endpoint_slice::ENDPOINT_SLICE,
        json!({"addressType": "IPv6", "endpoints": [endpoint]}),
        expect![[r#"
            endpoints[0].addresses[0]: Invalid value: "2001:DB8::1": must be in canonical form ("2001:db8::1")
            endpoints[0].hints.forZones[1].name: Duplicate value: "a"
            endpoints[0].hints.forNodes[0].name: Invalid value: "Bad": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#]],
    );
}

#[test]
fn a_request_for_a_certificate_names_its_signer_and_its_uses() {
    let request = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0=";
    check(
        &super::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST,
        json!({"spec": {"request": request, "signerName": "Example/x/y", "usages": ["client auth", "client auth"]}}),
        expect![[r#"
            spec.usages[1]: Duplicate value: "client auth"
            spec.signerName: Invalid value: "Example/x/y": must be a fully qualified domain and path of the form 'example.com/signer-name'"#]],
    );
    let conditions = json!([{"type": "Approved", "status": "False"}, {"type": "Approved", "status": "True"}]);
    let problems = super::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST
        .rules
        .validate_subresource_update("approval", &json!({"status": {"conditions": conditions}}), &json!({}));
    show(
        problems,
        expect![[r#"
        status.conditions[0].status: Unsupported value: "False": supported values: "True"
        status.conditions[1].type: Duplicate value: "Approved""#]],
    );
}

#[test]
fn a_namespace_says_that_it_goes_when_it_goes() {
    let problems = super::namespace::NAMESPACE
        .rules
        .validate_status_update(&json!({"status": {"phase": "Terminating"}}), &json!({}));
    show(
        problems,
        expect![[
            r#"status.Phase: Invalid value: "Terminating": may only be 'Active' if `deletionTimestamp` is empty"#
        ]],
    );
    let finalizers = json!({"spec": {"finalizers": ["odd"]}});
    let problems = super::namespace::NAMESPACE
        .rules
        .validate_subresource_update("finalize", &finalizers, &json!({}));
    show(
        problems,
        expect![[
            r#"spec.finalizers[0]: Invalid value: "odd": name is neither a standard finalizer name nor is it fully qualified"#
        ]],
    );
}

#[test]
fn neither_an_update_nor_a_status_makes_a_mirror_pod_or_unconfines_it() {
    const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/main";
    let with = |annotations: Value| {
        let mut pod = pod(json!({}));
        pod["metadata"]["annotations"] = annotations;
        created(&super::pod::POD, pod)
    };
    let old = with(json!({APP_ARMOR: "runtime/default"}));
    let new = with(json!({APP_ARMOR: "unconfined", "kubernetes.io/config.mirror": "hash", "note": "free"}));
    let expected = expect![[r#"
        metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]: Forbidden: may not remove or update AppArmor annotations
        metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"#]];
    let rules = super::pod::POD.rules;
    let texts = |problems: Vec<FieldError>| problems.iter().map(FieldError::to_string).collect::<Vec<_>>();
    let of_status = texts(rules.validate_status_update(&new, &old));
    assert!(texts(rules.validate_update(&new, &old)).ends_with(&of_status));
    show(rules.validate_status_update(&new, &old), expected);
    show(
        rules.validate_status_update(&with(json!({})), &with(json!({"kubernetes.io/config.mirror": "hash"}))),
        expect![
            "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation"
        ],
    );
}
