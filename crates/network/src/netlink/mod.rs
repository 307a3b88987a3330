//! Netlink: how a process tells the kernel about links, routes and packet rules, and is told by it.
//!
//! [`Writer`] builds messages, [`Attributes`] reads them, [`Socket`] carries them. The protocols built on it are
//! [`crate::route`] and [`crate::nft`].

pub use error::Error;
pub use monitor::Monitor;
pub use reader::{Attributes, Message, messages};
pub use socket::{Namespace, Socket};
pub use writer::Writer;

mod error;
mod monitor;
mod reader;
mod socket;
mod writer;

/// The length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Messages and attributes start at multiples of this.
const ALIGN: usize = 4;
/// Set in an attribute's type when its value is attributes again.
const NESTED: u16 = libc::NLA_F_NESTED as u16;
/// What remains of an attribute's type without its flags.
const TYPE_MASK: u16 = libc::NLA_TYPE_MASK as u16;

const fn align(length: usize) -> usize {
    length.next_multiple_of(ALIGN)
}
