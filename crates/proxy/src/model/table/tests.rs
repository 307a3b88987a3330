//! Who has what several Services ask for.

use expect_test::{Expect, expect};

use super::*;
use crate::model::{Clients, Frontend, Masquerade};

/// A Service at `10.96.0.N:80` with endpoints `10.244.0.N:8080`.
fn service(number: u8, endpoints: &[u8]) -> ServicePort {
    let address = |network, host, port| SocketAddr::new([10, network, 0, host].into(), port);
    let endpoints: Vec<SocketAddr> = endpoints.iter().map(|&host| address(244, host, 8080)).collect();
    ServicePort {
        name: format!("default/s{number}"),
        protocol: Protocol::Tcp,
        created: String::new(),
        local: endpoints.iter().map(SocketAddr::ip).collect(),
        frontends: vec![Frontend {
            address: FrontendAddress::Address(address(96, number, 80)),
            clients: Clients::Anyone,
            own: true,
            masquerade: Masquerade::Outsiders,
            allowed: Vec::new(),
            target: if endpoints.is_empty() {
                Target::Reject
            } else {
                Target::Endpoints(endpoints)
            },
        }],
        affinity_s: None,
    }
}

/// A Service that also wants an external address.
fn external(number: u8, created: &str, address: [u8; 4]) -> Vec<ServicePort> {
    let mut port = service(number, &[number]);
    port.created = created.to_owned();
    port.frontends.push(Frontend {
        address: FrontendAddress::Address(SocketAddr::new(address.into(), 80)),
        own: false,
        ..port.frontends[0].clone()
    });
    vec![port]
}

/// Which of the Services are reached at more than their own address, after each step.
fn check_claims(steps: Vec<Vec<(&str, Vec<ServicePort>)>>, expected: Expect) {
    let mut table = ServiceTable::default();
    let mut out = String::new();
    for step in steps {
        let changing = step.into_iter().map(|(name, ports)| (Key::new("ns", name), ports));
        table.replace(changing.collect());
        let mut has: Vec<&str> = table
            .services
            .iter()
            .filter(|(_, ports)| ports.iter().any(|port| port.frontends.len() > 1))
            .map(|(key, _)| key.name())
            .collect();
        has.sort_unstable();
        out.push_str(&format!("{}\n", has.join(" ")));
    }
    expected.assert_eq(&out);
}

#[test]
fn an_external_address_goes_to_the_older_service_and_stays_with_it() {
    let shared = [203, 0, 113, 5];
    check_claims(
        vec![
            vec![
                ("zoe", external(1, "2026-01-01", shared)),
                ("adam", external(2, "2026-01-02", shared)),
            ],
            // Whoever has it keeps it, although an older one asks.
            vec![("eve", external(3, "2025-01-01", shared))],
            vec![
                ("zoe", external(1, "2026-01-01", shared)),
                ("adam", external(2, "2026-01-02", shared)),
            ],
            // Who waits gets it when it becomes free, the oldest first.
            vec![("zoe", vec![])],
            vec![("eve", vec![])],
            vec![("adam", vec![])],
        ],
        expect![[r#"
            zoe
            zoe
            zoe
            eve
            adam

        "#]],
    );
}

#[test]
fn a_services_own_address_is_nobody_elses() {
    let own_of_nine = [10, 96, 0, 9];
    check_claims(
        vec![
            vec![("adam", external(1, "2025-01-01", own_of_nine))],
            // It turns out to be another's own.
            vec![("zoe", external(9, "2026-01-01", [203, 0, 113, 5]))],
            vec![("adam", external(1, "2025-01-01", own_of_nine))],
            vec![("zoe", vec![])],
        ],
        expect![[r#"
            adam
            zoe
            zoe
            adam
        "#]],
    );
}

#[test]
fn those_who_wait_cost_nothing_until_their_turn_comes() {
    let mut table = ServiceTable::default();
    let all = (1..=250).map(|number| {
        let key = Key::new("ns", &format!("s{number:03}"));
        (key, external(number, "", [203, 0, 113, 5]))
    });
    table.replace(all.collect());
    let mut changing = BTreeMap::from([(Key::new("ns", "other"), vec![service(251, &[1])])]);
    table.claims.extend(&mut changing, &table.services);
    assert_eq!(changing.len(), 1);
    let mut changing = BTreeMap::from([(Key::new("ns", "s001"), Vec::new())]);
    table.claims.extend(&mut changing, &table.services);
    assert_eq!(changing.len(), 250);
}

#[test]
fn packets_may_go_where_the_owner_of_the_place_leads() {
    let shared = [203, 0, 113, 5];
    let address = FrontendAddress::Address(SocketAddr::new(shared.into(), 80));
    let mut table = ServiceTable::default();
    let put = |table: &mut ServiceTable, name: &str, ports| table.replace([(Key::new("ns", name), ports)].into());
    put(&mut table, "adam", external(1, "", shared));
    put(&mut table, "zoe", external(2, "", shared));
    let at = |table: &ServiceTable, protocol| table.endpoints_at(address, protocol);
    assert_eq!(
        at(&table, Protocol::Tcp),
        [SocketAddr::new([10, 244, 0, 1].into(), 8080)].into()
    );
    assert_eq!(at(&table, Protocol::Udp), [].into());
    put(&mut table, "adam", Vec::new());
    assert_eq!(
        at(&table, Protocol::Tcp),
        [SocketAddr::new([10, 244, 0, 2].into(), 8080)].into()
    );
    put(&mut table, "zoe", Vec::new());
    assert_eq!(at(&table, Protocol::Tcp), [].into());
}
