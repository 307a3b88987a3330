//! How little a change of Services changes in the kernel.

use std::net::SocketAddr;

use expect_test::{Expect, expect};
use network::Protocol;

use super::*;
use crate::model::{Clients, Frontend, FrontendAddress, Masquerade, Target};

fn state() -> FamilyState {
    let options = NftablesOptions {
        table: "t".to_owned(),
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        service_cidrs: Vec::new(),
        masquerade_bit: 0x4000,
        reserved_ports: BTreeSet::new(),
    };
    FamilyState::new(layouts(&options).remove(0))
}

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

/// Begins with Services `before` in place, replaces some, and lists the changes.
fn check(before: &[ServicePort], old: &[ServicePort], new: &[ServicePort], expected: Expect) {
    let mut state = state();
    state.step(&[], before);
    let (before, after) = state.step(old, new);
    expected.assert_eq(&changes(&state.layout.table, &before, &after).to_string());
}

#[test]
fn an_endpoint_more_changes_elements_only() {
    let others = [service(1, &[1, 2]), service(2, &[3, 4, 5])];
    let [old, new] = [service(3, &[6, 7]), service(3, &[6, 7, 8])];
    let before = [&others[..], std::slice::from_ref(&old)].concat();
    check(
        &before,
        &[old],
        &[new],
        expect![[r#"
        remove 1 elements from set ip t cluster-pick-2-outsiders
        add 1 elements to set ip t cluster-endpoints
        add 1 elements to set ip t cluster-pick-3-outsiders
        add 1 elements to set ip t hairpin
    "#]],
    );
}

#[test]
fn an_endpoint_replaced_changes_one_element_of_the_map() {
    let [old, new] = [service(3, &[6, 7]), service(3, &[6, 8])];
    check(
        std::slice::from_ref(&old),
        std::slice::from_ref(&old),
        &[new],
        expect![[r#"
        remove 1 elements from set ip t cluster-endpoints
        remove 1 elements from set ip t hairpin
        add 1 elements to set ip t cluster-endpoints
        add 1 elements to set ip t hairpin
    "#]],
    );
}

#[test]
fn a_number_of_endpoints_that_nobody_had_makes_a_group() {
    check(
        &[service(1, &[1])],
        &[],
        &[service(2, &[2, 3])],
        expect![[r#"
        add set ip t cluster-pick-2-outsiders
        add chain ip t cluster-pick-2-outsiders
        add 2 elements to set ip t cluster-endpoints
        add 1 elements to set ip t cluster-pick-2-outsiders
        add 2 elements to set ip t hairpin
        remove rules of chain ip t cluster
        add rule to chain ip t cluster
        add rule to chain ip t cluster
        add rule to chain ip t cluster-pick-2-outsiders
        add rule to chain ip t cluster-pick-2-outsiders
    "#]],
    );
}

#[test]
fn the_last_of_a_group_takes_it_along() {
    let last = service(2, &[2, 3]);
    check(
        &[service(1, &[1]), last.clone()],
        &[last],
        &[],
        expect![[r#"
        remove 2 elements from set ip t cluster-endpoints
        remove 2 elements from set ip t hairpin
        remove rules of chain ip t cluster
        add rule to chain ip t cluster
        remove rules of chain ip t cluster-pick-2-outsiders
        remove set ip t cluster-pick-2-outsiders
        remove chain ip t cluster-pick-2-outsiders
    "#]],
    );
}

#[test]
fn a_pod_of_two_services_stays_known_while_one_is_left() {
    let [one, two] = [service(1, &[1]), service(2, &[1])];
    check(
        &[one.clone(), two],
        &[one],
        &[],
        expect![[r#"
        remove 1 elements from set ip t cluster-endpoints
        remove 1 elements from set ip t cluster-pick-1-outsiders
    "#]],
    );
}

#[test]
fn a_sticky_service_keeps_the_clients_of_endpoints_that_stay() {
    let sticky = |endpoints: &[u8]| ServicePort {
        affinity_s: Some(60),
        ..service(1, endpoints)
    };
    check(
        &[sticky(&[1, 2])],
        &[sticky(&[1, 2])],
        &[sticky(&[1, 3])],
        expect![[r#"
        add set ip t sticky-10.96.0.1-80-tcp-10.244.0.3-8080
        add chain ip t sticky-10.96.0.1-80-tcp-10.244.0.3-8080
        remove 1 elements from set ip t hairpin
        add 1 elements to set ip t hairpin
        remove rules of chain ip t sticky-10.96.0.1-80-tcp
        add rule to chain ip t sticky-10.96.0.1-80-tcp
        add rule to chain ip t sticky-10.96.0.1-80-tcp
        add rule to chain ip t sticky-10.96.0.1-80-tcp
        add rule to chain ip t sticky-10.96.0.1-80-tcp
        add rule to chain ip t sticky-10.96.0.1-80-tcp
        add rule to chain ip t sticky-10.96.0.1-80-tcp-10.244.0.3-8080
        add rule to chain ip t sticky-10.96.0.1-80-tcp-10.244.0.3-8080
        remove rules of chain ip t sticky-10.96.0.1-80-tcp-10.244.0.2-8080
        remove set ip t sticky-10.96.0.1-80-tcp-10.244.0.2-8080
        remove chain ip t sticky-10.96.0.1-80-tcp-10.244.0.2-8080
    "#]],
    );
}

#[test]
fn what_does_not_change_costs_nothing() {
    let same = service(1, &[1, 2]);
    let same = std::slice::from_ref(&same);
    check(same, same, same, expect![""]);
}

#[test]
fn blocks_within_others_are_left_out_quickly() {
    let blocks: Vec<Cidr> = (0..200_000u32)
        .map(|number| {
            Cidr::containing(
                IpAddr::from(number.to_be_bytes()),
                if number % 7 == 0 { 24 } else { 32 },
            )
        })
        .collect();
    let kept = fragment::outermost(&blocks);
    assert!(kept.is_sorted());
    assert!(
        blocks.iter().all(
            |block| kept.iter().filter(|kept| kept.contains(block.address())).count() == 1 || block.prefix() == 32
        )
    );
    assert_eq!(kept.len(), 782);
}
