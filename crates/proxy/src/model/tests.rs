//! What Services mean: YAML in, frontends out, as node `here` sees them.

use expect_test::{Expect, expect};

use super::*;

fn parse<T: serde::de::DeserializeOwned>(yaml: &str) -> T {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Endpoints are written `address node [not-ready] [terminating] [zone=ZONE] [for=NODE]`.
fn slice(ports: &str, endpoints: &[&str]) -> EndpointSlice {
    let endpoints: Vec<serde_json::Value> = endpoints
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (ready, terminating) = (!words.contains(&"not-ready"), words.contains(&"terminating"));
            let hints = |prefix: &str| -> Vec<serde_json::Value> {
                let named = words.iter().filter_map(|word| word.strip_prefix(prefix));
                named.map(|name| serde_json::json!({"name": name})).collect()
            };
            serde_json::json!({"addresses": [words[0]], "nodeName": words[1], "conditions": {
                "ready": ready && !terminating, "serving": ready, "terminating": terminating},
                "hints": {"forZones": hints("zone="), "forNodes": hints("for=")}})
        })
        .collect();
    let ports: serde_json::Value = parse(ports);
    serde_json::from_value(serde_json::json!({"endpoints": endpoints, "ports": ports})).unwrap()
}

fn around() -> Surroundings {
    Surroundings {
        node_name: "here".to_owned(),
        pod_blocks: vec!["10.244.0.0/16".parse().unwrap(), "fd00:244::/56".parse().unwrap()],
        service_blocks: vec!["10.96.0.0/16".parse().unwrap(), "fd00:96::/112".parse().unwrap()],
        zone: "west".to_owned(),
        own_addresses: ["192.0.2.201".parse().unwrap()].into(),
        other_nodes: ["192.0.2.202".parse().unwrap()].into(),
    }
}

fn check(service: &str, slices: &[EndpointSlice], expected: Expect) {
    let mut service: Service = parse(service);
    service.metadata.namespace = "default".to_owned();
    service.metadata.name = "web".to_owned();
    let slices: Vec<&EndpointSlice> = slices.iter().collect();
    let ports = service_ports(&service, &slices, &around());
    let text: Vec<String> = ports.iter().map(ServicePort::to_string).collect();
    expected.assert_eq(&text.join("\n"));
}

const HTTP: &str = "[{name: http, port: 8080, protocol: TCP}]";

const CLUSTER: &str = "spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}";

#[test]
fn endpoints_are_chosen_by_hints_if_all_have_some_and_one_is_for_us() {
    let near = ["10.244.0.5 there zone=west", "10.244.0.6 there zone=east"];
    check(
        CLUSTER,
        &[slice(HTTP, &near)],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080; outsiders masqueraded"#]],
    );
    for [one, other] in [
        ["zone=east", "zone=north"],
        ["zone=west", ""],
        ["for=there", "for=elsewhere"],
    ] {
        let endpoints = [format!("10.244.0.5 there {one}"), format!("10.244.0.6 there {other}")];
        check(
            CLUSTER,
            &[slice(HTTP, &endpoints.each_ref().map(String::as_str))],
            expect![[r#"
                default/web:http Tcp
                  10.96.0.10:80 → 10.244.0.5:8080, 10.244.0.6:8080; outsiders masqueraded"#]],
        );
    }
    let same_node = [
        "10.244.0.5 here for=here zone=west",
        "10.244.0.6 there for=there zone=west",
    ];
    check(
        CLUSTER,
        &[slice(HTTP, &same_node)],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080; outsiders masqueraded"#]],
    );
}

/// A node says itself what its addresses are: what goes there must reach it, and nobody else.
#[test]
fn a_load_balancer_at_the_address_of_another_node_is_left_to_it() {
    check(
        "
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.201}, {ip: 192.0.2.202}, {ip: 192.0.2.203}]}}",
        &[slice(HTTP, &["10.244.0.5 here"])],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080; outsiders masqueraded
              192.0.2.201:80 → 10.244.0.5:8080; masqueraded
              192.0.2.203:80 → 10.244.0.5:8080; masqueraded"#]],
    );
}

#[test]
fn load_balancers_are_told_of_ready_endpoints_of_this_node_only() {
    let slice = slice(
        HTTP,
        &["10.244.0.5 here", "10.244.0.6 here terminating", "10.244.0.7 there"],
    );
    let check = |yaml: &str| health_check(&parse(yaml), &[&slice, &slice], "here");
    let local = "spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30123}";
    assert_eq!(check(local), Some((30123, 1)));
    assert_eq!(check(&local.replace("Local", "Cluster")), None);
    assert_eq!(check("spec: {type: LoadBalancer, externalTrafficPolicy: Local}"), None);
}

#[test]
fn ports_are_matched_by_name_and_target_ports_come_from_slices() {
    check(
        "
spec:
  clusterIP: 10.96.0.10
  ports: [{name: http, port: 80, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]",
        &[
            slice(HTTP, &["10.244.0.5 here", "10.244.1.7 there"]),
            // Pods whose container port of that name differs stand in another slice.
            slice("[{name: http, port: 9090, protocol: TCP}]", &["10.244.0.6 here"]),
            slice("[{name: dns, port: 53, protocol: UDP}]", &["10.244.0.5 here"]),
        ],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080, 10.244.0.6:9090, 10.244.1.7:8080; outsiders masqueraded
            default/web:dns Udp
              10.96.0.10:53 → 10.244.0.5:53; outsiders masqueraded"#]],
    );
}

#[test]
fn services_without_an_address_or_for_another_proxy_have_no_rules() {
    for service in [
        "spec: {type: ExternalName, externalName: example.com}",
        "spec: {clusterIP: None, clusterIPs: [None], ports: [{port: 80}]}",
        "spec: {ports: [{port: 80}]}",
        "
metadata: {labels: {service.kubernetes.io/service-proxy-name: other}}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}",
        "
metadata: {labels: {service.kubernetes.io/headless: ''}}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}",
    ] {
        check(service, &[], expect![""]);
    }
}

#[test]
fn unready_endpoints_are_passed_over_and_ending_ones_serve_when_no_other_does() {
    let service = "spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}";
    check(
        service,
        &[slice(
            HTTP,
            &[
                "10.244.0.5 here",
                "10.244.0.6 here not-ready",
                "10.244.0.7 here terminating",
            ],
        )],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080; outsiders masqueraded"#]],
    );
    check(
        service,
        &[slice(
            HTTP,
            &["10.244.0.6 here not-ready", "10.244.0.7 here terminating"],
        )],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.7:8080; outsiders masqueraded"#]],
    );
    check(
        service,
        &[slice(
            HTTP,
            &["10.244.0.6 here not-ready", "10.244.0.8 here not-ready terminating"],
        )],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → reject"#]],
    );
    check(
        service,
        &[],
        expect![[r#"
        default/web:http Tcp
          10.96.0.10:80 → reject"#]],
    );
}

#[test]
fn the_internal_policy_local_uses_this_nodes_endpoints_only() {
    let service = "
spec: {clusterIP: 10.96.0.10, internalTrafficPolicy: Local, ports: [{name: http, port: 80}]}";
    check(
        service,
        &[slice(HTTP, &["10.244.0.5 here", "10.244.1.7 there"])],
        expect![[r#"
        default/web:http Tcp
          10.96.0.10:80 → 10.244.0.5:8080; outsiders masqueraded"#]],
    );
    check(
        service,
        &[slice(HTTP, &["10.244.1.7 there"])],
        expect![[r#"
        default/web:http Tcp
          10.96.0.10:80 → drop"#]],
    );
    check(
        service,
        &[],
        expect![[r#"
        default/web:http Tcp
          10.96.0.10:80 → reject"#]],
    );
}

#[test]
fn load_balancers_and_node_ports_lead_outsiders_in() {
    let slices = [slice(HTTP, &["10.244.0.5 here", "10.244.1.7 there"])];
    check(
        "
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  externalIPs: [203.0.113.5, 203.0.113.5, 'fd00::1']
  loadBalancerSourceRanges: [198.51.100.7/24]
  ports: [{name: http, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.9}, {ip: 203.0.113.10, ipMode: Proxy}, {hostname: lb.example.com}]}}",
        &slices,
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080, 10.244.1.7:8080; outsiders masqueraded
              203.0.113.5:80 → 10.244.0.5:8080, 10.244.1.7:8080; masqueraded
              203.0.113.9:80 from 198.51.100.0/24 → 10.244.0.5:8080, 10.244.1.7:8080; masqueraded
              node port 30080 (IPv4) → 10.244.0.5:8080, 10.244.1.7:8080; masqueraded"#]],
    );
    check(
        "
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  externalTrafficPolicy: Local
  ports: [{name: http, port: 80, nodePort: 30080}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.9}]}}",
        &slices,
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080, 10.244.1.7:8080; outsiders masqueraded
              203.0.113.9:80 → 10.244.0.5:8080, 10.244.1.7:8080; outsiders masqueraded
              203.0.113.9:80 from outside → 10.244.0.5:8080
              node port 30080 (IPv4) → 10.244.0.5:8080, 10.244.1.7:8080; outsiders masqueraded
              node port 30080 (IPv4) from outside → 10.244.0.5:8080"#]],
    );
    check(
        "
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  externalTrafficPolicy: Local
  ports: [{name: http, port: 80, nodePort: 30080}]",
        &[slice(HTTP, &["10.244.1.7 there"])],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.1.7:8080; outsiders masqueraded
              node port 30080 (IPv4) → 10.244.1.7:8080; outsiders masqueraded
              node port 30080 (IPv4) from outside → drop"#]],
    );
}

#[test]
fn two_families_are_two_sets_of_frontends() {
    check(
        "
spec:
  type: NodePort
  clusterIPs: [10.96.0.10, 'fd00:96::10']
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, nodePort: 30080}]",
        &[slice(HTTP, &["10.244.0.5 here"]), slice(HTTP, &["fd00:244::5 here"])],
        expect![[r#"
            default/web:http Tcp sticky 10800s
              10.96.0.10:80 → 10.244.0.5:8080; outsiders masqueraded
              [fd00:96::10]:80 → [fd00:244::5]:8080; outsiders masqueraded
              node port 30080 (IPv6) → [fd00:244::5]:8080; masqueraded
              node port 30080 (IPv4) → 10.244.0.5:8080; masqueraded"#]],
    );
}

#[test]
fn endpoints_move_as_little_as_possible() {
    let addresses = |text: &str| -> Vec<SocketAddr> {
        text.chars()
            .map(|letter| SocketAddr::new([10, 0, 0, letter as u8].into(), 80))
            .collect()
    };
    let check = |old: &str, new: &str, expected: &str| {
        assert_eq!(
            reordered(&addresses(old), &addresses(new)),
            addresses(expected),
            "{old} to {new}"
        );
    };
    check("", "abc", "abc");
    check("abcd", "abcd", "abcd");
    check("abcd", "acd", "adc");
    check("abcd", "abc", "abc");
    check("abcd", "abde", "abed");
    check("abcd", "cxyz", "xycz");
    check("dbca", "abcd", "dbca");
    check("abcd", "", "");
}

#[test]
fn addresses_of_others_are_no_services() {
    let spec = "
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  externalIPs: [10.244.1.7, 10.96.0.1, 10.96.0.10, 127.0.0.1, 169.254.169.254, 0.0.0.0, 224.0.0.1, 255.255.255.255, 203.0.113.5]
  ports: [{name: http, port: 80}]
status: {loadBalancer: {ingress: [{ip: 10.244.0.9}, {ip: 127.0.0.2}, {ip: 203.0.113.9}]}}";
    check(
        spec,
        &[slice(HTTP, &["10.244.0.5 here"])],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → 10.244.0.5:8080; outsiders masqueraded
              203.0.113.5:80 → 10.244.0.5:8080; masqueraded
              203.0.113.9:80 → 10.244.0.5:8080; masqueraded"#]],
    );
    let foreign = foreign_addresses(&parse(spec), &around());
    let foreign: Vec<String> = foreign.iter().map(ToString::to_string).collect();
    assert_eq!(
        foreign.join(" "),
        "10.244.1.7 10.96.0.1 127.0.0.1 169.254.169.254 0.0.0.0 224.0.0.1 255.255.255.255 10.244.0.9 127.0.0.2"
    );
    check(
        "
spec:
  clusterIP: 'fd00:96::10'
  externalIPs: ['fd00:244::7', 'fd00:96::1', '::1', 'fe80::1', 'ff02::1', '::ffff:127.0.0.1', '::', 'fd00:5::5']
  ports: [{name: http, port: 80}]",
        &[],
        expect![[r#"
            default/web:http Tcp
              [fd00:96::10]:80 → reject
              [fd00:5::5]:80 → reject"#]],
    );
}

#[test]
fn endpoints_that_nobody_can_be_are_passed_over() {
    let addresses = [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "fe80::1",
        "x",
    ];
    let lines: Vec<String> = addresses.iter().map(|address| format!("{address} here")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let zero = "[{name: http, port: 0, protocol: TCP}]";
    check(
        "
spec:
  clusterIPs: [10.96.0.10, 'fd00:96::10']
  ports: [{name: http, port: 80}, {name: none, port: 0}]",
        &[slice(HTTP, &lines), slice(zero, &["10.244.0.5 here"])],
        expect![[r#"
            default/web:http Tcp
              10.96.0.10:80 → reject
              [fd00:96::10]:80 → reject"#]],
    );
}

/// What one Service makes of rules is bounded whatever it lists.
#[test]
fn a_greedy_service_costs_no_more_than_a_large_one() {
    let list = |count: u32, entry: &dyn Fn(u32) -> serde_json::Value| (0..count).map(entry).collect::<Vec<_>>();
    let address = |first: u8, number: u32| format!("{first}.{}.{}.7", number / 256, number % 256);
    let service: Service = serde_json::from_value(serde_json::json!({
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.10", "sessionAffinity": "None",
            "ports": list(5_000, &|port| serde_json::json!({"name": format!("p{port}"), "port": port + 1})),
            "externalIPs": list(5_000, &|number| address(203, number).into()),
            "loadBalancerSourceRanges": list(20_000, &|number| format!("{}/32", address(198, number)).into()),
        },
        "status": {"loadBalancer": {"ingress": list(5_000, &|number| serde_json::json!({"ip": address(204, number)}))}},
    }))
    .unwrap();
    let endpoints: Vec<String> = (0..5_000)
        .map(|number| format!("{} here", address(10, number)))
        .collect();
    let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
    let ports = serde_json::to_string(&list(
        5_000,
        &|port| serde_json::json!({"name": format!("p{port}"), "port": 8080, "protocol": "TCP"}),
    ));
    let slice = slice(&ports.unwrap(), &endpoints);
    let ports = service_ports(&service, &[&slice], &around());
    let frontends: Vec<&Frontend> = ports.iter().flat_map(|port| &port.frontends).collect();
    let targets = frontends.iter().map(|frontend| match &frontend.target {
        Target::Endpoints(endpoints) => endpoints.len(),
        _ => 0,
    });
    assert!(frontends.len() <= MAX_FRONTENDS, "{}", frontends.len());
    assert!(targets.sum::<usize>() <= MAX_TARGETS);
    assert!(
        frontends
            .iter()
            .all(|frontend| frontend.allowed.len() <= MAX_SOURCE_RANGES)
    );
}
