use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::SERVICE;

fn created(spec: Value) -> Value {
    let mut service = json!({"metadata": {"name": "web"}, "spec": spec});
    SERVICE.rules.default(&mut service);
    SERVICE.rules.prepare_create(&mut service);
    service
}

fn check(value: &Value, expect: Expect) {
    expect.assert_eq(&serde_json::to_string(value).unwrap());
}

fn updated(old: &Value, spec: Value) -> Value {
    let mut new = json!({"metadata": {"name": "web"}, "spec": spec, "status": old["status"]});
    SERVICE.rules.default(&mut new);
    SERVICE.rules.prepare_update(&mut new, old);
    new
}

#[test]
fn a_port_is_all_a_service_needs() {
    check(
        &created(json!({"ports": [{"port": 80}]}))["spec"],
        expect![[
            r#"{"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"ClusterIP"}"#
        ]],
    );
    check(
        &created(json!({"type": "ExternalName", "externalName": "example.com"}))["spec"],
        expect![[r#"{"externalName":"example.com","sessionAffinity":"None","type":"ExternalName"}"#]],
    );
    check(
        &created(json!({"type": "LoadBalancer", "sessionAffinity": "ClientIP", "clusterIP": "fd00::1"}))["spec"],
        expect![[
            r#"{"allocateLoadBalancerNodePorts":true,"clusterIP":"fd00::1","clusterIPs":["fd00::1"],"externalTrafficPolicy":"Cluster","internalTrafficPolicy":"Cluster","ipFamilies":["IPv6"],"ipFamilyPolicy":"SingleStack","sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":10800}},"type":"LoadBalancer"}"#
        ]],
    );
}

#[test]
fn an_update_keeps_what_was_allocated() {
    let mut old = created(json!({"type": "NodePort", "ports": [{"port": 80}]}));
    old["spec"]["clusterIP"] = "10.0.0.5".into();
    old["spec"]["clusterIPs"] = json!(["10.0.0.5"]);
    old["spec"]["ports"][0]["nodePort"] = 30080.into();
    let new = updated(
        &old,
        json!({"type": "NodePort", "ports": [{"port": 81}, {"port": 80, "targetPort": 8080}]}),
    );
    check(
        &new["spec"],
        expect![[
            r#"{"clusterIP":"10.0.0.5","clusterIPs":["10.0.0.5"],"externalTrafficPolicy":"Cluster","internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"port":81,"protocol":"TCP","targetPort":81},{"nodePort":30080,"port":80,"protocol":"TCP","targetPort":8080}],"sessionAffinity":"None","type":"NodePort"}"#
        ]],
    );
    let mut spec = old["spec"].clone();
    spec["type"] = "ClusterIP".into();
    check(
        &updated(&old, spec)["spec"],
        expect![[
            r#"{"clusterIP":"10.0.0.5","clusterIPs":["10.0.0.5"],"internalTrafficPolicy":"Cluster","ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None","type":"ClusterIP"}"#
        ]],
    );
}

#[test]
fn the_listing_shows_addresses_and_ports() {
    let line = |service: &Value| {
        let cells = SERVICE.rules.cells(service, 100);
        cells
            .iter()
            .map(|cell| cell.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join(" | ")
    };
    let mut service = created(
        json!({"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}], "selector": {"app": "web"}}),
    );
    service["spec"]["clusterIPs"] = json!(["10.0.0.5"]);
    expect!["web | LoadBalancer | 10.0.0.5 | <pending> | 80:30080/TCP | <unknown> | app=web"]
        .assert_eq(&line(&service));
    service["status"]["loadBalancer"]["ingress"] = json!([{"ip": "192.0.2.1"}]);
    expect!["web | LoadBalancer | 10.0.0.5 | 192.0.2.1 | 80:30080/TCP | <unknown> | app=web"]
        .assert_eq(&line(&service));
}

#[test]
fn what_a_service_cannot_be_is_told() {
    let check = |spec: Value, expect: Expect| {
        let problems = SERVICE.rules.validate(&created(spec));
        expect.assert_eq(&problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    };
    check(json!({"ports": [{"port": 80}]}), expect![""]);
    check(json!({"clusterIP": "None"}), expect![""]);
    check(json!({}), expect!["spec.ports: Required value"]);
    check(
        json!({"ports": [{"port": 80}, {"port": 80, "name": "web", "nodePort": 30000}], "clusterIP": "10.0.0.300"}),
        expect![[r#"
            spec.clusterIPs[0]: Invalid value: "10.0.0.300": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)
            spec.ports[0].name: Required value
            spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'
            spec.ports[1]: Duplicate value: {"port":80,"protocol":"TCP"}"#]],
    );
    check(
        json!({"type": "ExternalName"}),
        expect!["spec.externalName: Required value"],
    );
    check(
        json!({"type": "Balancer", "ports": [{"port": 80}]}),
        expect![[
            r#"spec.type: Unsupported value: "Balancer": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort""#
        ]],
    );
}

#[test]
fn a_services_address_stays() {
    let mut old = created(json!({"ports": [{"port": 80}]}));
    old["spec"]["clusterIP"] = "10.0.0.5".into();
    old["spec"]["clusterIPs"] = json!(["10.0.0.5"]);
    let new = updated(&old, json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.6"}));
    let problems = SERVICE.rules.validate_update(&new, &old);
    expect![[r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.6"]: may not change once set"#]]
        .assert_eq(&problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
}
