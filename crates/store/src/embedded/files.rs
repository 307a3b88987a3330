//! Which files make up the store, and which of them have become superfluous. Pure.

use crate::Revision;

/// What is known of one log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub first: Revision,
    pub bytes: u64,
    /// When its last batch was written.
    pub at_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Files {
    /// The revision of the checkpoint; 0 without one. History begins here.
    pub floor: Revision,
    /// Oldest first; the last one is being written.
    pub segments: Vec<Segment>,
}

/// How much history is kept on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// History younger than this is kept if `most_bytes` allows it.
    pub age_ms: u64,
    /// Fewer bytes than this are not worth a checkpoint.
    pub least_bytes: u64,
    pub most_bytes: u64,
}

impl Files {
    /// Records where the last batch went. Returns whether it began a new segment.
    pub fn note(&mut self, segment: Segment) -> bool {
        match self.segments.last_mut() {
            Some(last) if last.first == segment.first => {
                *last = segment;
                false
            }
            _ => {
                self.segments.push(segment);
                true
            }
        }
    }

    /// Forgets what lies before `floor`; returns the segments that are no longer needed.
    pub fn raise_floor(&mut self, floor: Revision) -> Vec<Segment> {
        self.floor = floor;
        let obsolete = self
            .segments
            .windows(2)
            .take_while(|pair| pair[1].first <= floor + 1)
            .count();
        self.segments.drain(..obsolete).collect()
    }

    /// The segments with revisions after `revision`.
    pub fn after(&self, revision: Revision) -> &[Segment] {
        let older = self
            .segments
            .windows(2)
            .take_while(|pair| pair[1].first <= revision + 1)
            .count();
        &self.segments[older..]
    }

    /// The revision to compact to now, if it is worth it. A checkpoint costs a write of the whole state, so it should free at
    /// least a share of that.
    pub fn plan_compaction(&self, live_bytes: u64, now_ms: u64, limits: Limits) -> Option<Revision> {
        let (_, closed) = self.segments.split_last()?;
        let worth = limits.least_bytes.max(live_bytes / 2);
        let oldest_ms = now_ms.saturating_sub(limits.age_ms);
        let old = closed.iter().take_while(|segment| segment.at_ms < oldest_ms);
        let (old_count, old_bytes) = old.fold((0, 0), |(count, bytes), segment| (count + 1, bytes + segment.bytes));
        let by_age = if old_bytes >= worth { old_count } else { 0 };

        let most = limits.most_bytes.max(live_bytes);
        let mut bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        let mut by_bytes = 0;
        if bytes > most {
            while by_bytes < closed.len() && bytes > most / 2 {
                bytes -= closed[by_bytes].bytes;
                by_bytes += 1;
            }
        }
        let count = by_age.max(by_bytes);
        (count > 0).then(|| self.segments[count].first - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        age_ms: 1000,
        least_bytes: 100,
        most_bytes: 1000,
    };

    fn files(segments: &[(Revision, u64, u64)]) -> Files {
        let segment = |(first, bytes, at_ms): &(Revision, u64, u64)| Segment {
            first: *first,
            bytes: *bytes,
            at_ms: *at_ms,
        };
        Files {
            floor: 0,
            segments: segments.iter().map(segment).collect(),
        }
    }

    #[test]
    fn old_history_goes_when_it_is_worth_a_checkpoint() {
        let files = files(&[(1, 60, 100), (10, 60, 200), (20, 60, 5000), (30, 10, 5100)]);
        assert_eq!(
            files.plan_compaction(0, 1150, LIMITS),
            None,
            "only 60 bytes are old enough"
        );
        assert_eq!(files.plan_compaction(0, 1500, LIMITS), Some(19));
        assert_eq!(
            files.plan_compaction(1000, 1500, LIMITS),
            None,
            "the state is 1000 bytes, the gain only 120"
        );
        assert_eq!(
            files.plan_compaction(0, 90_000, LIMITS),
            Some(29),
            "the segment being written stays"
        );
    }

    #[test]
    fn young_history_goes_when_there_is_too_much() {
        let files = files(&[(1, 400, 100), (10, 400, 200), (20, 400, 300), (30, 10, 400)]);
        assert_eq!(
            files.plan_compaction(0, 500, LIMITS),
            Some(19),
            "down to half of the limit"
        );
        assert_eq!(
            files.plan_compaction(2000, 500, LIMITS),
            None,
            "a large state may have as much history"
        );
    }

    #[test]
    fn raising_the_floor_frees_only_whole_segments() {
        let mut files = files(&[(1, 1, 0), (10, 1, 0), (20, 1, 0)]);
        assert_eq!(files.raise_floor(8), []);
        assert_eq!(files.raise_floor(9).len(), 1);
        assert_eq!(files.after(18)[0].first, 10);
        assert_eq!(files.after(19)[0].first, 20);
        assert_eq!(files.raise_floor(500).len(), 1, "the last one is still being written");
    }
}
