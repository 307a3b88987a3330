//! Changes of packet rules that others make.

use super::wire;
use crate::netlink::{self, Attributes};

/// Is told of changes to the rules of one network namespace.
#[derive(Debug)]
pub struct Monitor(netlink::Monitor);

impl Monitor {
    /// Listens in the calling thread's namespace. Needs a runtime.
    pub fn open() -> Result<Monitor, netlink::Error> {
        netlink::Monitor::open(libc::NETLINK_NETFILTER, &[libc::NFNLGRP_NFTABLES as u32]).map(Monitor)
    }

    /// Waits until somebody else changes one of the tables. `own` is the [`Socket::port_id`](super::Socket::port_id) of
    /// whoever may.
    pub async fn changed_by_others(&self, tables: &[&str], own: u32) -> Result<(), netlink::Error> {
        let of_interest = |message: &netlink::Message<'_>| {
            let is_rule = message.kind >> 8 == wire::SUBSYSTEM && message.kind & 0xff != libc::NFT_MSG_NEWGEN as u16;
            // All kinds of messages have the table's name in the same place.
            let table = Attributes::after(message, wire::HEADER).text(wire::TABLE_NAME);
            is_rule && message.sender != own && table.is_some_and(|table| tables.contains(&table))
        };
        self.0.changed(of_interest).await
    }

    /// Forgets what has been told so far, for somebody who is about to compare everything.
    pub fn drain(&self) -> Result<(), netlink::Error> {
        self.0.drain()
    }
}
