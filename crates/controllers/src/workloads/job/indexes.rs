//! Sets of completion indexes, in the compressed text in which a job's status keeps them: `0,1,3-7`.

use std::fmt;

/// Ordered intervals that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads the text form; indexes from `completions` on are dropped, as is what is not a number.
    pub fn parse(text: &str, completions: i64) -> Indexes {
        let intervals = text.split(',').filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse().ok()?, last.parse::<i64>().ok()?);
            let last = last.min(completions - 1);
            (0 <= first && first <= last).then_some((first, last))
        });
        Indexes::of(intervals.collect())
    }

    /// These indexes and others.
    pub fn with(&self, others: impl IntoIterator<Item = i64>) -> Indexes {
        let mut intervals = self.0.clone();
        intervals.extend(others.into_iter().map(|index| (index, index)));
        Indexes::of(intervals)
    }

    pub fn and(&self, other: &Indexes) -> Indexes {
        Indexes::of(self.0.iter().chain(&other.0).copied().collect())
    }

    pub fn len(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, index: i64) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= index);
        after > 0 && index <= self.0[after - 1].1
    }

    /// How many indexes both sets hold.
    pub fn shared(&self, other: &Indexes) -> i64 {
        let (mut mine, mut theirs, mut shared) = (self.0.as_slice(), other.0.as_slice(), 0);
        while let (Some(one), Some(two)) = (mine.first(), theirs.first()) {
            shared += (one.1.min(two.1) - one.0.max(two.0) + 1).max(0);
            if one.1 <= two.1 {
                mine = &mine[1..];
            } else {
                theirs = &theirs[1..];
            }
        }
        shared
    }

    /// The first `count` indexes below `end` that are not in the set.
    pub fn missing(&self, end: i64, count: usize) -> Vec<i64> {
        let (mut missing, mut next) = (Vec::new(), 0);
        for (first, last) in self.0.iter().copied().chain([(end, end)]) {
            let room = count - missing.len();
            missing.extend((next..first.min(end)).take(room));
            next = next.max(last + 1);
        }
        missing
    }

    fn of(mut intervals: Vec<(i64, i64)>) -> Indexes {
        intervals.sort_unstable();
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(intervals.len());
        for (first, last) in intervals {
            match merged.last_mut() {
                Some(known) if first <= known.1 + 1 => known.1 = known.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Indexes(merged)
    }
}

impl fmt::Display for Indexes {
    /// Two neighbours are listed one by one; only longer runs are written as an interval.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (first, last)) in self.0.iter().enumerate() {
            let comma = if position > 0 { "," } else { "" };
            match last - first {
                0 => write!(formatter, "{comma}{first}")?,
                1 => write!(formatter, "{comma}{first},{last}")?,
                _ => write!(formatter, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_read_and_written_in_the_form_of_the_status() {
        let indexes = Indexes::parse("0,1,3-7,9-20,x", 12);
        assert_eq!(indexes.to_string(), "0,1,3-7,9-11");
        assert_eq!(indexes.len(), 10);
        assert_eq!(indexes.with([2, 8]).to_string(), "0-11");
        assert_eq!(Indexes::parse("", 5).to_string(), "");
        assert!(indexes.contains(5) && !indexes.contains(8) && !indexes.contains(12));
    }

    #[test]
    fn sets_are_joined_and_compared() {
        let (one, two) = (Indexes::parse("0-3,8", 10), Indexes::parse("2-5,8,9", 10));
        assert_eq!(one.and(&two).to_string(), "0-5,8,9");
        assert_eq!(one.shared(&two), 3);
        assert_eq!(one.missing(10, 3), [4, 5, 6]);
        assert_eq!(one.missing(6, 9), [4, 5]);
        assert_eq!(Indexes::default().missing(2, 9), [0, 1]);
    }
}
