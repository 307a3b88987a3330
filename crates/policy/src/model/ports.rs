//! Sets of ports, in one form for one meaning: two sets are equal exactly if they let the same packets pass.

use std::collections::BTreeMap;
use std::fmt;

use network::Protocol;

/// What a rule lets through of a connection's protocol and port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortSet {
    /// Every protocol, those without ports among them. The ranges are empty then.
    everything: bool,
    /// In order, with a gap between each two.
    ranges: BTreeMap<Protocol, Vec<(u16, u16)>>,
}

impl PortSet {
    pub fn everything() -> PortSet {
        PortSet {
            everything: true,
            ranges: BTreeMap::new(),
        }
    }

    pub fn range(protocol: Protocol, first: u16, last: u16) -> PortSet {
        let mut set = PortSet::default();
        if first <= last {
            set.ranges.insert(protocol, vec![(first, last)]);
        }
        set
    }

    pub fn is_everything(&self) -> bool {
        self.everything
    }

    pub fn is_empty(&self) -> bool {
        !self.everything && self.ranges.is_empty()
    }

    pub fn contains(&self, protocol: Protocol, port: u16) -> bool {
        let ranges = || self.ranges.get(&protocol).into_iter().flatten();
        self.everything || ranges().any(|(first, last)| (*first..=*last).contains(&port))
    }

    /// The ranges of single protocols; none if the set is everything.
    pub fn ranges(&self) -> impl Iterator<Item = (Protocol, u16, u16)> {
        let ranges = self.ranges.iter();
        ranges.flat_map(|(protocol, ranges)| ranges.iter().map(|(first, last)| (*protocol, *first, *last)))
    }

    /// Adds what the other set has.
    pub fn unite(&mut self, other: &PortSet) {
        if self.everything || other.everything {
            *self = PortSet::everything();
            return;
        }
        for (protocol, added) in &other.ranges {
            let ranges = self.ranges.entry(*protocol).or_default();
            ranges.extend(added);
            *ranges = merged(ranges);
        }
    }

    /// What both sets have.
    pub fn intersection(&self, other: &PortSet) -> PortSet {
        match (self.everything, other.everything) {
            (true, _) => return other.clone(),
            (_, true) => return self.clone(),
            _ => {}
        }
        let mut common = PortSet::default();
        for (protocol, first, last) in self.ranges() {
            for (_, from, to) in other.ranges().filter(|(of, ..)| *of == protocol) {
                common.unite(&PortSet::range(protocol, first.max(from), last.min(to)));
            }
        }
        common
    }
}

fn merged(ranges: &mut [(u16, u16)]) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
    for &(first, last) in ranges.iter() {
        match merged.last_mut() {
            Some(before) if u32::from(first) <= u32::from(before.1) + 1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

impl fmt::Display for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.everything {
            return f.write_str("everything");
        }
        for (index, (protocol, first, last)) in self.ranges().enumerate() {
            let separator = if index == 0 { "" } else { " " };
            match first == last {
                true => write!(f, "{separator}{protocol}/{first}")?,
                false => write!(f, "{separator}{protocol}/{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(ranges: &[(u16, u16)]) -> PortSet {
        let mut set = PortSet::default();
        for &(first, last) in ranges {
            set.unite(&PortSet::range(Protocol::Tcp, first, last));
        }
        set
    }

    #[test]
    fn a_set_has_one_form() {
        assert_eq!(tcp(&[(80, 80), (81, 90), (85, 95)]).to_string(), "TCP/80-95");
        assert_eq!(tcp(&[(443, 443), (80, 80)]), tcp(&[(80, 80), (443, 443), (80, 80)]));
        assert_eq!(tcp(&[(65535, 65535), (0, 65534)]).to_string(), "TCP/0-65535");
        assert!(tcp(&[(90, 80)]).is_empty(), "a range that ends before it begins");
        let mut all = tcp(&[(80, 80)]);
        all.unite(&PortSet::everything());
        assert_eq!(all, PortSet::everything());
    }

    #[test]
    fn the_intersection_is_what_both_have() {
        let one = tcp(&[(80, 90), (100, 110)]);
        assert_eq!(
            one.intersection(&tcp(&[(85, 105)])).to_string(),
            "TCP/85-90 TCP/100-105"
        );
        assert_eq!(one.intersection(&PortSet::everything()), one);
        assert!(one.intersection(&PortSet::range(Protocol::Udp, 80, 90)).is_empty());
        assert!(one.contains(Protocol::Tcp, 105) && !one.contains(Protocol::Udp, 105));
    }
}
