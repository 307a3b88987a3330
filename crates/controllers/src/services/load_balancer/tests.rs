use expect_test::{Expect, expect};

use super::*;
use crate::testing::{object, objects};

fn settings(source: AddressSource) -> LoadBalancer {
    LoadBalancer {
        source,
        node_ports: 30000..=32767,
        reserved_ports: [("TCP".to_owned(), 6443)].into(),
    }
}

fn pool(texts: &[&str]) -> AddressSource {
    AddressSource::Pool(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn node(name: &str, address: &str, ready: bool) -> String {
    let ready = if ready { "'True'" } else { "'False'" };
    format!(
        "metadata: {{name: {name}, creationTimestamp: '2026-01-01T00:00:0{}Z', annotations: {{karve/dns-port: '10053'}}}}\n\
         status: {{addresses: [{{type: InternalIP, address: '{address}'}}], conditions: [{{type: Ready, status: {ready}}}], \
         daemonEndpoints: {{kubeletEndpoint: {{Port: 10250}}}}}}",
        name.len()
    )
}

fn nodes() -> Vec<String> {
    vec![
        node("a", "192.0.2.1", true),
        node("bb", "192.0.2.2", true),
        node("ccc", "192.0.2.3", false),
    ]
}

fn service(name: &str, ports: &[u16], more: &str) -> String {
    let ports: Vec<String> = ports.iter().map(|port| format!("{{port: {port}}}")).collect();
    format!(
        "metadata: {{name: {name}, namespace: team, resourceVersion: '7', creationTimestamp: '2026-01-01T00:00:0{}Z'}}\n\
         spec: {{type: LoadBalancer, clusterIP: 10.96.0.9, ports: [{}]{more}}}",
        name.len(),
        ports.join(", ")
    )
}

fn status(addresses: &[&str]) -> String {
    let ingress: Vec<String> = addresses
        .iter()
        .map(|ip| format!("{{ip: {ip}, ipMode: VIP}}"))
        .collect();
    format!("\nstatus: {{loadBalancer: {{ingress: [{}]}}}}", ingress.join(", "))
}

fn decided(source: AddressSource, yaml: &str, rivals: &[String], nodes: &[String], local: &[&str]) -> String {
    let service: Arc<Service> = object(yaml);
    let view = View {
        settings: &settings(source),
        service: &service,
        rivals: objects(&rivals.join("\n---\n")),
        nodes: objects(&nodes.join("\n---\n")),
        nodes_with_endpoints: local.iter().map(|name| (*name).to_owned()).collect(),
        given: &HashMap::new(),
    };
    let (addresses, lack) = addresses::decide(&view);
    let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
    format!("{} | {}", addresses.join(" "), lack.unwrap_or_default())
}

fn on_nodes(yaml: &str, rivals: &[String], expected: Expect) {
    expected.assert_eq(&decided(AddressSource::Nodes, yaml, rivals, &nodes(), &["bb"]));
}

#[test]
fn a_service_has_the_addresses_of_the_ready_nodes() {
    on_nodes(&service("web", &[80], ""), &[], expect!["192.0.2.1 192.0.2.2 | "]);
    on_nodes(
        &service("web", &[80], ", externalTrafficPolicy: Local"),
        &[],
        expect!["192.0.2.2 | "],
    );
    let away = decided(
        AddressSource::Nodes,
        &service("web", &[80], ""),
        &[],
        &[node("x", "192.0.2.9", false)],
        &[],
    );
    assert_eq!(away, " | there are no available nodes for LoadBalancer");
}

#[test]
fn nodes_that_are_excluded_or_about_to_go_take_no_traffic() {
    let excluded = node("d", "192.0.2.4", true).replace(
        "{name: d,",
        "{name: d, labels: {node.kubernetes.io/exclude-from-external-load-balancers: ''},",
    );
    let going = node("e", "192.0.2.5", true) + "\nspec: {taints: [{key: ToBeDeletedByClusterAutoscaler}]}";
    let strange = node("f", "127.0.0.1", true);
    let nodes = [excluded, going, strange, node("g", "192.0.2.7", true)];
    let decided = decided(AddressSource::Nodes, &service("web", &[80], ""), &[], &nodes, &[]);
    assert_eq!(decided, "192.0.2.7 | ");
}

/// Whoever may make Services must not get what the cluster itself is reached by.
#[test]
fn ports_of_components_and_node_ports_are_nobodys() {
    for (port, why) in [
        (6443, " | port 6443/TCP is that of a component of the cluster"),
        (10250, " | port 10250/TCP is that of a component of node a"),
        (10053, " | port 10053/TCP is that of a component of node a"),
        (30080, " | port 30080/TCP is in the range of node ports"),
    ] {
        let yaml = service("web", &[80, port], "");
        assert_eq!(decided(AddressSource::Nodes, &yaml, &[], &nodes(), &[]), why);
    }
}

#[test]
fn a_port_belongs_to_whoever_has_it_and_else_to_the_oldest() {
    let taken = expect![" | port 80/TCP of 192.0.2.1 belongs to Service team/old"];
    on_nodes(&service("younger", &[443, 80], ""), &[service("old", &[80], "")], taken);
    on_nodes(
        &service("old", &[80], ""),
        &[service("younger", &[80], "")],
        expect!["192.0.2.1 192.0.2.2 | "],
    );
    let holder = service("younger", &[80], "") + &status(&["192.0.2.1"]);
    let rest = expect!["192.0.2.2 | port 80/TCP of 192.0.2.1 belongs to Service team/younger"];
    on_nodes(&service("old", &[80], ""), std::slice::from_ref(&holder), rest);
    on_nodes(
        &holder,
        &[service("old", &[80], "")],
        expect!["192.0.2.1 | port 80/TCP of 192.0.2.2 belongs to Service team/old"],
    );
    // An external address that a Service names is its own.
    let external = service("younger", &[80], ", externalIPs: [192.0.2.2]").replace("LoadBalancer", "ClusterIP");
    on_nodes(
        &service("old", &[80], ""),
        &[external],
        expect!["192.0.2.1 | port 80/TCP of 192.0.2.2 belongs to Service team/younger"],
    );
    // Another protocol is another port, and what is being deleted or another's asks for nothing.
    let deleting = service("old", &[80], "").replace(
        "resourceVersion: '7'",
        "resourceVersion: '7', deletionTimestamp: '2026-01-01T00:00:00Z'",
    );
    let foreign = service("old", &[80], ", loadBalancerClass: example.com/other");
    on_nodes(
        &service("younger", &[80], ""),
        &[deleting, foreign],
        expect!["192.0.2.1 192.0.2.2 | "],
    );
}

#[test]
fn a_pool_gives_each_service_its_own_address() {
    let web = service("web", &[80], "");
    let other = service("o", &[80], "") + &status(&["192.0.2.16"]);
    let check = |yaml: &str, expected: &str| {
        let decided = decided(
            pool(&["192.0.2.16/31", "2001:db8::1-2001:db8::2"]),
            yaml,
            std::slice::from_ref(&other),
            &[],
            &[],
        );
        assert_eq!(decided, expected);
    };
    check(&web, "192.0.2.17 | ");
    check(&(web.clone() + &status(&["192.0.2.17"])), "192.0.2.17 | ");
    check(&service("web", &[80], ", loadBalancerIP: 192.0.2.17"), "192.0.2.17 | ");
    check(
        &service("web", &[80], ", loadBalancerIP: 192.0.2.99"),
        " | the address 192.0.2.99 is not free or not in the pool",
    );
    check(
        &service("web", &[80], ", ipFamilies: [IPv4, IPv6]"),
        "192.0.2.17 2001:db8::1 | ",
    );
}

#[test]
fn what_was_given_counts_before_the_caches_show_it() {
    let web: Arc<Service> = object(&service("web", &[80], ""));
    let given = HashMap::from([given("newer", &["192.0.2.16"], &[9])]);
    let view = View {
        settings: &settings(pool(&["192.0.2.16/32"])),
        service: &web,
        rivals: vec![object(&service("newer", &[9], ""))],
        nodes: Vec::new(),
        nodes_with_endpoints: BTreeSet::new(),
        given: &given,
    };
    assert_eq!(
        addresses::decide(&view),
        (Vec::new(), Some("no address of the pool is free".to_owned()))
    );
}

fn given(name: &str, addresses: &[&str], ports: &[u16]) -> (Key, Given) {
    let given = Given {
        addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
        ports: ports.iter().map(|port| ("TCP".to_owned(), *port)).collect(),
    };
    (Key::new("team", name), given)
}

/// Names that are longer are of younger Services.
#[test]
fn nobody_takes_an_address_that_another_was_given() {
    let check = |source: AddressSource, attacker: &str, known: &[(Key, Given)], expected: &str| {
        let victim: Arc<Service> = object(&(service("victim", &[9091], "") + &status(&["192.0.2.1"])));
        let known: HashMap<Key, Given> = known.iter().cloned().collect();
        let attacker: Arc<Service> = object(attacker);
        let decide = |service: &Arc<Service>, rival: &Arc<Service>| {
            let view = View {
                settings: &settings(source.clone()),
                service,
                rivals: vec![rival.clone()],
                nodes: objects(&nodes().join("\n---\n")),
                nodes_with_endpoints: BTreeSet::new(),
                given: &known,
            };
            addresses::decide(&view).0.contains(&"192.0.2.1".parse().unwrap())
        };
        let found = format!(
            "victim {}, attacker {}",
            decide(&victim, &attacker),
            decide(&attacker, &victim)
        );
        assert_eq!(found, expected);
    };
    let victim = given("victim", &["192.0.2.1"], &[9091]);
    // An older Service that had another port of the same address, and changes to the victim's.
    let other_port = given("old", &["192.0.2.1"], &[8000]);
    let changed = service("old", &[9091], "") + &status(&["192.0.2.1"]);
    let kept = "victim true, attacker false";
    check(AddressSource::Nodes, &changed, &[victim.clone(), other_port], kept);
    // One that names the address itself.
    let named = service("old", &[9091], ", externalIPs: [192.0.2.1]");
    check(
        AddressSource::Nodes,
        &named,
        &[victim.clone(), given("old", &[], &[9091])],
        kept,
    );
    // One whose status was written by somebody else.
    let forged = service("old", &[80], ", loadBalancerIP: 192.0.2.1") + &status(&["192.0.2.1"]);
    let source = pool(&["192.0.2.0/28"]);
    check(source, &forged, &[victim, given("old", &[], &[80])], kept);
}

#[test]
fn ranges_are_parsed_and_bounded() {
    for bad in [
        "",
        "x",
        "192.0.2.1/33",
        "192.0.2.9-192.0.2.1",
        "192.0.2.1-2001:db8::1",
        "10.0.0.0/-1",
    ] {
        assert!(bad.parse::<crate::settings::AddressRange>().is_err(), "{bad}");
    }
    let all: crate::settings::AddressRange = "::/0".parse().unwrap();
    assert!(all.contains("ffff::1".parse().unwrap()) && !all.contains("192.0.2.1".parse().unwrap()));
}

#[test]
fn addresses_and_the_finalizer_are_written_together_and_once() {
    let ips: Vec<IpAddr> = vec!["192.0.2.1".parse().unwrap()];
    let new: Arc<Service> = object(&service("web", &[80], ""));
    expect![[r#"
        event Warning SyncLoadBalancerFailed: Error syncing load balancer: why
        event Normal EnsuringLoadBalancer: Ensuring load balancer
        patch services team/web/status: {"metadata":{"finalizers":["service.kubernetes.io/load-balancer-cleanup"],"resourceVersion":"7"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1","ipMode":"VIP"}]}}}
        event Normal EnsuredLoadBalancer: Ensured load balancer
    "#]]
    .assert_eq(&ensure(&new, &ips, Some("why".to_owned())).to_string());
    let finalizer = "resourceVersion: '7', finalizers: [other, service.kubernetes.io/load-balancer-cleanup]";
    let yaml = (service("web", &[80], "") + &status(&["192.0.2.1"])).replace("resourceVersion: '7'", finalizer);
    let done: Arc<Service> = object(&yaml);
    assert_eq!(ensure(&done, &ips, None).to_string(), "");
    assert_eq!(clean_up(&new).to_string(), "");
    let cleaned = expect![[r#"
        event Normal DeletingLoadBalancer: Deleting load balancer
        patch services team/web/status: {"metadata":{"finalizers":["other"],"resourceVersion":"7"},"status":{"loadBalancer":{"ingress":null}}}
        event Normal DeletedLoadBalancer: Deleted load balancer
    "#]];
    cleaned.assert_eq(&clean_up(&done).to_string());
    let foreign: Arc<Service> = object(&yaml.replace("ports:", "loadBalancerClass: example.com/other, ports:"));
    assert_eq!(clean_up(&foreign).to_string(), "");
    assert!(is_ours(&new) && !is_ours(&foreign));
}
