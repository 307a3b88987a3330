//! Address blocks, such as a node's pod CIDR.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A block of addresses. The address is always the block's first: host bits are refused when parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is not an address block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address block: {reason}")]
pub struct CidrError {
    text: String,
    reason: &'static str,
}

impl Cidr {
    /// The block of `prefix` leading bits that `address` lies in.
    pub fn containing(address: IpAddr, prefix: u8) -> Cidr {
        let prefix = prefix.min(width(&address));
        let shift = u32::from(width(&address) - prefix);
        let bits = to_bits(&address);
        let first = bits.checked_shr(shift).unwrap_or(0).checked_shl(shift).unwrap_or(0);
        Cidr {
            address: from_bits(first, &address),
            prefix,
        }
    }

    /// The first address, which names the network itself.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.is_ipv4() == address.is_ipv4() && Cidr::containing(address, self.prefix).address == self.address
    }

    /// Whether all addresses of another block are in this one.
    pub fn contains_block(&self, other: &Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Whether any address is in both.
    pub fn overlaps(&self, other: &Cidr) -> bool {
        self.contains_block(other) || other.contains_block(self)
    }

    /// How many addresses the block has, saturating for the IPv6 block of everything.
    pub fn size(&self) -> u128 {
        1u128
            .checked_shl(u32::from(width(&self.address) - self.prefix))
            .unwrap_or(u128::MAX)
    }

    /// The address `index` places after the first, if it is still inside the block.
    pub fn nth(&self, index: u128) -> Option<IpAddr> {
        (index < self.size()).then(|| from_bits(to_bits(&self.address) + index, &self.address))
    }

    /// How many places after the first `address` stands.
    pub fn index_of(&self, address: IpAddr) -> Option<u128> {
        self.contains(address)
            .then(|| to_bits(&address) - to_bits(&self.address))
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let error = |reason| CidrError {
            text: text.to_owned(),
            reason,
        };
        let (address, prefix) = text.split_once('/').ok_or_else(|| error("it has no prefix length"))?;
        let address: IpAddr = address.parse().map_err(|_| error("its address does not parse"))?;
        let prefix: u8 = prefix.parse().map_err(|_| error("its prefix length does not parse"))?;
        if prefix > width(&address) {
            return Err(error("its prefix is longer than the address"));
        }
        let block = Cidr::containing(address, prefix);
        if block.address != address {
            return Err(error("bits are set after its prefix"));
        }
        Ok(block)
    }
}

impl From<Cidr> for String {
    fn from(block: Cidr) -> String {
        block.to_string()
    }
}

impl TryFrom<String> for Cidr {
    type Error = CidrError;

    fn try_from(text: String) -> Result<Cidr, CidrError> {
        text.parse()
    }
}

fn width(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn to_bits(address: &IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn from_bits(bits: u128, like: &IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_and_index_their_addresses() {
        let block: Cidr = "10.244.3.0/24".parse().unwrap();
        assert_eq!(block.size(), 256);
        assert_eq!(block.nth(5), Some("10.244.3.5".parse().unwrap()));
        assert_eq!(block.nth(256), None);
        assert_eq!(block.index_of("10.244.3.9".parse().unwrap()), Some(9));
        assert_eq!(block.index_of("10.244.4.9".parse().unwrap()), None);
        let everything: Cidr = "0.0.0.0/0".parse().unwrap();
        assert!(everything.contains("1.2.3.4".parse().unwrap()));
        assert!(everything.contains_block(&block) && !block.contains_block(&everything));
        assert!(block.overlaps(&everything) && everything.overlaps(&block));
        assert!(!block.overlaps(&"10.244.4.0/24".parse().unwrap()));
        assert!(!block.overlaps(&"::/0".parse().unwrap()));
        let six: Cidr = "fd00::/120".parse().unwrap();
        assert_eq!(six.nth(1), Some("fd00::1".parse().unwrap()));
        assert!(!six.contains("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn a_text_that_is_no_block_says_why() {
        let reason = |text: &str| text.parse::<Cidr>().unwrap_err().to_string();
        assert_eq!(
            reason("10.0.0.1"),
            "\"10.0.0.1\" is not an address block: it has no prefix length"
        );
        assert_eq!(
            reason("10.0.0.1/24"),
            "\"10.0.0.1/24\" is not an address block: bits are set after its prefix"
        );
    }
}
