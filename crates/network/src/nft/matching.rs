//! The comparisons that rules are made of, as short lists of expressions to be joined with `[a, b].concat()`.

use std::net::IpAddr;

use super::{Comparison, Expression, FibAddress, MetaKey, PayloadBase, Register};
use crate::Cidr;
use crate::route::octets;

/// The register that comparisons here use; they leave nothing of use in it.
const SCRATCH: Register = Register(0);

/// Which of a packet's two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Source,
    Destination,
}

/// The packet is of the address's family. Needed in `inet` tables before addresses are looked at.
pub fn family(ipv4: bool) -> Vec<Expression> {
    let number = if ipv4 { libc::NFPROTO_IPV4 } else { libc::NFPROTO_IPV6 };
    vec![
        Expression::Meta {
            key: MetaKey::NetworkProtocol,
            into: SCRATCH,
        },
        equal(SCRATCH, vec![number as u8]),
    ]
}

/// The address on that side is in the block, or is not.
pub fn address_in(side: Side, block: Cidr, comparison: Comparison) -> Vec<Expression> {
    let length = if block.is_ipv4() { 4 } else { 16 };
    vec![
        load_address(side, block.is_ipv4(), SCRATCH),
        Expression::Bitwise {
            register: SCRATCH,
            mask: prefix_mask(block.prefix(), length),
            xor: vec![0; length],
        },
        Expression::Compare {
            register: SCRATCH,
            comparison,
            value: octets(block.address()),
        },
    ]
}

/// The address on that side is one of this machine's own, or is not.
pub fn address_local(side: Side, comparison: Comparison) -> Vec<Expression> {
    let of = match side {
        Side::Source => FibAddress::Source,
        Side::Destination => FibAddress::Destination,
    };
    vec![
        Expression::AddressType { of, into: SCRATCH },
        Expression::Compare {
            register: SCRATCH,
            comparison,
            value: u32::from(libc::RTN_LOCAL).to_ne_bytes().to_vec(),
        },
    ]
}

/// The packet came in, or goes out, by that interface.
pub fn interface(key: MetaKey, name: &str) -> Vec<Expression> {
    let mut value = name.as_bytes().to_vec();
    value.resize(libc::IFNAMSIZ, 0);
    vec![Expression::Meta { key, into: SCRATCH }, equal(SCRATCH, value)]
}

pub fn transport_protocol(number: u8) -> Vec<Expression> {
    vec![
        Expression::Meta {
            key: MetaKey::TransportProtocol,
            into: SCRATCH,
        },
        equal(SCRATCH, vec![number]),
    ]
}

/// Any of the bits is set in the packet's mark.
pub fn marked(bits: u32) -> Vec<Expression> {
    vec![
        Expression::Meta {
            key: MetaKey::Mark,
            into: SCRATCH,
        },
        Expression::Bitwise {
            register: SCRATCH,
            mask: bits.to_ne_bytes().to_vec(),
            xor: vec![0; 4],
        },
        Expression::Compare {
            register: SCRATCH,
            comparison: Comparison::NotEqual,
            value: vec![0; 4],
        },
    ]
}

/// Sets bits in the packet's mark, or clears them.
pub fn set_mark_bits(bits: u32, set: bool) -> Vec<Expression> {
    vec![
        Expression::Meta {
            key: MetaKey::Mark,
            into: SCRATCH,
        },
        Expression::Bitwise {
            register: SCRATCH,
            mask: (!bits).to_ne_bytes().to_vec(),
            xor: if set { bits } else { 0 }.to_ne_bytes().to_vec(),
        },
        Expression::SetMeta {
            key: MetaKey::Mark,
            from: SCRATCH,
        },
    ]
}

/// Loads an address: one register for IPv4, four for IPv6.
pub fn load_address(side: Side, ipv4: bool, into: Register) -> Expression {
    let (source, length) = if ipv4 { (12, 4) } else { (8, 16) };
    Expression::Payload {
        base: PayloadBase::Network,
        offset: if side == Side::Source { source } else { source + length },
        length,
        into,
    }
}

/// Loads the transport protocol and the destination port into two registers.
pub fn load_protocol_and_port(into: Register) -> Vec<Expression> {
    vec![
        Expression::Meta {
            key: MetaKey::TransportProtocol,
            into,
        },
        Expression::Payload {
            base: PayloadBase::Transport,
            offset: 2,
            length: 2,
            into: into.plus(1),
        },
    ]
}

/// How many registers an address takes.
pub fn address_registers(ipv4: bool) -> u8 {
    if ipv4 { 1 } else { 4 }
}

pub fn equal(register: Register, value: Vec<u8>) -> Expression {
    Expression::Compare {
        register,
        comparison: Comparison::Equal,
        value,
    }
}

/// The first and the last address of a block.
pub fn bounds(block: Cidr) -> (IpAddr, IpAddr) {
    // The addresses of the whole of IPv6 are one more than a number can say.
    let last = match block.prefix() {
        0 if !block.is_ipv4() => Some(IpAddr::from([0xff; 16])),
        _ => block.nth(block.size() - 1),
    };
    (block.address(), last.unwrap_or(block.address()))
}

fn prefix_mask(prefix: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|byte| {
            let bits = usize::from(prefix).saturating_sub(byte * 8).min(8);
            !(0xff_u8.checked_shr(bits as u32).unwrap_or(0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_follow_prefixes() {
        assert_eq!(prefix_mask(0, 4), [0, 0, 0, 0]);
        assert_eq!(prefix_mask(8, 4), [255, 0, 0, 0]);
        assert_eq!(prefix_mask(20, 4), [255, 255, 240, 0]);
        assert_eq!(prefix_mask(32, 4), [255; 4]);
    }
}
