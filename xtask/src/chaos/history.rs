//! What clients were told, and whether one order of all events explains it: linearizability.
//!
//! The store numbers its writes, and an answer carries the number. So the order is not searched for: it is the numbers',
//! and what is checked is that it agrees with the clocks of the clients and with what they read.

use std::collections::BTreeMap;

/// A moment of the run, from one clock.
pub type Moment = u64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Did {
    /// The value, and the revision it was made from if it had to be that one.
    Write { value: u64, from: Option<u64> },
    /// The value that was seen; none if there was no object.
    Read { value: Option<u64> },
}

/// One answered request, or a write nobody knows the end of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub key: String,
    pub began: Moment,
    /// None for a write that may still happen.
    pub ended: Option<Moment>,
    /// The object's revision in the answer. None for reads of nothing and for writes without an answer.
    pub revision: Option<u64>,
    pub did: Did,
}

/// Everything that no order of events explains; empty for a linearizable history.
pub fn violations(events: &[Event]) -> Vec<String> {
    let mut found = order_of_writes(events);
    let mut by_key: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events {
        by_key.entry(&event.key).or_default().push(event);
    }
    for (key, events) in by_key {
        found.extend(of_key(key, &events));
    }
    found
}

/// A write that was acknowledged before another began has the smaller revision, whatever their keys.
fn order_of_writes(events: &[Event]) -> Vec<String> {
    let mut writes: Vec<(&Event, Moment, u64)> = events
        .iter()
        .filter(|event| matches!(event.did, Did::Write { .. }))
        .filter_map(|event| Some((event, event.ended?, event.revision?)))
        .collect();
    writes.sort_by_key(|(event, _, _)| event.began);
    let mut ends: Vec<(Moment, u64)> = writes.iter().map(|(_, ended, revision)| (*ended, *revision)).collect();
    ends.sort_unstable();
    let (mut next, mut highest) = (0, 0);
    let mut found = Vec::new();
    for (event, _, revision) in writes {
        while next < ends.len() && ends[next].0 < event.began {
            highest = highest.max(ends[next].1);
            next += 1;
        }
        if revision <= highest {
            found.push(format!(
                "the write to {} got revision {revision} although {highest} was acknowledged before it began",
                event.key
            ));
        }
    }
    found
}

fn of_key(key: &str, events: &[&Event]) -> Vec<String> {
    let mut found = Vec::new();
    let writes: BTreeMap<u64, (u64, Option<u64>)> = events
        .iter()
        .filter_map(|event| match event.did {
            Did::Write { value, from } => Some((event.revision?, (value, from))),
            Did::Read { .. } => None,
        })
        .collect();
    let unknown: Vec<u64> = events
        .iter()
        .filter(|event| event.revision.is_none())
        .filter_map(|event| match event.did {
            Did::Write { value, .. } => Some(value),
            Did::Read { .. } => None,
        })
        .collect();
    found.extend(conditions_that_did_not_hold(key, &writes));
    for event in events {
        let Did::Read { value } = event.did else { continue };
        let seen = event.revision.unwrap_or(0);
        let known = newest_before(events, event.began);
        if seen < known {
            found.push(format!("a read of {key} saw revision {seen} after {known} was known"));
        }
        let is_explained = match (value, writes.get(&seen)) {
            (None, _) => true,
            (Some(value), Some((written, _))) => value == *written,
            (Some(value), None) => unknown.contains(&value),
        };
        if !is_explained {
            found.push(format!(
                "a read of {key} at revision {seen} saw {value:?}, which nobody wrote"
            ));
        }
    }
    found
}

/// The highest revision of the key that any answer before a moment named.
fn newest_before(events: &[&Event], moment: Moment) -> u64 {
    events
        .iter()
        .filter(|event| event.ended.is_some_and(|ended| ended < moment))
        .filter_map(|event| event.revision)
        .max()
        .unwrap_or(0)
}

/// A write from a certain revision follows it directly among the known writes.
fn conditions_that_did_not_hold(key: &str, writes: &BTreeMap<u64, (u64, Option<u64>)>) -> Vec<String> {
    let between = |from: u64, to: u64| writes.range(from + 1..to).next().map(|(revision, _)| *revision);
    writes
        .iter()
        .filter_map(|(revision, (_, from))| Some((*revision, (*from)?)))
        .filter_map(|(revision, from)| Some((revision, from, between(from, revision)?)))
        .map(|(revision, from, other)| {
            format!("revision {revision} of {key} was to follow {from}, but {other} came between")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(began: u64, ended: Option<u64>, revision: Option<u64>, value: u64, from: Option<u64>) -> Event {
        Event {
            key: "a".to_owned(),
            began,
            ended,
            revision,
            did: Did::Write { value, from },
        }
    }

    fn read(began: u64, ended: u64, revision: Option<u64>, value: Option<u64>) -> Event {
        Event {
            key: "a".to_owned(),
            began,
            ended: Some(ended),
            revision,
            did: Did::Read { value },
        }
    }

    fn check(events: &[Event], expected: &[&str]) {
        assert_eq!(violations(events), expected);
    }

    #[test]
    fn what_follows_the_revisions_is_fine() {
        check(
            &[
                write(0, Some(2), Some(10), 1, None),
                // At the same time, and therefore in any order.
                write(1, Some(3), Some(9), 2, None),
                read(4, 5, Some(10), Some(1)),
                write(6, Some(7), Some(12), 3, Some(10)),
            ],
            &[],
        );
    }

    #[test]
    fn an_acknowledged_write_that_is_lost_is_seen_by_the_next_read() {
        check(
            &[
                write(0, Some(1), Some(10), 1, None),
                write(2, Some(3), Some(11), 2, None),
                read(4, 5, Some(10), Some(1)),
            ],
            &["a read of a saw revision 10 after 11 was known"],
        );
        check(
            &[write(0, Some(1), Some(10), 1, None), read(2, 3, None, None)],
            &["a read of a saw revision 0 after 10 was known"],
        );
    }

    #[test]
    fn a_write_without_an_answer_may_have_happened_or_not() {
        let unknown = write(2, None, None, 2, None);
        let first = write(0, Some(1), Some(10), 1, None);
        check(&[first.clone(), unknown.clone(), read(4, 5, Some(10), Some(1))], &[]);
        check(&[first.clone(), unknown, read(4, 5, Some(11), Some(2))], &[]);
        check(
            &[first, read(4, 5, Some(11), Some(7))],
            &["a read of a at revision 11 saw Some(7), which nobody wrote"],
        );
    }

    #[test]
    fn revisions_go_with_time() {
        check(
            &[
                write(0, Some(1), Some(10), 1, None),
                write(2, Some(3), Some(8), 2, None),
            ],
            &["the write to a got revision 8 although 10 was acknowledged before it began"],
        );
    }

    #[test]
    fn a_condition_held_when_the_write_was_made() {
        check(
            &[
                write(0, Some(9), Some(10), 1, None),
                write(0, Some(9), Some(11), 2, None),
                write(0, Some(9), Some(12), 3, Some(10)),
            ],
            &["revision 12 of a was to follow 10, but 11 came between"],
        );
    }
}
