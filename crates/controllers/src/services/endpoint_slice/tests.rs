use expect_test::{Expect, expect};

use super::*;
use crate::testing::{object, objects};

const SERVICE_YAML: &str = "
metadata: {name: web, namespace: default, uid: service-uid, labels: {team: a}}
spec:
  clusterIP: 10.96.0.7
  ipFamilies: [IPv4]
  selector: {app: web}
  ports: [{name: http, protocol: TCP, port: 80, targetPort: serve}]
";

fn pod(name: &str, address: &str, ready: &str) -> String {
    format!(
        "
---
metadata: {{name: {name}, namespace: default, uid: {name}-uid, labels: {{app: web}}}}
spec:
  nodeName: n1
  containers: [{{name: web, ports: [{{name: serve, containerPort: 8080, protocol: TCP}}]}}]
status:
  phase: Running
  podIP: {address}
  podIPs: [{{ip: {address}}}]
  conditions: [{{type: Ready, status: '{ready}'}}]"
    )
}

/// A slice that holds what a plan put into it.
fn slice(name: &str, ports: &str, endpoints: &str) -> String {
    format!(
        "
---
metadata:
  name: {name}
  namespace: default
  uid: {name}-uid
  resourceVersion: '3'
  labels:
    team: a
    kubernetes.io/service-name: web
    endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io
addressType: IPv4
ports: {ports}
endpoints: {endpoints}"
    )
}

fn view(service: &str, pods: &[String], slices: &[String]) -> View {
    View {
        service: object(service),
        pods: objects(&pods.concat()),
        slices: objects(&slices.concat()),
        zones: HashMap::from([("n1".to_owned(), "z".to_owned())]),
    }
}

fn check(service: &str, pods: &[String], slices: &[String], expected: Expect) {
    expected.assert_eq(&slices::plan(&view(service, pods, slices)).to_string());
}

const PORTS: &str = "[{name: http, protocol: TCP, port: 8080}]";

fn endpoint(name: &str, address: &str, ready: bool) -> String {
    format!(
        "{{addresses: [{address}], conditions: {{ready: {ready}, serving: {ready}, terminating: false}}, nodeName: n1, zone: z, \
         targetRef: {{kind: Pod, namespace: default, name: {name}, uid: {name}-uid}}}}"
    )
}

#[test]
fn a_new_service_gets_a_slice_with_its_pods_and_their_own_port_numbers() {
    check(
        SERVICE_YAML,
        &[pod("a", "10.0.0.1", "True"), pod("b", "10.0.0.2", "False")],
        &[],
        expect![[r#"
            create endpointslices in default: {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"n1","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"},"zone":"z"},{"addresses":["10.0.0.2"],"conditions":{"ready":false,"serving":false,"terminating":false},"nodeName":"n1","targetRef":{"kind":"Pod","name":"b","namespace":"default","uid":"b-uid"},"zone":"z"}],"kind":"EndpointSlice","metadata":{"generateName":"web-","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web","team":"a"},"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"web","uid":"service-uid"}]},"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}
        "#]],
    );
}

#[test]
fn without_pods_an_empty_slice_says_so_and_is_used_again() {
    check(
        SERVICE_YAML,
        &[],
        &[],
        expect![[r#"
            create endpointslices in default: {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[],"kind":"EndpointSlice","metadata":{"generateName":"web-","labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web","team":"a"},"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Service","name":"web","uid":"service-uid"}]},"ports":[]}
        "#]],
    );
    check(SERVICE_YAML, &[], &[slice("s", "[]", "[]")], expect![""]);
    check(
        SERVICE_YAML,
        &[pod("a", "10.0.0.1", "True")],
        &[slice("s", "[]", "[]")],
        expect![[r#"
            patch endpointslices default/s: {"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"n1","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"},"zone":"z"}],"metadata":{"resourceVersion":"3"},"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}
        "#]],
    );
}

#[test]
fn a_slice_that_is_right_is_left_alone() {
    let endpoints = format!("[{}]", endpoint("a", "10.0.0.1", true));
    check(
        SERVICE_YAML,
        &[pod("a", "10.0.0.1", "True")],
        &[slice("s", PORTS, &endpoints)],
        expect![""],
    );
}

#[test]
fn a_terminating_pod_serves_but_is_not_ready() {
    let going =
        pod("a", "10.0.0.1", "True").replace("uid: a-uid,", "uid: a-uid, deletionTimestamp: '2026-01-01T12:00:00Z',");
    let endpoints = format!("[{}]", endpoint("a", "10.0.0.1", true));
    check(
        SERVICE_YAML,
        &[going],
        &[slice("s", PORTS, &endpoints)],
        expect![[r#"
            patch endpointslices default/s: {"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false,"serving":true,"terminating":true},"nodeName":"n1","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"},"zone":"z"}],"metadata":{"resourceVersion":"3"}}
        "#]],
    );
}

#[test]
fn headless_services_are_labelled_and_may_publish_pods_that_are_not_ready() {
    let service = SERVICE_YAML.replace(
        "clusterIP: 10.96.0.7",
        "clusterIP: None\n  publishNotReadyAddresses: true",
    );
    let endpoints = format!("[{}]", endpoint("a", "10.0.0.1", false));
    check(
        &service,
        &[pod("a", "10.0.0.1", "False")],
        &[slice("s", PORTS, &endpoints)],
        expect![[r#"
            patch endpointslices default/s: {"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":false,"terminating":false},"nodeName":"n1","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"},"zone":"z"}],"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io","kubernetes.io/service-name":"web","service.kubernetes.io/headless":"","team":"a"},"resourceVersion":"3"}}
        "#]],
    );
}

#[test]
fn a_slice_holds_a_hundred_endpoints() {
    let pods: Vec<String> = (0..120)
        .map(|n| pod(&format!("p{n}"), &format!("10.0.1.{n}"), "True"))
        .collect();
    let plan = slices::plan(&view(SERVICE_YAML, &pods, &[]));
    let sizes = plan.actions.iter().map(|action| match action {
        crate::plan::Action::Create(create) => create.object["endpoints"].as_array().unwrap().len(),
        _ => panic!("only creations are expected"),
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [100, 20]);
}

#[test]
fn new_endpoints_join_a_slice_that_changes_anyway() {
    let first = format!("[{}]", endpoint("a", "10.0.0.1", true));
    let second = format!(
        "[{}, {}]",
        endpoint("b", "10.0.0.2", true),
        endpoint("gone", "10.0.0.9", true)
    );
    let pods = [
        pod("a", "10.0.0.1", "True"),
        pod("b", "10.0.0.2", "True"),
        pod("c", "10.0.0.3", "True"),
    ];
    let plan = slices::plan(&view(
        SERVICE_YAML,
        &pods,
        &[slice("s1", PORTS, &first), slice("s2", PORTS, &second)],
    ));
    let text = plan.to_string();
    assert!(text.starts_with("patch endpointslices default/s2"), "{text}");
    assert!(text.contains("10.0.0.3") && !text.contains("10.0.0.1\""), "{text}");
    assert_eq!(plan.actions.len(), 1);
}

#[test]
fn services_without_a_selector_are_left_to_others() {
    let service = SERVICE_YAML.replace("selector: {app: web}", "selector: {}");
    check(&service, &[], &[], expect![""]);
}

#[test]
fn ready_endpoints_have_the_hints_that_the_traffic_distribution_asks_for() {
    let hints = |distribution: &str, ready: &str| {
        let service = format!("{SERVICE_YAML}  trafficDistribution: {distribution}\n");
        let view = view(&service, &[pod("a", "10.0.0.1", ready)], &[]);
        let groups = desired::groups(&view, "IPv4");
        let endpoint = groups[0].endpoints.values().next().unwrap();
        endpoint.get("hints").map(Value::to_string).unwrap_or_default()
    };
    assert_eq!(hints("''", "True"), "");
    assert_eq!(hints("PreferSameZone", "True"), r#"{"forZones":[{"name":"z"}]}"#);
    assert_eq!(hints("PreferClose", "True"), r#"{"forZones":[{"name":"z"}]}"#);
    let node = r#"{"forNodes":[{"name":"n1"}],"forZones":[{"name":"z"}]}"#;
    assert_eq!(hints("PreferSameNode", "True"), node);
    assert_eq!(hints("PreferSameNode", "False"), "");
}
