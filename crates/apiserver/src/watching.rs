//! A watch as the body of an answer: events in the encoding and framing that the client asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use ::metrics::{Histogram, Series};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use registry::watch::Transition;
use registry::{WatchEvent, Watcher};

use crate::body::{Body, BoxError};
use crate::respond::{FrameEncoder, LENGTH_BYTES};

/// Frames that are ready together are sent in chunks of about this size.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a watcher is told, encoded for one client.
pub struct Frames {
    watcher: Watcher,
    encoder: FrameEncoder,
    pending: VecDeque<WatchEvent>,
    /// Counts what is sent, by its bytes.
    sent: Arc<Series<Histogram>>,
}

/// Sends what a watcher is told for as long as it goes on.
pub fn body(frames: Frames) -> Body {
    let chunks = stream::unfold(frames, |mut frames| async move {
        let chunk = frames.next_chunk().await?;
        Some((Ok::<_, BoxError>(Frame::data(chunk)), frames))
    });
    StreamBody::new(chunks).boxed_unsync()
}

impl Frames {
    pub fn new(watcher: Watcher, encoder: FrameEncoder, sent: Arc<Series<Histogram>>) -> Frames {
        Frames {
            watcher,
            encoder,
            pending: VecDeque::new(),
            sent,
        }
    }

    /// Whether events are text.
    pub fn is_text(&self) -> bool {
        self.encoder.is_text()
    }

    /// The next event by itself, without what tells events in a stream apart.
    pub async fn next_message(&mut self) -> Option<Bytes> {
        while self.pending.is_empty() {
            self.pending.extend(self.watcher.next().await?);
        }
        let frame = self.pop_frame()?;
        Some(match self.is_text() {
            true => frame,
            false => frame.slice(LENGTH_BYTES.min(frame.len())..),
        })
    }

    async fn next_chunk(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.take_pending() {
                return Some(chunk);
            }
            self.pending.extend(self.watcher.next().await?);
        }
    }

    /// As many frames as fit, encoded only now: what waits for a slow client is not yet encoded for it.
    fn take_pending(&mut self) -> Option<Bytes> {
        let first = self.pop_frame()?;
        if self.pending.is_empty() {
            return Some(first);
        }
        let mut chunk = Vec::with_capacity(first.len() * 2);
        chunk.extend_from_slice(&first);
        while chunk.len() < CHUNK_BYTES
            && let Some(frame) = self.pop_frame()
        {
            chunk.extend_from_slice(&frame);
        }
        Some(chunk.into())
    }

    fn pop_frame(&mut self) -> Option<Bytes> {
        let encoder = &self.encoder;
        let frame = match self.pending.pop_front()? {
            WatchEvent::Initial(entry) => encoder.object(Transition::Added, &entry.value, entry.mod_revision),
            WatchEvent::Change(transition, change) => encoder.change(transition, &change),
            WatchEvent::Bookmark { revision, ends_initial } => encoder.bookmark(revision, ends_initial),
            WatchEvent::Error(error) => encoder.error(&error),
        };
        self.encoder.omit_definitions();
        self.sent.value.observe(frame.len() as f64);
        Some(frame)
    }
}
