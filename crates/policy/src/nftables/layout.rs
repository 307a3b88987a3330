//! The part of the rules that does not depend on single policies.
//!
//! A new connection that is forwarded is judged once, after the proxy has chosen its endpoint. Who sends and who receives
//! are looked up among the isolated pods of this node; the number of a pod's class, with the address of the other end,
//! leads to the number of a grant, and that with protocol and port to a yes:
//!
//! ```text
//! chain forward {
//!     ct state established,related accept
//!     ip saddr . ip daddr @self accept
//!     meta priority set ip daddr map @ingress-pods jump ingress
//!     meta priority set ip saddr map @egress-pods jump egress
//! }
//! chain ingress {
//!     meta priority set meta priority . ip saddr map @ingress-peers
//!     meta priority . meta l4proto . th dport @ports meta priority set 0 return
//!     meta priority set ip daddr map @ingress-pods
//!     meta priority set meta priority . ip saddr map @ingress-blocks
//!     meta priority . meta l4proto . th dport @ports meta priority set 0 return
//!     drop
//! }
//! ```
//!
//! So no policy, pod or label ever changes a rule, and a packet's way is as long with a thousand policies as with one.
//! Numbers are carried by the packet's priority, which is nothing yet for one that has not been queued: its mark is
//! others', and what only registers hold makes `nft list` of some versions give up. Classes and grants never have the same
//! number, so that a class that does not know the other end is no grant.
//!
//! What the node itself sends passes none of this, so that probes always arrive; what pods send to the node passes
//! `input`.

use std::net::IpAddr;

use network::Cidr;
use network::nft::matching::{
    Side, address_in, address_registers, equal, interface, load_address, load_protocol_and_port, marked, set_mark_bits,
    transport_protocol,
};
use network::nft::ruleset::Ruleset;
use network::nft::{
    Base, ChainKind, Comparison, ConntrackKey, Expression, Family, Hook, MetaKey, PayloadBase, Register, Set, Table,
    Type, ValueType, Verdict, priority,
};

use crate::model::Direction;

/// The sets of one direction.
pub struct Names {
    /// Address of an isolated pod → class.
    pub pods: &'static str,
    /// Class . address → grant.
    pub peers: &'static str,
    /// Class . range of addresses → grant.
    pub blocks: &'static str,
    chain: &'static str,
    /// In the table of frames: the interfaces of isolated pods.
    pub ports: &'static str,
}

impl Names {
    pub fn of_direction(direction: Direction) -> Names {
        match direction {
            Direction::Ingress => Names {
                pods: "ingress-pods",
                peers: "ingress-peers",
                blocks: "ingress-blocks",
                chain: "ingress",
                ports: "isolated-ingress",
            },
            Direction::Egress => Names {
                pods: "egress-pods",
                peers: "egress-peers",
                blocks: "egress-blocks",
                chain: "egress",
                ports: "isolated-egress",
            },
        }
    }
}

/// Grant . protocol . port.
pub const PORTS: &str = "ports";
/// Address of an isolated pod . the same address: what a pod sends to itself through a Service.
pub const SELF: &str = "self";
/// Says that a packet between two ports of the bridge has passed `forward`. It is on a packet only from there to the
/// bridge's own rules, and nothing is routed in between.
const JUDGED_BIT: u32 = 0x0008_0000;

/// What the rules of one address family are built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub ipv4: bool,
    pub table: Table,
    /// The bridge of this node's pods.
    pub bridge: String,
}

impl Layout {
    /// Everything that is there whatever policies there are.
    pub fn fixed(&self) -> Ruleset {
        let mut rules = Ruleset::default();
        let address = if self.ipv4 {
            Type::Ipv4Address
        } else {
            Type::Ipv6Address
        };
        let number = || Some(ValueType::Data(vec![Type::Mark]));
        for direction in Direction::BOTH {
            let names = Names::of_direction(direction);
            rules.add_set(set(names.pods, &[address], number()));
            rules.add_set(set(names.peers, &[Type::Mark, address], number()));
            rules.add_set(Set {
                interval: true,
                ..set(names.blocks, &[Type::Mark, address], number())
            });
            rules.add_chain(names.chain, None, self.judge(direction));
        }
        rules.add_set(Set {
            interval: true,
            ..set(PORTS, &[Type::Mark, Type::Protocol, Type::Port], None)
        });
        rules.add_set(set(SELF, &[address, address], None));
        rules.add_chain("forward", filter(Hook::Forward), self.forward());
        rules.add_chain("input", filter(Hook::Input), self.input());
        let judged = [marked(JUDGED_BIT), set_mark_bits(JUDGED_BIT, false)].concat();
        rules.add_chain("postrouting", filter(Hook::Postrouting), vec![judged]);
        rules
    }

    fn forward(&self) -> Vec<Vec<Expression>> {
        let mut between_pods = interface(MetaKey::InputName, &self.bridge);
        between_pods.extend(interface(MetaKey::OutputName, &self.bridge));
        for (side, block) in self.not_judged() {
            between_pods.extend(address_in(side, block, Comparison::NotEqual));
        }
        between_pods.extend(set_mark_bits(JUDGED_BIT, true));
        let to_itself = vec![
            load_address(Side::Source, self.ipv4, Register(0)),
            load_address(Side::Destination, self.ipv4, Register(address_registers(self.ipv4))),
            Expression::InSet {
                set: SELF.to_owned(),
                key: Register(0),
                inverted: false,
            },
            verdict(Verdict::Accept),
        ];
        vec![
            between_pods,
            known_connection(),
            to_itself,
            self.dispatch(Direction::Ingress),
            self.dispatch(Direction::Egress),
        ]
    }

    /// Addresses by which no pod is looked up, so that nothing here judges who uses them: those of many, and those that IPv6
    /// gives every link.
    fn not_judged(&self) -> Vec<(Side, Cidr)> {
        if self.ipv4 {
            let many = Cidr::containing(IpAddr::from([224, 0, 0, 0]), 3);
            return vec![(Side::Destination, many)];
        }
        let many = Cidr::containing(IpAddr::from([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8);
        let of_links = Cidr::containing(IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10);
        vec![
            (Side::Destination, many),
            (Side::Destination, of_links),
            (Side::Source, of_links),
        ]
    }

    /// Without finding the gateway's hardware address a pod could send nothing at all by IPv6.
    fn input(&self) -> Vec<Vec<Expression>> {
        let mut rules = vec![known_connection()];
        if !self.ipv4 {
            rules.extend([NEIGHBOUR_SOLICITATION, NEIGHBOUR_ADVERTISEMENT].map(neighbour_discovery));
        }
        rules.push(self.dispatch(Direction::Egress));
        rules
    }

    /// Sends packets of isolated pods to the chain that judges them.
    fn dispatch(&self, direction: Direction) -> Vec<Expression> {
        let names = Names::of_direction(direction);
        let mut rule = self.load_class(direction);
        rule.push(verdict(Verdict::Jump(names.chain.to_owned())));
        rule
    }

    fn judge(&self, direction: Direction) -> Vec<Vec<Expression>> {
        let names = Names::of_direction(direction);
        let (_, other) = sides(direction);
        let grant_from = |map: &str| {
            vec![
                load_number(),
                load_address(other, self.ipv4, Register(1)),
                number_from(map),
                keep_number(),
            ]
        };
        let granted = || {
            let mut rule = vec![load_number()];
            rule.extend(load_protocol_and_port(Register(1)));
            rule.push(Expression::InSet {
                set: PORTS.to_owned(),
                key: NUMBER,
                inverted: false,
            });
            rule.push(Expression::Immediate {
                value: vec![0; 4],
                into: NUMBER,
            });
            rule.extend([keep_number(), verdict(Verdict::Return)]);
            rule
        };
        vec![
            grant_from(names.peers),
            granted(),
            self.load_class(direction),
            grant_from(names.blocks),
            granted(),
            vec![verdict(Verdict::Drop)],
        ]
    }

    /// Gives the packet the number of the class of the pod that the direction is about, if it is isolated.
    fn load_class(&self, direction: Direction) -> Vec<Expression> {
        let (own, _) = sides(direction);
        vec![
            load_address(own, self.ipv4, NUMBER),
            number_from(Names::of_direction(direction).pods),
            keep_number(),
        ]
    }
}

/// Where the number of a class or a grant is while a rule looks it up.
const NUMBER: Register = Register(0);

fn load_number() -> Expression {
    Expression::Meta {
        key: MetaKey::Priority,
        into: NUMBER,
    }
}

fn keep_number() -> Expression {
    Expression::SetMeta {
        key: MetaKey::Priority,
        from: NUMBER,
    }
}

/// Looks up what begins at the number's register, if the map has it.
fn number_from(map: &str) -> Expression {
    Expression::FromMap {
        map: map.to_owned(),
        key: NUMBER,
        into: NUMBER,
    }
}

/// The rules for frames. A pod that sends a frame straight to another's hardware address, or to everybody's, would get
/// around all that is judged where packets are routed. Pods have no reason to: their only way out is the gateway. What
/// the kernel itself sends from port to port, for a Service where `bridge-nf-call-iptables` is set, has been judged.
pub fn of_frames() -> Ruleset {
    let mut rules = Ruleset::default();
    for direction in Direction::BOTH {
        rules.add_set(set(Names::of_direction(direction).ports, &[Type::InterfaceName], None));
    }
    let is_arp = vec![
        Expression::Payload {
            base: PayloadBase::Link,
            offset: 12,
            length: 2,
            into: Register(0),
        },
        equal(Register(0), (libc::ETH_P_ARP as u16).to_be_bytes().to_vec()),
        verdict(Verdict::Accept),
    ];
    let isolated = |direction, key| {
        vec![
            Expression::Meta { key, into: Register(0) },
            Expression::InSet {
                set: Names::of_direction(direction).ports.to_owned(),
                key: Register(0),
                inverted: false,
            },
            verdict(Verdict::Drop),
        ]
    };
    let forward = vec![
        is_arp,
        [marked(JUDGED_BIT), vec![verdict(Verdict::Accept)]].concat(),
        isolated(Direction::Ingress, MetaKey::OutputName),
        isolated(Direction::Egress, MetaKey::InputName),
    ];
    // The kernel goes on after its own part with what comes later than this.
    let base = Base {
        kind: ChainKind::Filter,
        hook: Hook::Forward,
        priority: priority::FILTER + 1,
    };
    rules.add_chain("forward", Some(base), forward);
    rules
}

/// The address of the pod that a direction is about, and that of the other end.
fn sides(direction: Direction) -> (Side, Side) {
    match direction {
        Direction::Ingress => (Side::Destination, Side::Source),
        Direction::Egress => (Side::Source, Side::Destination),
    }
}

/// Packets of connections that were let through when they began, and errors about them.
fn known_connection() -> Vec<Expression> {
    const ESTABLISHED: u32 = 1 << 1;
    const RELATED: u32 = 1 << 2;
    let register = Register(0);
    vec![
        Expression::Conntrack {
            key: ConntrackKey::State,
            into: register,
        },
        Expression::Bitwise {
            register,
            mask: (ESTABLISHED | RELATED).to_ne_bytes().to_vec(),
            xor: vec![0; 4],
        },
        Expression::Compare {
            register,
            comparison: Comparison::NotEqual,
            value: vec![0; 4],
        },
        verdict(Verdict::Accept),
    ]
}

const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

fn neighbour_discovery(kind: u8) -> Vec<Expression> {
    let is_kind = vec![
        Expression::Payload {
            base: PayloadBase::Transport,
            offset: 0,
            length: 1,
            into: Register(0),
        },
        equal(Register(0), vec![kind]),
        verdict(Verdict::Accept),
    ];
    [transport_protocol(libc::IPPROTO_ICMPV6 as u8), is_kind].concat()
}

fn filter(hook: Hook) -> Option<Base> {
    Some(Base {
        kind: ChainKind::Filter,
        hook,
        priority: priority::FILTER,
    })
}

pub fn set(name: &str, key: &[Type], value: Option<ValueType>) -> Set {
    Set {
        name: name.to_owned(),
        key: key.to_vec(),
        value,
        interval: false,
        dynamic: false,
        size: None,
    }
}

fn verdict(verdict: Verdict) -> Expression {
    Expression::Verdict(verdict)
}

/// The tables of that name.
pub fn tables(name: &str) -> [Table; 3] {
    [Family::Ip, Family::Ip6, Family::Bridge].map(|family| Table::new(family, name))
}
