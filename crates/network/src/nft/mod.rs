//! Packet rules, by the kernel's nf_tables over netlink: no library, no `nft` program.
//!
//! A [`Batch`] collects changes and commits them as one transaction: all or none take effect, between two packets.
//! [`Socket`] carries it and reads back what is there. Names follow `nft`'s own language, which also lists all that
//! is made here readably (`nft list ruleset`).
//!
//! [`ruleset`] holds a table's content as a value and makes the batch that leads from one to another.
//!
//! Rules are lists of [`Expression`]s that load registers, compare them and act; a register is four bytes, and wider
//! values and concatenations take several in a row, each part padded to whole registers.

use std::net::IpAddr;

pub use batch::{Batch, Error, Failure};
pub use expression::{Base as PayloadBase, Comparison, ConntrackKey, Expression, FibAddress, MetaKey, Nat, Register};
pub use monitor::Monitor;
pub use read::Socket;

pub mod matching;
pub mod ruleset;

mod batch;
mod expression;
mod monitor;
mod read;
mod wire;

/// Which packets a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Family {
    /// IPv4 and IPv6 together.
    Inet = 1,
    Ip = 2,
    /// Frames that bridges carry, of any protocol.
    Bridge = 7,
    Ip6 = 10,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    pub family: Family,
    pub name: String,
}

/// Where a base chain is called from: packets enter the rules here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    pub kind: ChainKind,
    pub hook: Hook,
    /// Smaller runs earlier.
    pub priority: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainKind {
    Filter,
    /// Sees only the first packet of each connection.
    Nat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Hook {
    Prerouting = 0,
    Input = 1,
    Forward = 2,
    Output = 3,
    Postrouting = 4,
}

/// The priorities that `nft` has names for.
pub mod priority {
    pub const RAW: i32 = -300;
    pub const DSTNAT: i32 = -100;
    /// Asked where to lead a connection only when nobody at [`DSTNAT`] had an answer.
    pub const AFTER_DSTNAT: i32 = -99;
    pub const FILTER: i32 = 0;
    pub const SRCNAT: i32 = 100;
}

/// What a key or value consists of. `nft` uses it to print elements; the kernel only knows lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Ipv4Address,
    Ipv6Address,
    Protocol,
    Port,
    /// A number in the host's byte order.
    Mark,
    HardwareAddress,
    InterfaceName,
}

/// A set, or a map when it has values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    pub name: String,
    pub key: Vec<Type>,
    pub value: Option<ValueType>,
    /// Keys are ranges.
    pub interval: bool,
    /// Rules add elements, which expire.
    pub dynamic: bool,
    /// How many elements it takes; without it as many as there is memory for.
    pub size: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    Verdict,
    Data(Vec<Type>),
}

/// An element of a set or map.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// The parts of the key, each padded to whole registers. See [`Data`].
    pub key: Vec<u8>,
    /// The last key of the range, in a set of intervals.
    pub key_end: Option<Vec<u8>>,
    pub value: Option<Value>,
    /// Shown beside the element by `nft list`; at most 120 bytes are kept.
    pub comment: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    Verdict(Verdict),
    Data(Vec<u8>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
}

/// Builds keys and values: every part is padded to whole registers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Data(Vec<u8>);

impl Data {
    pub fn new() -> Data {
        Data::default()
    }

    pub fn address(mut self, address: IpAddr) -> Data {
        match address {
            IpAddr::V4(address) => self.0.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => self.0.extend_from_slice(&address.octets()),
        }
        self
    }

    pub fn protocol(mut self, number: u8) -> Data {
        self.0.extend_from_slice(&[number, 0, 0, 0]);
        self
    }

    pub fn port(mut self, port: u16) -> Data {
        self.0.extend_from_slice(&port.to_be_bytes());
        self.0.extend_from_slice(&[0, 0]);
        self
    }

    pub fn mark(mut self, mark: u32) -> Data {
        self.0.extend_from_slice(&mark.to_ne_bytes());
        self
    }

    pub fn hardware_address(mut self, address: [u8; 6]) -> Data {
        self.0.extend_from_slice(&address);
        self.0.extend_from_slice(&[0, 0]);
        self
    }

    /// At most 15 bytes of the name count, as with every interface.
    pub fn interface(mut self, name: &str) -> Data {
        let end = self.0.len() + libc::IFNAMSIZ;
        self.0.extend(name.bytes().take(libc::IFNAMSIZ - 1));
        self.0.resize(end, 0);
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

impl Table {
    pub fn new(family: Family, name: impl Into<String>) -> Table {
        Table {
            family,
            name: name.into(),
        }
    }
}

impl Type {
    fn bytes(self) -> u32 {
        match self {
            Type::Ipv4Address | Type::Mark => 4,
            Type::Ipv6Address => 16,
            Type::Protocol => 1,
            Type::Port => 2,
            Type::HardwareAddress => 6,
            Type::InterfaceName => libc::IFNAMSIZ as u32,
        }
    }

    /// The number that `nft` knows the type by.
    fn number(self) -> u32 {
        match self {
            Type::Ipv4Address => 7,
            Type::Ipv6Address => 8,
            Type::Protocol => 12,
            Type::Port => 13,
            Type::Mark => 19,
            Type::HardwareAddress => 9,
            Type::InterfaceName => 41,
        }
    }
}

impl Element {
    pub fn key(key: Data) -> Element {
        Element {
            key: key.bytes(),
            key_end: None,
            value: None,
            comment: None,
        }
    }

    pub fn data(key: Data, value: Data) -> Element {
        Element {
            value: Some(Value::Data(value.bytes())),
            ..Element::key(key)
        }
    }

    pub fn verdict(key: Data, verdict: Verdict) -> Element {
        Element {
            value: Some(Value::Verdict(verdict)),
            ..Element::key(key)
        }
    }

    pub fn comment(self, comment: impl Into<String>) -> Element {
        Element {
            comment: Some(comment.into()),
            ..self
        }
    }
}
