//! IP addresses and networks.

use std::net::IpAddr;

use super::Price::{Step, Walk};
use super::{Row, strings};
use crate::error::failed;
use crate::{EvalError, Value};

pub const TABLE: &[Row] = &[
    Row("ip(string): ip", Walk, |v| {
        parse_ip(strings::text(&v[0])).map(Value::Ip)
    }),
    Row("isIP(string): bool", Walk, |v| {
        Ok(Value::Bool(parse_ip(strings::text(&v[0])).is_ok()))
    }),
    Row("ip.isCanonical(string): bool", Walk, |v| {
        let text = strings::text(&v[0]);
        parse_ip(text).map(|address| Value::Bool(address.to_string() == text))
    }),
    Row("<ip>.family(): int", Step, |v| {
        Ok(Value::Int(if ip(&v[0])?.is_ipv4() { 4 } else { 6 }))
    }),
    Row("<ip>.isUnspecified(): bool", Step, |v| {
        Ok(Value::Bool(ip(&v[0])?.is_unspecified()))
    }),
    Row("<ip>.isLoopback(): bool", Step, |v| {
        Ok(Value::Bool(ip(&v[0])?.is_loopback()))
    }),
    Row("<ip>.isLinkLocalMulticast(): bool", Step, |v| {
        Ok(Value::Bool(match ip(&v[0])? {
            IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }))
    }),
    Row("<ip>.isLinkLocalUnicast(): bool", Step, |v| {
        Ok(Value::Bool(match ip(&v[0])? {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
        }))
    }),
    Row("<ip>.isGlobalUnicast(): bool", Step, |v| {
        Ok(Value::Bool(is_global_unicast(ip(&v[0])?)))
    }),
    Row("cidr(string): cidr", Walk, |v| {
        parse_cidr(strings::text(&v[0])).map(|(address, bits)| Value::Cidr(address, bits))
    }),
    Row("isCIDR(string): bool", Walk, |v| {
        Ok(Value::Bool(parse_cidr(strings::text(&v[0])).is_ok()))
    }),
    Row("<cidr>.containsIP(string): bool", Walk, |v| {
        contains(&v[0], parse_ip(strings::text(&v[1]))?, None)
    }),
    Row("<cidr>.containsIP(ip): bool", Step, |v| {
        contains(&v[0], ip(&v[1])?, None)
    }),
    Row("<cidr>.containsCIDR(string): bool", Walk, |v| {
        let (address, bits) = parse_cidr(strings::text(&v[1]))?;
        contains(&v[0], address, Some(bits))
    }),
    Row("<cidr>.containsCIDR(cidr): bool", Step, |v| {
        let (address, bits) = cidr(&v[1])?;
        contains(&v[0], address, Some(bits))
    }),
    Row("<cidr>.ip(): ip", Step, |v| Ok(Value::Ip(cidr(&v[0])?.0))),
    Row("<cidr>.masked(): cidr", Step, |v| {
        let (address, bits) = cidr(&v[0])?;
        Ok(Value::Cidr(masked(address, bits), bits))
    }),
    Row("<cidr>.prefixLength(): int", Step, |v| {
        Ok(Value::Int(i64::from(cidr(&v[0])?.1)))
    }),
];

fn ip(value: &Value) -> Result<IpAddr, EvalError> {
    match value {
        Value::Ip(address) => Ok(*address),
        _ => Err(failed("no such overload")),
    }
}

fn cidr(value: &Value) -> Result<(IpAddr, u8), EvalError> {
    match value {
        Value::Cidr(address, bits) => Ok((*address, *bits)),
        _ => Err(failed("no such overload")),
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    let bad = |why: &str| {
        failed(format!(
            "IP Address {text:?} parse error during conversion from string: {why}"
        ))
    };
    let address: IpAddr = text.parse().map_err(|_| bad("unable to parse IP"))?;
    match address {
        IpAddr::V6(inner) if inner.to_ipv4_mapped().is_some() => Err(bad("IPv4-mapped IPv6 address is not allowed")),
        address => Ok(address),
    }
}

fn parse_cidr(text: &str) -> Result<(IpAddr, u8), EvalError> {
    let bad = || {
        failed(format!(
            "network address parse error during conversion from string: {text:?}"
        ))
    };
    let (address, bits) = text.split_once('/').ok_or_else(bad)?;
    let address = parse_ip(address)?;
    let bits: u8 = bits.parse().map_err(|_| bad())?;
    match bits <= width(address) {
        true => Ok((address, bits)),
        false => Err(bad()),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let keep = |width: u32| {
        if bits == 0 {
            0
        } else {
            u128::MAX << (width - u32::from(bits))
        }
    };
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) & keep(32) as u32).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & keep(128)).into()),
    }
}

fn contains(network: &Value, address: IpAddr, bits: Option<u8>) -> Result<Value, EvalError> {
    let (base, length) = cidr(network)?;
    let inside = base.is_ipv4() == address.is_ipv4()
        && masked(base, length) == masked(address, length)
        && bits.is_none_or(|bits| bits >= length);
    Ok(Value::Bool(inside))
}

fn is_global_unicast(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast() && !link_local
}
