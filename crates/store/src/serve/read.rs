//! Ranges.

use std::sync::Arc;

use tonic::Status;

use super::{Parts, header, text};
use crate::etcd::proto::range_request::{SortOrder, SortTarget};
use crate::etcd::proto::{KeyValue, RangeRequest, RangeResponse};
use crate::{Entry, Revision, Snapshot};

/// The end that means all keys from the first one on.
const OPEN_END: &[u8] = &[0];

/// One key, or all from one on to before another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    first: String,
    end: End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The span is its first key alone.
    Alone,
    Before(Vec<u8>),
    Open,
}

impl Span {
    pub fn parse(key: Vec<u8>, range_end: Vec<u8>) -> Result<Span, Status> {
        let end = match range_end.as_slice() {
            [] => End::Alone,
            OPEN_END => End::Open,
            _ => End::Before(range_end),
        };
        Ok(Span { first: text(key)?, end })
    }

    pub fn holds(&self, key: &str) -> bool {
        match &self.end {
            End::Alone => key == self.first,
            End::Before(end) => *key >= *self.first && key.as_bytes() < end.as_slice(),
            End::Open => *key >= *self.first,
        }
    }

    /// Its entries in the order of their keys.
    pub fn entries<'a>(&'a self, snapshot: &'a dyn Snapshot) -> Box<dyn Iterator<Item = Arc<Entry>> + Send + 'a> {
        match &self.end {
            End::Alone => Box::new(snapshot.get(&self.first).into_iter()),
            _ => {
                let entries = snapshot.range("", &self.first);
                Box::new(entries.take_while(|entry| self.holds(&entry.key)).cloned())
            }
        }
    }
}

impl Parts {
    pub async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Status> {
        let snapshot = self.snapshot(request.revision).await?;
        // What was read from the past is told beside the newest revision.
        let revision = snapshot.revision().max(match request.revision {
            0 => 0,
            _ => self.store.snapshot().revision(),
        });
        self.range_of(&*snapshot, request, revision)
    }

    /// The part of a snapshot that a request asks for.
    pub fn range_of(
        &self,
        snapshot: &dyn Snapshot,
        request: RangeRequest,
        revision: Revision,
    ) -> Result<RangeResponse, Status> {
        check(&request)?;
        let span = Span::parse(request.key.clone(), request.range_end.clone())?;
        let mut entries: Vec<Arc<Entry>> = span.entries(snapshot).collect();
        // How many there are is told without the filters, as etcd does.
        let count = entries.len();
        entries.retain(|entry| passes(&request, entry));
        self.sort(&request, &mut entries)?;
        let limit = match usize::try_from(request.limit) {
            Ok(0) | Err(_) => entries.len(),
            Ok(limit) => limit,
        };
        let shown = entries.iter().take(if request.count_only { 0 } else { limit });
        let kvs: Result<Vec<KeyValue>, Status> = shown
            .map(|entry| match request.keys_only {
                true => Ok(self.key_alone(entry)),
                false => self.key_value(entry),
            })
            .collect();
        Ok(RangeResponse {
            header: header(revision),
            kvs: kvs?,
            more: !request.count_only && entries.len() > limit,
            count: count as i64,
        })
    }

    fn sort(&self, request: &RangeRequest, entries: &mut [Arc<Entry>]) -> Result<(), Status> {
        match SortTarget::try_from(request.sort_target) {
            Ok(SortTarget::Key) => {}
            Ok(SortTarget::Version) => entries.sort_by_key(|entry| self.key_alone(entry).version),
            Ok(SortTarget::Create) => entries.sort_by_key(|entry| entry.create_revision),
            Ok(SortTarget::Mod) => entries.sort_by_key(|entry| entry.mod_revision),
            Ok(SortTarget::Value) | Err(_) => return Err(unsorted()),
        }
        if request.sort_order == SortOrder::Descend as i32 {
            entries.reverse();
        }
        Ok(())
    }
}

/// Refuses what would otherwise be answered wrongly.
pub fn check(request: &RangeRequest) -> Result<(), Status> {
    let target = SortTarget::try_from(request.sort_target);
    match target.is_ok_and(|target| target != SortTarget::Value) && SortOrder::try_from(request.sort_order).is_ok() {
        true => Ok(()),
        false => Err(unsorted()),
    }
}

fn unsorted() -> Status {
    Status::unimplemented("ranges are sorted by key, version or revision only")
}

fn passes(request: &RangeRequest, entry: &Entry) -> bool {
    let within = |revision: Revision, least: i64, most: i64| {
        let revision = revision as i64;
        (least == 0 || revision >= least) && (most == 0 || revision <= most)
    };
    within(entry.mod_revision, request.min_mod_revision, request.max_mod_revision)
        && within(
            entry.create_revision,
            request.min_create_revision,
            request.max_create_revision,
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_key_a_prefix_or_all_that_follows() {
        let span = |key: &str, end: &[u8]| Span::parse(key.as_bytes().to_vec(), end.to_vec()).unwrap();
        assert!(span("/a", b"").holds("/a") && !span("/a", b"").holds("/a/b"));
        let below = span("/a/", b"/a0");
        assert!(below.holds("/a/x") && !below.holds("/a") && !below.holds("/b"));
        assert!(span("/a", OPEN_END).holds("/z") && !span("/b", OPEN_END).holds("/a"));
        assert!(span("\0", OPEN_END).holds("anything"));
        assert!(Span::parse(Vec::new(), Vec::new()).is_err());
        assert!(Span::parse(vec![0xff], Vec::new()).is_err());
    }
}
