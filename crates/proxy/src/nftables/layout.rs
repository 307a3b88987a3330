//! The part of the rules that does not depend on single Services.
//!
//! A new connection passes `services` once, before it is routed. There its destination is looked up in one plain set
//! after the other, one set for each thing that can be done: to pick one of so many endpoints, to reject, to drop.
//! Services with the same number of endpoints share a set and the chain that picks; the endpoints of all of them are
//! in one map, by destination and number:
//!
//! ```text
//! chain cluster {
//!     ip daddr . meta l4proto . th dport @cluster-pick-2 goto cluster-pick-2
//!     ip daddr . meta l4proto . th dport @cluster-pick-3 goto cluster-pick-3
//! }
//! chain cluster-pick-3 {
//!     dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @cluster-endpoints
//! }
//! ```
//!
//! So an endpoint that comes or goes changes a few elements and no rule. That is a matter of microseconds at any
//! number of Services, whereas a changed rule or verdict makes the kernel walk all that can be reached from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use network::nft::matching::{
    Side, address_in, address_local, address_registers, load_address, load_protocol_and_port, marked, set_mark_bits,
    transport_protocol,
};
use network::nft::ruleset::Ruleset;
use network::nft::{
    Base, ChainKind, Comparison, ConntrackKey, Expression, Family, Hook, Nat, Register, Set, Table, Type, ValueType,
    Verdict, priority,
};

use network::{Cidr, Protocol};

use crate::model::Masquerade;

/// What the rules of one address family are built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub ipv4: bool,
    pub table: Table,
    pub cluster_cidrs: Vec<Cidr>,
    pub service_cidrs: Vec<Cidr>,
    /// The bit of a packet's mark that says it is to be masqueraded.
    pub masquerade_bit: u32,
    /// Ports of this machine that stay its own.
    pub reserved_ports: BTreeSet<(Protocol, u16)>,
}

/// Which destinations a lookup is about. Those for outsiders are looked at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    Cluster,
    Node,
    ClusterOutside,
    NodeOutside,
}

/// What is done with connections to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    Pick {
        count: u32,
        masquerade: Masquerade,
    },
    /// The Service has a chain of its own.
    Sticky,
    Reject,
    Drop,
}

/// Destinations for which the same is done. Each group has a set of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group {
    pub view: View,
    pub action: Action,
}

/// Pod address . the same address.
pub const HAIRPIN: &str = "hairpin";
/// Destinations with restricted clients, and destination . client for those let in.
pub const RESTRICTED: &str = "restricted";
pub const ALLOWED: &str = "allowed";
/// Destinations that are as they are, and ports of this machine that are: no Service's to have.
pub const PROTECTED: &str = "protected";
pub const OWN_PORTS: &str = "own-ports";

impl View {
    pub const ALL: [View; 4] = [View::Cluster, View::Node, View::ClusterOutside, View::NodeOutside];

    pub fn name(self) -> &'static str {
        match self {
            View::Cluster => "cluster",
            View::Node => "node",
            View::ClusterOutside => "cluster-outside",
            View::NodeOutside => "node-outside",
        }
    }

    pub fn endpoints(self) -> &'static str {
        match self {
            View::Cluster => "cluster-endpoints",
            View::Node => "node-endpoints",
            View::ClusterOutside => "cluster-outside-endpoints",
            View::NodeOutside => "node-outside-endpoints",
        }
    }

    /// Whether an address is part of the destination, or only a port.
    pub fn has_address(self) -> bool {
        matches!(self, View::Cluster | View::ClusterOutside)
    }
}

impl Group {
    pub fn name(&self) -> String {
        let view = self.view.name();
        match self.action {
            Action::Pick { count, masquerade } => {
                let suffix = match masquerade {
                    Masquerade::Nobody => "",
                    Masquerade::Outsiders => "-outsiders",
                    Masquerade::Everybody => "-masquerade",
                };
                format!("{view}-pick-{count}{suffix}")
            }
            Action::Sticky => format!("{view}-sticky"),
            Action::Reject => format!("{view}-reject"),
            Action::Drop => format!("{view}-drop"),
        }
    }
}

impl Layout {
    pub fn address(&self) -> Type {
        if self.ipv4 {
            Type::Ipv4Address
        } else {
            Type::Ipv6Address
        }
    }

    pub fn family(&self) -> Family {
        if self.ipv4 { Family::Ip } else { Family::Ip6 }
    }

    /// Everything that is there whatever Services there are.
    pub fn fixed(&self) -> Ruleset {
        let mut rules = Ruleset::default();
        let address = self.address();
        let pair = [address, address];
        rules.add_set(set(HAIRPIN, &pair, None));
        let destination = self.destination(View::Cluster);
        rules.add_set(set(RESTRICTED, &destination, None));
        rules.add_set(set(PROTECTED, &destination, None));
        rules.add_set(set(OWN_PORTS, &self.destination(View::Node), None));
        rules.add_set(Set {
            interval: true,
            ..set(ALLOWED, &[&destination[..], &[address]].concat(), None)
        });
        for view in View::ALL {
            let key = [&self.destination(view)[..], &[Type::Mark]].concat();
            let endpoint = ValueType::Data(vec![address, Type::Port]);
            rules.add_set(set(view.endpoints(), &key, Some(endpoint)));
        }
        let jump = vec![vec![verdict(Verdict::Jump("services".to_owned()))]];
        rules.add_chain(
            "nat-prerouting",
            base(ChainKind::Nat, Hook::Prerouting, priority::DSTNAT),
            jump.clone(),
        );
        rules.add_chain("nat-output", base(ChainKind::Nat, Hook::Output, priority::DSTNAT), jump);
        let postrouting = base(ChainKind::Nat, Hook::Postrouting, priority::SRCNAT);
        rules.add_chain("nat-postrouting", postrouting, self.masquerading());
        let forward = base(ChainKind::Filter, Hook::Forward, priority::FILTER);
        rules.add_chain("filter-forward", forward, vec![invalid_dropped()]);
        let reset = [transport_protocol(libc::IPPROTO_TCP as u8), vec![Expression::Reset]].concat();
        rules.add_chain("refuse", None, vec![reset, vec![Expression::Reject(self.family())]]);
        rules.add_chain("mark-everybody", None, vec![set_mark_bits(self.masquerade_bit, true)]);
        rules.add_chain("mark-outsiders", None, self.mark_outsiders());
        rules
    }

    /// Everything that depends on which groups have members, but not on who they are.
    pub fn of_groups<T>(&self, groups: &BTreeMap<Group, T>) -> Ruleset {
        let mut rules = Ruleset::default();
        for group in groups.keys() {
            let value = (group.action == Action::Sticky).then_some(ValueType::Verdict);
            rules.add_set(set(&group.name(), &self.destination(group.view), value));
            if let Action::Pick { count, masquerade } = group.action {
                rules.add_chain(group.name(), None, self.pick(group.view, count, masquerade));
            }
        }
        for view in View::ALL {
            let members = groups.keys().filter(|group| group.view == view);
            rules.add_chain(view.name(), None, members.map(|group| self.dispatch(group)).collect());
        }
        let any = |view: View| groups.keys().any(|group| group.view == view);
        rules.add_chain("from-outside", None, self.outsiders());
        let outside = any(View::ClusterOutside) || any(View::NodeOutside);
        rules.add_chain("services", None, self.services(outside));
        rules
    }

    /// The rule that marks a connection as the group's masquerading asks for; none if nobody's is masqueraded.
    pub fn mark(&self, masquerade: Masquerade) -> Option<Vec<Expression>> {
        let chain = match masquerade {
            Masquerade::Nobody => return None,
            Masquerade::Outsiders => "mark-outsiders",
            Masquerade::Everybody => "mark-everybody",
        };
        Some(vec![verdict(Verdict::Jump(chain.to_owned()))])
    }

    /// Rewrites the destination to the endpoint that starts at the register.
    pub fn to_endpoint(&self, endpoint: Register) -> Expression {
        Expression::Destination(Nat {
            family: self.family(),
            address: endpoint,
            port: endpoint.plus(address_registers(self.ipv4)),
        })
    }

    fn destination(&self, view: View) -> Vec<Type> {
        let port = [Type::Protocol, Type::Port];
        if view.has_address() {
            [&[self.address()][..], &port].concat()
        } else {
            port.to_vec()
        }
    }

    /// Loads a packet's destination from register 0 on, and gives the register after it.
    fn load_destination(&self, view: View) -> (Vec<Expression>, Register) {
        let start = Register(0);
        if !view.has_address() {
            return (load_protocol_and_port(start), start.plus(2));
        }
        let port = start.plus(address_registers(self.ipv4));
        let address = vec![load_address(Side::Destination, self.ipv4, start)];
        ([address, load_protocol_and_port(port)].concat(), port.plus(2))
    }

    fn dispatch(&self, group: &Group) -> Vec<Expression> {
        let (mut rule, _) = self.load_destination(group.view);
        let key = Register(0);
        let set = group.name();
        if group.action == Action::Sticky {
            rule.push(Expression::VerdictMap { map: set, key });
            return rule;
        }
        let then = match group.action {
            Action::Reject => Verdict::Goto("refuse".to_owned()),
            Action::Drop => Verdict::Drop,
            Action::Pick { .. } | Action::Sticky => Verdict::Goto(set.clone()),
        };
        let inverted = false;
        rule.extend([Expression::InSet { set, key, inverted }, verdict(then)]);
        rule
    }

    fn pick(&self, view: View, count: u32, masquerade: Masquerade) -> Vec<Vec<Expression>> {
        let (mut rule, number) = self.load_destination(view);
        let start = Register(0);
        rule.extend([
            Expression::Random {
                modulus: count,
                into: number,
            },
            Expression::FromMap {
                map: view.endpoints().to_owned(),
                key: start,
                into: start,
            },
            self.to_endpoint(start),
        ]);
        self.mark(masquerade).into_iter().chain([rule]).collect()
    }

    /// All a new connection passes before it is routed.
    fn services(&self, outside: bool) -> Vec<Vec<Expression>> {
        let jump = |chain: &str| verdict(Verdict::Jump(chain.to_owned()));
        let loopback = if self.ipv4 {
            Cidr::containing(IpAddr::from([127, 0, 0, 0]), 8)
        } else {
            Cidr::containing(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), u8::MAX)
        };
        let to_node = [
            address_in(Side::Destination, loopback, Comparison::NotEqual),
            address_local(Side::Destination, Comparison::Equal),
        ]
        .concat();
        let mut rules = vec![self.protected(View::Cluster, PROTECTED)];
        if !self.reserved_ports.is_empty() {
            let here = address_local(Side::Destination, Comparison::Equal);
            rules.push([here, self.protected(View::Node, OWN_PORTS)].concat());
        }
        rules.push(self.restricted());
        if outside {
            rules.push(vec![jump("from-outside")]);
        }
        rules.push(vec![jump(View::Cluster.name())]);
        rules.push([to_node, vec![jump(View::Node.name())]].concat());
        for &block in &self.service_cidrs {
            let unknown = address_in(Side::Destination, block, Comparison::Equal);
            rules.push([unknown, vec![verdict(Verdict::Goto("refuse".to_owned()))]].concat());
        }
        rules
    }

    /// Ends the way through Services' rules for destinations in the set.
    fn protected(&self, view: View, set: &str) -> Vec<Expression> {
        let (mut rule, _) = self.load_destination(view);
        rule.push(Expression::InSet {
            set: set.to_owned(),
            key: Register(0),
            inverted: false,
        });
        rule.push(verdict(Verdict::Return));
        rule
    }

    fn restricted(&self) -> Vec<Expression> {
        let (mut rule, client) = self.load_destination(View::Cluster);
        let lookup = |set: &str, inverted| Expression::InSet {
            set: set.to_owned(),
            key: Register(0),
            inverted,
        };
        rule.extend([
            lookup(RESTRICTED, false),
            load_address(Side::Source, self.ipv4, client),
            lookup(ALLOWED, true),
            verdict(Verdict::Drop),
        ]);
        rule
    }

    fn outsiders(&self) -> Vec<Vec<Expression>> {
        let jump = |view: View| verdict(Verdict::Jump(view.name().to_owned()));
        let this_node = address_local(Side::Source, Comparison::Equal);
        let to_node = address_local(Side::Destination, Comparison::Equal);
        let mut rules = self.pods_return();
        rules.push([this_node, vec![verdict(Verdict::Return)]].concat());
        rules.push(vec![jump(View::ClusterOutside)]);
        rules.push([to_node, vec![jump(View::NodeOutside)]].concat());
        rules
    }

    /// Without knowing where pods live nobody can be told to be an outsider.
    fn mark_outsiders(&self) -> Vec<Vec<Expression>> {
        let mut rules = self.pods_return();
        if !rules.is_empty() {
            rules.push(set_mark_bits(self.masquerade_bit, true));
        }
        rules
    }

    fn pods_return(&self) -> Vec<Vec<Expression>> {
        let pods = self.cluster_cidrs.iter().map(|&block| {
            let from = address_in(Side::Source, block, Comparison::Equal);
            [from, vec![verdict(Verdict::Return)]].concat()
        });
        pods.collect()
    }

    /// What was marked on its way in, and pods that were led to themselves, who would otherwise answer themselves
    /// directly instead of by the way the question took.
    fn masquerading(&self) -> Vec<Vec<Expression>> {
        let start = Register(0);
        let width = address_registers(self.ipv4);
        let bit = self.masquerade_bit;
        let hairpin = vec![
            load_address(Side::Source, self.ipv4, start),
            load_address(Side::Destination, self.ipv4, start.plus(width)),
            Expression::InSet {
                set: HAIRPIN.to_owned(),
                key: start,
                inverted: false,
            },
            Expression::Masquerade,
        ];
        let marked = [marked(bit), set_mark_bits(bit, false), vec![Expression::Masquerade]].concat();
        vec![marked, hairpin]
    }
}

/// Packets that conntrack cannot place would pass untranslated, and an endpoint would answer them with a reset that
/// ends a healthy connection.
fn invalid_dropped() -> Vec<Expression> {
    const INVALID: u32 = 1;
    let register = Register(0);
    vec![
        Expression::Conntrack {
            key: ConntrackKey::State,
            into: register,
        },
        Expression::Bitwise {
            register,
            mask: INVALID.to_ne_bytes().to_vec(),
            xor: vec![0; 4],
        },
        Expression::Compare {
            register,
            comparison: Comparison::NotEqual,
            value: vec![0; 4],
        },
        verdict(Verdict::Drop),
    ]
}

pub fn verdict(verdict: Verdict) -> Expression {
    Expression::Verdict(verdict)
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

fn base(kind: ChainKind, hook: Hook, priority: i32) -> Option<Base> {
    Some(Base { kind, hook, priority })
}
