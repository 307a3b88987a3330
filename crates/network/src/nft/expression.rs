//! The steps a rule consists of.

use super::{Family, Verdict, wire};
use crate::netlink::Writer;

/// One of sixteen registers of four bytes. A rule's registers are gone when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(pub u8);

/// A step of a rule. A step that does not match ends its rule, and the next rule of the chain is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads something the kernel knows about the packet.
    Meta {
        key: MetaKey,
        into: Register,
    },
    /// Sets something of the packet that can be set: its mark or its priority.
    SetMeta {
        key: MetaKey,
        from: Register,
    },
    /// Loads bytes of a header.
    Payload {
        base: Base,
        offset: u32,
        length: u32,
        into: Register,
    },
    /// Goes on only if the register compares so with the value.
    Compare {
        register: Register,
        comparison: Comparison,
        value: Vec<u8>,
    },
    /// `register = register & mask ^ xor`, on as many bytes as the two have.
    Bitwise {
        register: Register,
        mask: Vec<u8>,
        xor: Vec<u8>,
    },
    /// Loads something about the packet's connection.
    Conntrack {
        key: ConntrackKey,
        into: Register,
    },
    /// Loads what the routing table says about an address of the packet: its type, `RTN_…`.
    AddressType {
        of: FibAddress,
        into: Register,
    },
    /// Goes on only if the key is in the set, or with `inverted` only if it is not.
    InSet {
        set: String,
        key: Register,
        inverted: bool,
    },
    /// Loads the value for the key from a map and goes on, if there is one.
    FromMap {
        map: String,
        key: Register,
        into: Register,
    },
    /// Does what a map of verdicts says for the key, if it says anything.
    VerdictMap {
        map: String,
        key: Register,
    },
    /// Adds an element to a dynamic set, or lets the one that is there live on.
    Remember {
        set: String,
        key: Register,
        timeout_ms: u64,
    },
    /// Loads a constant.
    Immediate {
        value: Vec<u8>,
        into: Register,
    },
    /// Loads a random number below `modulus`, in the host's byte order.
    Random {
        modulus: u32,
        into: Register,
    },
    Verdict(Verdict),
    /// Rewrites the destination to the address and port in the registers.
    Destination(Nat),
    /// Rewrites the source to the address of the interface the packet leaves by.
    Masquerade,
    /// Drops the packet and tells its sender by ICMP that nobody listens on the port. The family is the table's.
    Reject(Family),
    /// Drops a TCP packet and resets the connection. A sender on the same machine heeds it at once, whereas it
    /// misses an ICMP answer that comes while it is still sending.
    Reset,
    Counter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nat {
    /// Of the address: `Family::Ip` or `Family::Ip6`.
    pub family: Family,
    pub address: Register,
    pub port: Register,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MetaKey {
    Mark = libc::NFT_META_MARK as u32,
    /// What queues sort packets by, in the host's byte order.
    Priority = libc::NFT_META_PRIORITY as u32,
    InputName = libc::NFT_META_IIFNAME as u32,
    OutputName = libc::NFT_META_OIFNAME as u32,
    NetworkProtocol = libc::NFT_META_NFPROTO as u32,
    TransportProtocol = libc::NFT_META_L4PROTO as u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Base {
    /// The Ethernet header.
    Link = 0,
    Network = 1,
    Transport = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Comparison {
    Equal = 0,
    NotEqual = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ConntrackKey {
    State = libc::NFT_CT_STATE as u32,
    Status = libc::NFT_CT_STATUS as u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FibAddress {
    Source = 1,
    Destination = 2,
}

impl Register {
    /// The register `count` places further on.
    pub fn plus(self, count: u8) -> Register {
        Register(self.0 + count)
    }

    fn number(self) -> u32 {
        libc::NFT_REG32_00 as u32 + u32::from(self.0)
    }
}

impl Expression {
    pub(super) fn write(&self, w: &mut Writer) {
        w.nest(wire::LIST_ELEMENT, |w| {
            w.text(wire::EXPRESSION_NAME, self.name())
                .nest(wire::EXPRESSION_DATA, |w| self.write_data(w));
        });
    }

    fn name(&self) -> &'static str {
        match self {
            Expression::Meta { .. } | Expression::SetMeta { .. } => "meta",
            Expression::Payload { .. } => "payload",
            Expression::Compare { .. } => "cmp",
            Expression::Bitwise { .. } => "bitwise",
            Expression::Conntrack { .. } => "ct",
            Expression::AddressType { .. } => "fib",
            Expression::InSet { .. } | Expression::FromMap { .. } | Expression::VerdictMap { .. } => "lookup",
            Expression::Remember { .. } => "dynset",
            Expression::Immediate { .. } | Expression::Verdict(_) => "immediate",
            Expression::Random { .. } => "numgen",
            Expression::Destination(_) => "nat",
            Expression::Masquerade => "masq",
            Expression::Reject(_) | Expression::Reset => "reject",
            Expression::Counter => "counter",
        }
    }

    /// Attribute numbers are those of each expression's own list in `nf_tables.h`.
    fn write_data(&self, w: &mut Writer) {
        match self {
            Expression::Meta { key, into } => w.be32(1, into.number()).be32(2, *key as u32),
            Expression::SetMeta { key, from } => w.be32(2, *key as u32).be32(3, from.number()),
            Expression::Payload {
                base,
                offset,
                length,
                into,
            } => w
                .be32(1, into.number())
                .be32(2, *base as u32)
                .be32(3, *offset)
                .be32(4, *length),
            Expression::Compare {
                register,
                comparison,
                value,
            } => {
                w.be32(1, register.number()).be32(2, *comparison as u32);
                write_value(w, 3, value)
            }
            Expression::Bitwise { register, mask, xor } => {
                w.be32(1, register.number())
                    .be32(2, register.number())
                    .be32(3, mask.len() as u32);
                write_value(w, 4, mask);
                write_value(w, 5, xor)
            }
            Expression::Conntrack { key, into } => w.be32(1, into.number()).be32(2, *key as u32),
            Expression::AddressType { of, into } => w
                .be32(1, into.number())
                .be32(2, FIB_RESULT_ADDRESS_TYPE)
                .be32(3, *of as u32),
            Expression::InSet { set, key, inverted } => {
                w.text(1, set).be32(2, key.number()).be32(5, u32::from(*inverted))
            }
            Expression::FromMap { map, key, into } => w.text(1, map).be32(2, key.number()).be32(3, into.number()),
            Expression::VerdictMap { map, key } => w.text(1, map).be32(2, key.number()).be32(3, VERDICT_REGISTER),
            Expression::Remember { set, key, timeout_ms } => w
                .text(1, set)
                .be32(3, DYNSET_UPDATE)
                .be32(4, key.number())
                .be64(6, *timeout_ms),
            Expression::Immediate { value, into } => {
                w.be32(1, into.number());
                write_value(w, 2, value)
            }
            Expression::Random { modulus, into } => w
                .be32(1, into.number())
                .be32(2, *modulus)
                .be32(3, NUMGEN_RANDOM)
                .be32(4, 0),
            Expression::Verdict(verdict) => w.be32(1, VERDICT_REGISTER).nest(2, |w| write_verdict(w, verdict)),
            Expression::Destination(nat) => w
                .be32(1, NAT_DESTINATION)
                .be32(2, nat.family as u32)
                .be32(3, nat.address.number())
                .be32(5, nat.port.number()),
            Expression::Reject(family) => {
                let (kind, code) = match family {
                    Family::Inet | Family::Bridge => (REJECT_UNREACHABLE_ANY, 1),
                    Family::Ip => (REJECT_UNREACHABLE, 3),
                    Family::Ip6 => (REJECT_UNREACHABLE, 4),
                };
                w.be32(1, kind).attribute(2, &[code])
            }
            Expression::Reset => w.be32(1, REJECT_RESET).attribute(2, &[0]),
            Expression::Masquerade => w.be32(1, RANDOM_PORTS),
            Expression::Counter => w,
        };
    }
}

const VERDICT_REGISTER: u32 = 0;
const FIB_RESULT_ADDRESS_TYPE: u32 = 3;
const DYNSET_UPDATE: u32 = 1;
const NUMGEN_RANDOM: u32 = 1;
const NAT_DESTINATION: u32 = 1;
const REJECT_UNREACHABLE: u32 = 0;
const REJECT_RESET: u32 = 1;
const REJECT_UNREACHABLE_ANY: u32 = 2;
/// Without it two connections masqueraded at the same moment may be given the same port, and one is lost.
const RANDOM_PORTS: u32 = 1 << 4;

fn write_value<'w>(w: &'w mut Writer, kind: u16, value: &[u8]) -> &'w mut Writer {
    w.nest(kind, |w| {
        w.attribute(wire::DATA_VALUE, value);
    })
}

pub(super) fn write_verdict(w: &mut Writer, verdict: &Verdict) {
    let (code, chain) = match verdict {
        Verdict::Accept => (libc::NF_ACCEPT, None),
        Verdict::Drop => (libc::NF_DROP, None),
        Verdict::Return => (libc::NFT_RETURN, None),
        Verdict::Jump(chain) => (libc::NFT_JUMP, Some(chain)),
        Verdict::Goto(chain) => (libc::NFT_GOTO, Some(chain)),
    };
    w.nest(wire::DATA_VERDICT, |w| {
        w.be32(wire::VERDICT_CODE, code as u32);
        if let Some(chain) = chain {
            w.text(wire::VERDICT_CHAIN, chain);
        }
    });
}
