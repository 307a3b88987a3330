//! Packet rules as the kernel has them, listed by the `nft` program.

use expect_test::{Expect, expect};
use network::nft::matching::{self, Side};
use network::nft::{
    Base, Batch, ChainKind, Comparison, Data, Element, Expression, Family, Hook, MetaKey, Nat, Register, Set, Socket,
    Table, Type, ValueType, Verdict, priority,
};

use crate::support::{on_new_host, run};

fn check(build: impl FnOnce(&mut Batch, &Table), expected: Expect) {
    on_new_host(|| {
        let table = Table::new(Family::Ip, "t");
        let mut batch = Batch::new();
        batch.add_table(&table, Some("made by a test"));
        build(&mut batch, &table);
        batch.commit(&Socket::open().unwrap()).unwrap();
        expected.assert_eq(&run("nft", &["list", "ruleset"]));
    });
}

fn map(name: &str, key: &[Type], value: ValueType) -> Set {
    Set {
        name: name.to_owned(),
        key: key.to_vec(),
        value: Some(value),
        interval: false,
        dynamic: false,
        size: None,
    }
}

#[test]
fn sets_maps_and_their_elements() {
    check(
        |batch, table| {
            batch.add_chain(table, "target", None);
            let key = [Type::Ipv4Address, Type::Protocol, Type::Port];
            batch.add_set(table, &map("verdicts", &key, ValueType::Verdict));
            let service = || Data::new().address([10, 96, 0, 1].into()).protocol(6).port(443);
            let element = Element::verdict(service(), Verdict::Goto("target".to_owned())).comment("default/kubernetes");
            batch.add_elements(table, "verdicts", [&element]);
            let target = ValueType::Data(vec![Type::Ipv4Address, Type::Port]);
            batch.add_set(table, &map("targets", &[Type::Mark], target));
            let elements: Vec<Element> = (0..3)
                .map(|index| {
                    let target = Data::new().address([10, 0, 0, index].into()).port(6443);
                    Element::data(Data::new().mark(u32::from(index)), target)
                })
                .collect();
            batch.add_elements(table, "targets", &elements);
            batch.remove_elements(table, "targets", [&elements[1]]);
            let ranges = Set {
                interval: true,
                value: None,
                ..map("ranges", &[Type::Ipv4Address, Type::Port], ValueType::Verdict)
            };
            batch.add_set(table, &ranges);
            let range = Element {
                key_end: Some(Data::new().address([10, 0, 0, 255].into()).port(80).bytes()),
                ..Element::key(Data::new().address([10, 0, 0, 0].into()).port(80))
            };
            batch.add_elements(table, "ranges", [&range]);
        },
        expect![[r#"
            table ip t {
            	comment "made by a test"
            	map verdicts {
            		type ipv4_addr . inet_proto . inet_service : verdict
            		elements = { 10.96.0.1 . tcp . 443 comment "default/kubernetes" : goto target }
            	}

            	map targets {
            		type mark : ipv4_addr . inet_service
            		elements = { 0x00000000 : 10.0.0.0 . 6443, 0x00000002 : 10.0.0.2 . 6443 }
            	}

            	set ranges {
            		type ipv4_addr . inet_service
            		flags interval
            		elements = { 10.0.0.0/24 . 80 }
            	}

            	chain target {
            	}
            }
        "#]],
    );
}

#[test]
fn rules_and_their_expressions() {
    check(
        |batch, table| {
            let nat = Base {
                kind: ChainKind::Nat,
                hook: Hook::Prerouting,
                priority: priority::DSTNAT,
            };
            batch.add_chain(table, "nat", Some(nat));
            let filter = Base {
                kind: ChainKind::Filter,
                hook: Hook::Output,
                priority: priority::FILTER,
            };
            batch.add_chain(table, "filter", Some(filter));
            let post = Base {
                hook: Hook::Postrouting,
                priority: priority::SRCNAT,
                ..nat
            };
            batch.add_chain(table, "post", Some(post));
            let target = ValueType::Data(vec![Type::Ipv4Address, Type::Port]);
            let key = [Type::Ipv4Address, Type::Protocol, Type::Port, Type::Mark];
            batch.add_set(table, &map("endpoints", &key, target.clone()));
            let sticky = Set {
                dynamic: true,
                value: None,
                ..map("sticky", &[Type::Ipv4Address], target)
            };
            batch.add_set(table, &sticky);
            let mut balance = vec![matching::load_address(Side::Destination, true, Register(0))];
            balance.extend(matching::load_protocol_and_port(Register(1)));
            let destination = Expression::Destination(Nat {
                family: Family::Ip,
                address: Register(8),
                port: Register(9),
            });
            balance.extend([
                Expression::Random {
                    modulus: 3,
                    into: Register(3),
                },
                Expression::FromMap {
                    map: "endpoints".to_owned(),
                    key: Register(0),
                    into: Register(8),
                },
                Expression::Counter,
                destination,
            ]);
            batch.add_rule(table, "nat", "balance", &balance);
            let remember = [
                matching::load_address(Side::Source, true, Register(0)),
                Expression::Remember {
                    set: "sticky".to_owned(),
                    key: Register(0),
                    timeout_ms: 10_800_000,
                },
            ];
            batch.add_rule(table, "nat", "", &remember);
            let block = "10.244.0.0/16".parse().unwrap();
            let refuse = [
                matching::address_in(Side::Source, block, Comparison::NotEqual),
                matching::address_local(Side::Destination, Comparison::Equal),
                matching::interface(MetaKey::OutputName, "eth0"),
                matching::transport_protocol(6),
                vec![Expression::Reject(Family::Ip)],
            ];
            batch.add_rule(table, "filter", "", &refuse.concat());
            batch.add_rule(table, "filter", "", &matching::set_mark_bits(0x4000, true));
            let masquerade = [matching::marked(0x4000), vec![Expression::Masquerade]].concat();
            batch.add_rule(table, "post", "", &masquerade);
        },
        expect![[r#"
            table ip t {
            	comment "made by a test"
            	map endpoints {
            		type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service
            	}

            	set sticky {
            		type ipv4_addr
            		size 65535
            		flags dynamic,timeout
            	}

            	chain nat {
            		type nat hook prerouting priority dstnat; policy accept;
            		counter packets 0 bytes 0 dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints comment "balance"
            		update @sticky { ip saddr timeout 3h }
            	}

            	chain filter {
            		type filter hook output priority filter; policy accept;
            		ip saddr != 10.244.0.0/16 fib daddr type local oifname "eth0" meta l4proto tcp reject
            		meta mark set meta mark | 0x00004000
            	}

            	chain post {
            		type nat hook postrouting priority srcnat; policy accept;
            		meta mark & 0x00004000 != 0x00000000 masquerade fully-random
            	}
            }
        "#]],
    );
}

#[test]
fn a_refused_transaction_changes_nothing_and_says_which_change_was_refused() {
    on_new_host(|| {
        let socket = Socket::open().unwrap();
        let table = Table::new(Family::Ip, "t");
        let mut batch = Batch::new();
        batch.add_table(&table, None);
        batch.add_chain(&table, "a", None);
        batch.add_rule(
            &table,
            "a",
            "",
            &[Expression::Verdict(Verdict::Jump("absent".to_owned()))],
        );
        batch.remove_elements(&table, "nothing", [&Element::key(Data::new().mark(1))]);
        let error = batch.commit(&socket).unwrap_err();
        expect!["add rule to chain ip t a: No such file or directory (os error 2); remove 1 elements from set ip t nothing: No such file or directory (os error 2)"].assert_eq(&error.to_string());
        assert_eq!(run("nft", &["list", "ruleset"]), "");
    });
}

#[test]
fn what_was_written_can_be_read_back() {
    on_new_host(|| {
        let socket = Socket::open().unwrap();
        let table = Table::new(Family::Ip6, "t");
        assert_eq!(socket.table_comment(&table).unwrap(), None);
        let mut batch = Batch::new();
        batch.add_table(&table, Some("layout 1"));
        batch.add_chain(&table, "c", None);
        let verdicts = map("verdicts", &[Type::Mark], ValueType::Verdict);
        batch.add_set(&table, &verdicts);
        // More than fit in one message, and in one datagram of the dump.
        let elements: Vec<Element> = (0..5000)
            .map(|number| Element::verdict(Data::new().mark(number), Verdict::Goto("c".to_owned())).comment("x"))
            .collect();
        batch.add_elements(&table, "verdicts", &elements);
        batch.commit(&socket).unwrap();

        assert_eq!(socket.table_comment(&table).unwrap().as_deref(), Some("layout 1"));
        assert_eq!(socket.chains(&table).unwrap(), ["c"]);
        let mut read = socket.elements(&table, "verdicts").unwrap();
        read.sort_by_key(|element| u32::from_ne_bytes(element.key[..4].try_into().unwrap()));
        assert_eq!(read, elements);
    });
}
