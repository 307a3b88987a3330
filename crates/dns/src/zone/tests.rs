//! What the cluster's names answer: YAML in, records out.

use expect_test::{Expect, expect};

use super::*;

const OBJECTS: &str = "
services:
- metadata: {namespace: default, name: web}
  spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, 'fd00:96::10'], ports: [
    {name: http, port: 80, protocol: TCP}, {name: metrics, port: 9100, protocol: TCP}]}
- metadata: {namespace: default, name: db}
  spec: {clusterIP: None, clusterIPs: [None], ports: [{name: sql, port: 5432, protocol: TCP}]}
- metadata: {namespace: default, name: empty}
  spec: {clusterIP: None, ports: [{port: 1}]}
- metadata: {namespace: default, name: outside}
  spec: {type: ExternalName, externalName: Example.com.}
- metadata: {namespace: default, name: inside}
  spec: {type: ExternalName, externalName: web.default.svc.cluster.local}
- metadata: {namespace: default, name: circle}
  spec: {type: ExternalName, externalName: circle.default.svc.cluster.local}
slices:
- metadata: {namespace: default, name: db-1, labels: {kubernetes.io/service-name: db}}
  ports: [{name: sql, port: 5432, protocol: TCP}]
  endpoints:
  - {addresses: [10.244.0.5], hostname: db-0, conditions: {ready: true}}
  - {addresses: [10.244.1.6], conditions: {ready: true}}
  - {addresses: [10.244.1.7], hostname: db-2, conditions: {ready: false}}
- metadata: {namespace: default, name: web-1, labels: {kubernetes.io/service-name: web}}
  ports: [{name: http, port: 8080, protocol: TCP}]
  endpoints: [{addresses: [10.244.0.9], conditions: {ready: true}}]
";

#[derive(serde::Deserialize)]
struct Objects {
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
}

fn zone() -> Zone {
    let objects: Objects = serde_saphyr::from_str(OBJECTS).unwrap();
    let (services, slices) = (Arc::new(Cache::default()), Arc::new(Cache::default()));
    objects
        .services
        .into_iter()
        .for_each(|service| services.insert(service));
    objects.slices.into_iter().for_each(|slice| slices.insert(slice));
    Zone::new("cluster.local.", services, slices)
}

fn text(record: &Record) -> String {
    let data = match &record.data {
        Data::A(ip) => format!("A {ip}"),
        Data::Aaaa(ip) => format!("AAAA {ip}"),
        Data::Cname(name) => format!("CNAME {name}"),
        Data::Ns(name) => format!("NS {name}"),
        Data::Ptr(name) => format!("PTR {name}"),
        Data::Txt(text) => format!("TXT {text}"),
        Data::Srv { port, weight, target } => format!("SRV 0 {weight} {port} {target}"),
        Data::Soa { server, .. } => format!("SOA {server}"),
    };
    format!("{} {data}", record.name)
}

fn check(questions: &[(&str, u16)], expected: Expect) {
    let zone = zone();
    let mut out = String::new();
    for (name, wanted) in questions {
        let mut lines = Vec::new();
        match zone.answer(name, *wanted) {
            Answer::Elsewhere => lines.push("elsewhere".to_owned()),
            Answer::NoName => lines.push("no such name".to_owned()),
            Answer::Alias { record, target } => lines.push(format!("{}, then ask for {target}", text(&record))),
            Answer::Records { answers, additional } => {
                lines.extend(answers.iter().map(text));
                lines.extend(additional.iter().map(|record| format!("+ {}", text(record))));
                if lines.is_empty() {
                    lines.push("nothing of that type".to_owned());
                }
            }
        }
        out.push_str(&format!("{name} {wanted}\n  {}\n", lines.join("\n  ")));
    }
    expected.assert_eq(&out);
}

#[test]
fn services_have_their_addresses() {
    check(
        &[
            ("web.default.svc.cluster.local", kind::A),
            ("web.default.svc.cluster.local", kind::AAAA),
            ("web.default.svc.cluster.local", kind::TXT),
            ("web.other.svc.cluster.local", kind::A),
            ("absent.default.svc.cluster.local", kind::A),
        ],
        expect![[r#"
            web.default.svc.cluster.local 1
              web.default.svc.cluster.local A 10.96.0.10
            web.default.svc.cluster.local 28
              web.default.svc.cluster.local AAAA fd00:96::10
            web.default.svc.cluster.local 16
              nothing of that type
            web.other.svc.cluster.local 1
              no such name
            absent.default.svc.cluster.local 1
              no such name
        "#]],
    );
}

#[test]
fn headless_services_have_their_ready_pods() {
    check(
        &[
            ("db.default.svc.cluster.local", kind::A),
            ("db.default.svc.cluster.local", kind::AAAA),
            ("empty.default.svc.cluster.local", kind::A),
            ("db-0.db.default.svc.cluster.local", kind::A),
            ("10-244-1-6.db.default.svc.cluster.local", kind::A),
            ("db-2.db.default.svc.cluster.local", kind::A),
        ],
        expect![[r#"
            db.default.svc.cluster.local 1
              db.default.svc.cluster.local A 10.244.0.5
              db.default.svc.cluster.local A 10.244.1.6
            db.default.svc.cluster.local 28
              nothing of that type
            empty.default.svc.cluster.local 1
              nothing of that type
            db-0.db.default.svc.cluster.local 1
              db-0.db.default.svc.cluster.local A 10.244.0.5
            10-244-1-6.db.default.svc.cluster.local 1
              10-244-1-6.db.default.svc.cluster.local A 10.244.1.6
            db-2.db.default.svc.cluster.local 1
              no such name
        "#]],
    );
}

#[test]
fn ports_have_names_and_targets() {
    check(
        &[
            ("_http._tcp.web.default.svc.cluster.local", kind::SRV),
            ("_sql._tcp.db.default.svc.cluster.local", kind::SRV),
            ("_sql._udp.db.default.svc.cluster.local", kind::SRV),
            ("web.default.svc.cluster.local", kind::SRV),
        ],
        expect![[r#"
            _http._tcp.web.default.svc.cluster.local 33
              _http._tcp.web.default.svc.cluster.local SRV 0 100 80 web.default.svc.cluster.local
              + web.default.svc.cluster.local A 10.96.0.10
              + web.default.svc.cluster.local AAAA fd00:96::10
            _sql._tcp.db.default.svc.cluster.local 33
              _sql._tcp.db.default.svc.cluster.local SRV 0 50 5432 10-244-1-6.db.default.svc.cluster.local
              _sql._tcp.db.default.svc.cluster.local SRV 0 50 5432 db-0.db.default.svc.cluster.local
              + db-0.db.default.svc.cluster.local A 10.244.0.5
              + 10-244-1-6.db.default.svc.cluster.local A 10.244.1.6
            _sql._udp.db.default.svc.cluster.local 33
              no such name
            web.default.svc.cluster.local 33
              web.default.svc.cluster.local SRV 0 50 80 web.default.svc.cluster.local
              web.default.svc.cluster.local SRV 0 50 9100 web.default.svc.cluster.local
              + web.default.svc.cluster.local A 10.96.0.10
              + web.default.svc.cluster.local AAAA fd00:96::10
        "#]],
    );
}

#[test]
fn addresses_have_names() {
    check(
        &[
            ("10.0.96.10.in-addr.arpa", kind::PTR),
            ("5.0.244.10.in-addr.arpa", kind::PTR),
            ("6.1.244.10.in-addr.arpa", kind::PTR),
            ("9.0.244.10.in-addr.arpa", kind::PTR),
            (
                "0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa",
                kind::PTR,
            ),
            ("1.2.0.192.in-addr.arpa", kind::PTR),
        ],
        expect![[r#"
            10.0.96.10.in-addr.arpa 12
              10.0.96.10.in-addr.arpa PTR web.default.svc.cluster.local
            5.0.244.10.in-addr.arpa 12
              5.0.244.10.in-addr.arpa PTR db-0.db.default.svc.cluster.local
            6.1.244.10.in-addr.arpa 12
              6.1.244.10.in-addr.arpa PTR 10-244-1-6.db.default.svc.cluster.local
            9.0.244.10.in-addr.arpa 12
              elsewhere
            0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa 12
              0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa PTR web.default.svc.cluster.local
            1.2.0.192.in-addr.arpa 12
              elsewhere
        "#]],
    );
}

#[test]
fn names_for_others_are_aliases() {
    check(
        &[
            ("outside.default.svc.cluster.local", kind::CNAME),
            ("outside.default.svc.cluster.local", kind::A),
            ("inside.default.svc.cluster.local", kind::A),
            ("circle.default.svc.cluster.local", kind::A),
        ],
        expect![[r#"
            outside.default.svc.cluster.local 5
              outside.default.svc.cluster.local CNAME example.com
            outside.default.svc.cluster.local 1
              outside.default.svc.cluster.local CNAME example.com, then ask for example.com
            inside.default.svc.cluster.local 1
              inside.default.svc.cluster.local CNAME web.default.svc.cluster.local
              web.default.svc.cluster.local A 10.96.0.10
            circle.default.svc.cluster.local 1
              circle.default.svc.cluster.local CNAME circle.default.svc.cluster.local
        "#]],
    );
}

#[test]
fn the_zone_knows_itself_and_nobody_else() {
    check(
        &[
            ("cluster.local", kind::SOA),
            ("cluster.local", kind::NS),
            ("dns-version.cluster.local", kind::TXT),
            ("default.svc.cluster.local", kind::A),
            ("nowhere.svc.cluster.local", kind::A),
            ("10-244-0-5.default.pod.cluster.local", kind::A),
            ("host.default.pod.cluster.local", kind::A),
            ("a.b.c.d.e.cluster.local", kind::A),
            ("mycluster.local", kind::A),
            ("example.com", kind::A),
        ],
        expect![[r#"
            cluster.local 6
              cluster.local SOA ns.dns.cluster.local
            cluster.local 2
              cluster.local NS ns.dns.cluster.local
            dns-version.cluster.local 16
              dns-version.cluster.local TXT 1.1.0
            default.svc.cluster.local 1
              nothing of that type
            nowhere.svc.cluster.local 1
              no such name
            10-244-0-5.default.pod.cluster.local 1
              10-244-0-5.default.pod.cluster.local A 10.244.0.5
            host.default.pod.cluster.local 1
              no such name
            a.b.c.d.e.cluster.local 1
              no such name
            mycluster.local 1
              elsewhere
            example.com 1
              elsewhere
        "#]],
    );
}
