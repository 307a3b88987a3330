//! Which sandbox has which addresses. Pure: what is decided here becomes true by a [`Record`] that the journal keeps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use crate::{Cidr, NetworkError};

/// How many addresses of a block are handed out at most. No node has more pods, and an IPv6 block would never end.
const USABLE_ADDRESSES: u128 = 65_536;

/// A change of ownership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Assigned {
        id: String,
        ips: Vec<IpAddr>,
    },
    Released {
        id: String,
    },
    /// Nobody has the address now, but somebody had it, after those of earlier such records.
    Freed {
        ip: IpAddr,
    },
}

/// All owners, and what is free in which order.
#[derive(Debug, Default)]
pub struct Addresses {
    blocks: Vec<Block>,
    owners: BTreeMap<String, Vec<IpAddr>>,
    /// The oldest first, so that an address rests as long as possible before another pod gets it. Bounded by what
    /// blocks have handed out.
    freed: VecDeque<IpAddr>,
}

#[derive(Debug)]
struct Block {
    cidr: Cidr,
    /// The index of the first address that was never used; all before it are owned or freed.
    next: u128,
}

impl Addresses {
    /// Hands out from these blocks from now on, one address of each. Owners keep what they have.
    pub fn set_blocks(&mut self, cidrs: &[Cidr]) -> Result<(), NetworkError> {
        if let Some(&block) = cidrs.iter().find(|block| block.size() < SMALLEST_BLOCK) {
            return Err(NetworkError::BlockTooSmall { block });
        }
        if cidrs.iter().eq(self.blocks.iter().map(|block| &block.cidr)) {
            return Ok(());
        }
        self.freed.retain(|&ip| cidrs.iter().any(|cidr| cidr.contains(ip)));
        let known: BTreeSet<IpAddr> = self.owners.values().flatten().chain(&self.freed).copied().collect();
        self.blocks = cidrs.iter().map(|&cidr| Block::after(cidr, &known)).collect();
        for block in &self.blocks {
            let before = (FIRST_POD..block.next).filter_map(|index| block.cidr.nth(index));
            self.freed.extend(before.filter(|ip| !known.contains(ip)));
        }
        Ok(())
    }

    pub fn cidrs(&self) -> impl Iterator<Item = Cidr> + '_ {
        self.blocks.iter().map(|block| block.cidr)
    }

    pub fn of_sandbox(&self, id: &str) -> Option<&[IpAddr]> {
        self.owners.get(id).map(Vec::as_slice)
    }

    pub fn owners(&self) -> impl Iterator<Item = (&str, &[IpAddr])> {
        self.owners.iter().map(|(id, ips)| (id.as_str(), ips.as_slice()))
    }

    /// What to record so that `id` has an address of every block; nothing if it has addresses already.
    pub fn assign(&self, id: &str) -> Result<Option<Record>, NetworkError> {
        if self.owners.contains_key(id) {
            return Ok(None);
        }
        if self.blocks.is_empty() {
            return Err(NetworkError::NoPodCidr);
        }
        let ips: Result<Vec<IpAddr>, _> = self.blocks.iter().map(|block| self.pick(block)).collect();
        Ok(Some(Record::Assigned {
            id: id.to_owned(),
            ips: ips?,
        }))
    }

    /// What to record so that `id` has nothing; nothing if that is so.
    pub fn release(&self, id: &str) -> Option<Record> {
        self.owners
            .contains_key(id)
            .then(|| Record::Released { id: id.to_owned() })
    }

    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Assigned { id, ips } => {
                self.freed.retain(|freed| !ips.contains(freed));
                for block in &mut self.blocks {
                    block.pass(ips);
                }
                self.owners.insert(id.clone(), ips.clone());
            }
            Record::Released { id } => self.freed.extend(self.owners.remove(id).unwrap_or_default()),
            Record::Freed { ip } => self.freed.push_back(*ip),
        }
    }

    /// The fewest records that lead here.
    pub fn records(&self) -> Vec<Record> {
        let freed = self.freed.iter().map(|&ip| Record::Freed { ip });
        let owned = self.owners.iter().map(|(id, ips)| Record::Assigned {
            id: id.clone(),
            ips: ips.clone(),
        });
        freed.chain(owned).collect()
    }

    /// How many [`records`](Addresses::records) there are.
    pub fn record_count(&self) -> usize {
        self.freed.len() + self.owners.len()
    }

    fn pick(&self, block: &Block) -> Result<IpAddr, NetworkError> {
        let cidr = block.cidr;
        // An IPv4 block's last address is for broadcasts.
        let end = (cidr.size() - u128::from(cidr.is_ipv4())).min(USABLE_ADDRESSES);
        let unused = (block.next < end).then(|| cidr.nth(block.next)).flatten();
        unused
            .or_else(|| self.freed.iter().copied().find(|&ip| cidr.contains(ip)))
            .ok_or(NetworkError::AddressesExhausted { block: cidr })
    }
}

impl Block {
    /// A block of which some addresses are known to have been used.
    fn after(cidr: Cidr, known: &BTreeSet<IpAddr>) -> Block {
        let mut block = Block { cidr, next: FIRST_POD };
        block.pass(known);
        block
    }

    fn pass<'a>(&mut self, used: impl IntoIterator<Item = &'a IpAddr>) {
        for index in used.into_iter().filter_map(|&ip| self.cidr.index_of(ip)) {
            self.next = self.next.max((index + 1).min(USABLE_ADDRESSES));
        }
    }
}

/// The first address names the network, the second is the gateway's.
const FIRST_POD: u128 = 2;
/// A network, a gateway, a pod and a broadcast address.
const SMALLEST_BLOCK: u128 = 4;

/// The gateway of a block: the first address after the one that names the network.
pub fn gateway(block: Cidr) -> IpAddr {
    block.nth(1).unwrap_or(block.address())
}

/// The owners that are not among `live`.
pub fn stale<'a>(addresses: &'a Addresses, live: &'a BTreeSet<String>) -> impl Iterator<Item = String> + 'a {
    addresses
        .owners()
        .filter(|(id, _)| !live.contains(*id))
        .map(|(id, _)| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assign(addresses: &mut Addresses, id: &str) -> String {
        match addresses.assign(id) {
            Ok(Some(record)) => addresses.apply(&record),
            Ok(None) => {}
            Err(error) => return error.to_string(),
        }
        let ips = addresses.of_sandbox(id).unwrap_or_default();
        ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
    }

    fn release(addresses: &mut Addresses, id: &str) {
        if let Some(record) = addresses.release(id) {
            addresses.apply(&record);
        }
    }

    fn replay(records: &[Record], cidrs: &[Cidr]) -> Addresses {
        let mut addresses = Addresses::default();
        records.iter().for_each(|record| addresses.apply(record));
        addresses.set_blocks(cidrs).unwrap();
        addresses
    }

    #[test]
    fn unused_addresses_go_first_then_the_oldest_freed() {
        let block = ["10.1.0.0/29".parse().unwrap()];
        let mut addresses = replay(&[], &block);
        for (id, ip) in [
            ("a", "10.1.0.2"),
            ("b", "10.1.0.3"),
            ("c", "10.1.0.4"),
            ("a", "10.1.0.2"),
        ] {
            assert_eq!(assign(&mut addresses, id), ip);
        }
        release(&mut addresses, "b");
        release(&mut addresses, "a");
        release(&mut addresses, "nobody");
        assert_eq!(assign(&mut addresses, "d"), "10.1.0.5");
        let mut addresses = replay(&addresses.records(), &block);
        for (id, ip) in [("e", "10.1.0.6"), ("f", "10.1.0.3"), ("g", "10.1.0.2")] {
            assert_eq!(assign(&mut addresses, id), ip);
        }
        assert_eq!(
            assign(&mut addresses, "h"),
            "all addresses of the pod CIDR 10.1.0.0/29 are in use"
        );
        release(&mut addresses, "c");
        assert_eq!(assign(&mut addresses, "h"), "10.1.0.4");
    }

    #[test]
    fn every_block_gives_one_address() {
        let blocks = ["10.1.0.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()];
        let mut addresses = replay(&[], &blocks);
        assert_eq!(assign(&mut addresses, "a"), "10.1.0.2 fd00:1::2");
        assert_eq!(assign(&mut addresses, "b"), "10.1.0.3 fd00:1::3");
    }

    #[test]
    fn a_changed_block_keeps_owners_and_never_gives_their_addresses_again() {
        let mut addresses = replay(&[], &["10.1.0.0/28".parse().unwrap()]);
        for id in ["a", "b", "c"] {
            assign(&mut addresses, id);
        }
        release(&mut addresses, "b");
        addresses.set_blocks(&["10.2.0.0/28".parse().unwrap()]).unwrap();
        assert_eq!(assign(&mut addresses, "d"), "10.2.0.2");
        assert_eq!(assign(&mut addresses, "a"), "10.1.0.2");
        addresses.set_blocks(&["10.1.0.0/29".parse().unwrap()]).unwrap();
        assert_eq!(assign(&mut addresses, "e"), "10.1.0.5");
        assert_eq!(assign(&mut addresses, "f"), "10.1.0.6");
        assert_eq!(assign(&mut addresses, "g"), "10.1.0.3");
    }

    #[test]
    fn nothing_is_given_without_a_block_or_from_one_too_small() {
        let mut addresses = Addresses::default();
        assert_eq!(assign(&mut addresses, "a"), "the node has no pod CIDR yet");
        let refused = addresses.set_blocks(&["10.1.0.0/31".parse().unwrap()]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the pod CIDR 10.1.0.0/31 is too small: it has no room for a gateway and a pod"
        );
    }
}
