//! The bound on the live state, and which writes it refuses. Pure.
//!
//! As with etcd's quota, what makes the state larger is refused and what makes it smaller goes on. Unlike there, the
//! alarm ends by itself when the write that raised it would fit.

use crate::Event;

/// Keys and values of the live state together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// 0 for none.
    pub bytes: u64,
}

/// An existing object may grow by this much beyond the quota: its deletion begins with an update that notes when.
const SMALL_GROWTH: u64 = 4 << 10;
/// The share of the quota that such updates may take in all.
const SMALL_SHARE: u64 = 16;

impl Quota {
    /// Whether a transaction that writes that many bytes has to be looked at.
    pub fn concerns(self, state_bytes: u64, written: usize) -> bool {
        self.bytes > 0 && state_bytes.saturating_add(written as u64) > self.bytes
    }

    /// Whether a transaction with these events, which leads from `before` to `after` bytes, goes too far.
    pub fn refuses(self, before: u64, after: u64, events: &[Event]) -> bool {
        if self.bytes == 0 || after <= before || after <= self.bytes {
            return false;
        }
        let creates = events.iter().any(|event| event.previous.is_none());
        let small = !creates && after - before <= SMALL_GROWTH;
        !small || after > self.bytes.saturating_add(self.bytes / SMALL_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::Entry;

    fn event(exists: bool) -> Event {
        let entry = Arc::new(Entry {
            key: "/k".into(),
            value: Bytes::new(),
            create_revision: 1,
            mod_revision: 1,
            expires_at_ms: 0,
        });
        Event {
            revision: 2,
            key: "/k".into(),
            current: Some(entry.clone()),
            previous: exists.then_some(entry),
        }
    }

    #[test]
    fn growth_beyond_the_quota_is_refused_and_shrinking_never_is() {
        let quota = Quota { bytes: 1 << 20 };
        let full = 1 << 20;
        assert!(!quota.refuses(full - 100, full, &[event(false)]), "it fits exactly");
        assert!(quota.refuses(full - 100, full + 1, &[event(false)]));
        assert!(!quota.refuses(2 * full, 2 * full - 1, &[event(true)]));
        assert!(!Quota { bytes: 0 }.refuses(0, u64::MAX, &[event(false)]));
    }

    #[test]
    fn an_existing_object_may_grow_a_little_so_that_it_can_be_deleted() {
        let quota = Quota { bytes: 1 << 20 };
        let full = 1 << 20;
        assert!(!quota.refuses(full, full + 200, &[event(true)]));
        assert!(quota.refuses(full, full + 200, &[event(false)]), "but no new one");
        assert!(quota.refuses(full, full + SMALL_GROWTH + 1, &[event(true)]));
        let most = full + full / SMALL_SHARE;
        assert!(quota.refuses(most, most + 1, &[event(true)]), "and not without end");
    }
}
