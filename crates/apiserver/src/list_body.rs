//! A whole collection as the body of an answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use registry::Filter;
use store::Snapshot;

use crate::body::BoxError;

/// Streamed lists are sent in chunks of about this size, so that a large list costs little memory.
const CHUNK_BYTES: usize = 128 * 1024;

/// A JSON list assembled from stored bytes while it is sent.
pub struct ListBody {
    snapshot: Arc<dyn Snapshot>,
    filter: Filter,
    pending: VecDeque<Bytes>,
    next_key: Option<String>,
    fetched: usize,
    returned: usize,
}

impl ListBody {
    pub fn new(snapshot: Arc<dyn Snapshot>, filter: Filter) -> ListBody {
        let resource = filter.served.resource;
        let head = format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{}\"}},\"items\":[",
            resource.kind,
            resource.api_version(),
            snapshot.revision(),
        );
        let next_key = Some(filter.key.clone());
        ListBody {
            snapshot,
            filter,
            pending: VecDeque::from([head.into()]),
            next_key,
            fetched: 0,
            returned: 0,
        }
    }

    fn fill(&mut self) {
        let Some(from) = self.next_key.take() else { return };
        let mut chunk = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        for entry in self.snapshot.range(&self.filter.key, &from) {
            if chunk.len() >= CHUNK_BYTES {
                self.next_key = Some(entry.key.to_string());
                break;
            }
            self.fetched += 1;
            if !self.filter.covers_key(&entry.key) || !(self.filter.is_trivial() || self.filter.matches(&entry.value)) {
                continue;
            }
            if self.returned > 0 {
                chunk.push(b',');
            }
            self.returned += 1;
            let write = match self.filter.served.custom {
                Some(_) => schema::write_with_resource_version,
                None => schema::write_list_item,
            };
            write(&mut chunk, &entry.value, entry.mod_revision);
        }
        if self.next_key.is_none() {
            chunk.extend_from_slice(b"]}");
        }
        self.pending.push_back(chunk.into());
    }
}

/// Also a client that goes away early has had a list.
impl Drop for ListBody {
    fn drop(&mut self) {
        self.filter.served.figures().listed(self.fetched, self.returned);
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.pending.is_empty() {
            this.fill();
        }
        Poll::Ready(this.pending.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }
}
