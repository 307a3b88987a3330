//! Ranges of addresses. The kernel refuses ranges that overlap, while the blocks of policies may.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use network::Cidr;
use network::nft::matching::bounds;

use super::PortSet;

/// Addresses of one family, the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressRange {
    pub first: IpAddr,
    pub last: IpAddr,
}

impl AddressRange {
    /// All addresses of a family.
    pub fn all(ipv4: bool) -> AddressRange {
        match ipv4 {
            true => AddressRange::new(true, 0, u32::MAX.into()),
            false => AddressRange::new(false, 0, u128::MAX),
        }
    }

    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.is_ipv4() && (self.first..=self.last).contains(&address)
    }

    fn new(ipv4: bool, first: u128, last: u128) -> AddressRange {
        AddressRange {
            first: address(ipv4, first),
            last: address(ipv4, last),
        }
    }
}

/// The addresses of a block that are in none of the others.
pub fn without(block: Cidr, except: &[Cidr]) -> Vec<AddressRange> {
    let (first, last) = bounds(block);
    let mut holes: Vec<(u128, u128)> = except
        .iter()
        .filter(|hole| hole.is_ipv4() == block.is_ipv4())
        .map(|hole| bounds(*hole))
        .map(|(first, last)| (number(first), number(last)))
        .collect();
    holes.sort_unstable();
    let (mut next, end) = (number(first), number(last));
    let mut ranges = Vec::new();
    for (from, to) in holes {
        if from > end || to < next {
            continue;
        }
        if from > next {
            ranges.push(AddressRange::new(block.is_ipv4(), next, from - 1));
        }
        if to >= end {
            return ranges;
        }
        next = to + 1;
    }
    ranges.push(AddressRange::new(block.is_ipv4(), next, end));
    ranges
}

/// The same addresses in ranges of which no two overlap: each with the ports of all that it was in.
pub fn disjoint(ranges: &[(AddressRange, PortSet)]) -> BTreeMap<AddressRange, PortSet> {
    let mut result = BTreeMap::new();
    for ipv4 in [true, false] {
        let of_family = || ranges.iter().filter(|(range, _)| range.is_ipv4() == ipv4);
        let mut merged: Vec<(u128, u128, PortSet)> = Vec::new();
        for (first, last, ports) in segments(of_family()) {
            match merged.last_mut() {
                Some((_, end, before)) if *before == ports && *end + 1 == first => *end = last,
                _ => merged.push((first, last, ports)),
            }
        }
        result.extend(
            merged
                .into_iter()
                .map(|(first, last, ports)| (AddressRange::new(ipv4, first, last), ports)),
        );
    }
    result
}

/// Walks over all ends of ranges in order, with the count of each set of ports that is open there.
fn segments<'a>(ranges: impl Iterator<Item = &'a (AddressRange, PortSet)>) -> Vec<(u128, u128, PortSet)> {
    let mut turns: BTreeMap<u128, Vec<(&PortSet, isize)>> = BTreeMap::new();
    // The address space may end with a range, so that nothing comes after it.
    let mut ends_open: u128 = 0;
    for (range, ports) in ranges {
        let (first, last) = (number(range.first), number(range.last));
        turns.entry(first).or_default().push((ports, 1));
        ends_open = ends_open.max(last);
        if let Some(after) = last.checked_add(1) {
            turns.entry(after).or_default().push((ports, -1));
        }
    }
    let mut open: BTreeMap<&PortSet, isize> = BTreeMap::new();
    let mut segments = Vec::new();
    let starts: Vec<u128> = turns.keys().copied().collect();
    for (index, (start, turns)) in turns.into_iter().enumerate() {
        for (ports, step) in turns {
            *open.entry(ports).or_default() += step;
        }
        open.retain(|_, count| *count > 0);
        let last = starts.get(index + 1).map_or(ends_open, |next| next - 1);
        let mut ports = PortSet::default();
        open.keys().for_each(|set| ports.unite(set));
        if !ports.is_empty() {
            segments.push((start, last, ports));
        }
    }
    segments
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(ipv4: bool, number: u128) -> IpAddr {
    match ipv4 {
        true => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
        false => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use network::Protocol;

    use super::*;

    fn block(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    fn check(block_text: &str, except: &[&str], expected: &[&str]) {
        let except: Vec<Cidr> = except.iter().map(|text| block(text)).collect();
        let ranges = without(block(block_text), &except);
        let shown: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn exceptions_are_taken_out() {
        check("10.0.0.0/24", &[], &["10.0.0.0-10.0.0.255"]);
        check(
            "10.0.0.0/24",
            &["10.0.0.64/26", "10.0.0.0/30"],
            &["10.0.0.4-10.0.0.63", "10.0.0.128-10.0.0.255"],
        );
        check(
            "10.0.0.0/24",
            &["10.0.0.64/26", "10.0.0.64/28"],
            &["10.0.0.0-10.0.0.63", "10.0.0.128-10.0.0.255"],
        );
        check("10.0.0.0/24", &["10.0.0.0/24"], &[]);
        check("0.0.0.0/0", &["255.255.255.255/32"], &["0.0.0.0-255.255.255.254"]);
        check("::/0", &["8000::/1"], &["::-7fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]);
    }

    #[test]
    fn overlapping_ranges_become_disjoint_ones_with_the_ports_of_all() {
        let tcp = |port| PortSet::range(Protocol::Tcp, port, port);
        let range = |text: &str, port| (without(block(text), &[])[0], tcp(port));
        let ranges = [
            range("10.0.0.0/8", 80),
            range("10.1.0.0/16", 443),
            range("10.2.0.0/16", 80),
            range("0.0.0.0/0", 53),
            range("::/0", 1),
        ];
        let shown: Vec<String> = disjoint(&ranges)
            .iter()
            .map(|(range, ports)| format!("{range} {ports}"))
            .collect();
        assert_eq!(
            shown,
            [
                "0.0.0.0-9.255.255.255 TCP/53",
                "10.0.0.0-10.0.255.255 TCP/53 TCP/80",
                "10.1.0.0-10.1.255.255 TCP/53 TCP/80 TCP/443",
                "10.2.0.0-10.255.255.255 TCP/53 TCP/80",
                "11.0.0.0-255.255.255.255 TCP/53",
                "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff TCP/1",
            ]
        );
    }

    #[test]
    fn thousands_of_blocks_are_a_matter_of_milliseconds() {
        let ranges: Vec<(AddressRange, PortSet)> = (0..20_000u32)
            .map(|number| {
                let block = Cidr::containing(IpAddr::from((number * 7919).to_be_bytes()), 8 + (number % 24) as u8);
                (without(block, &[])[0], PortSet::range(Protocol::Tcp, 80, 80))
            })
            .collect();
        let start = std::time::Instant::now();
        assert!(!disjoint(&ranges).is_empty());
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }
}
