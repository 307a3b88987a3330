//! Watches of the embedded engine: from the ring in memory, and from disk while they are further behind than that.

use std::sync::Arc;

use async_trait::async_trait;

use super::archive::{Archive, Walk};
use crate::shared::{Cursor, Missing};
use crate::{EventBatch, EventStream, Revision, StoreError};

pub(crate) struct Watch {
    archive: Arc<Archive>,
    after: Revision,
    source: Source,
}

enum Source {
    Ring(Cursor),
    /// `None` until the place is found.
    Disk(Option<Walk>),
}

impl Watch {
    pub fn new(archive: Arc<Archive>, after: Revision) -> Result<Self, StoreError> {
        archive.check_floor(after)?;
        let source = match archive.shared.cursor(after) {
            Ok(cursor) => Source::Ring(cursor),
            Err(Missing::Older { .. }) => Source::Disk(None),
            Err(missing @ Missing::Future { .. }) => return Err(missing.into_error(after)),
        };
        Ok(Watch { archive, after, source })
    }

    async fn read_disk(&mut self) -> Result<EventBatch, StoreError> {
        let Source::Disk(walk) = &mut self.source else {
            return Ok(EventBatch::default());
        };
        let _turn = self.archive.turn().await;
        let (archive, after, walk) = (self.archive.clone(), self.after, walk.take());
        // If this future is dropped, the walk is lost and found again from `after`.
        let (batch, walk) = blocking(move || {
            let mut walk = walk.map_or_else(|| archive.walk_to(after), Ok)?;
            let batch = archive.next(&mut walk)?;
            Ok((batch, walk))
        })
        .await?;
        self.source = Source::Disk(Some(walk));
        Ok(batch)
    }
}

#[async_trait]
impl EventStream for Watch {
    async fn next(&mut self) -> Result<EventBatch, StoreError> {
        loop {
            let batch = match &mut self.source {
                Source::Ring(cursor) => match cursor.advance().await? {
                    Ok(batch) => batch,
                    Err(_) => {
                        self.source = Source::Disk(None);
                        continue;
                    }
                },
                Source::Disk(_) => {
                    self.archive.shared.check_open()?;
                    if let Ok(cursor) = self.archive.shared.cursor(self.after) {
                        self.source = Source::Ring(cursor);
                        continue;
                    }
                    self.read_disk().await?
                }
            };
            self.after = batch.complete_to;
            return Ok(batch);
        }
    }
}

/// Runs what may wait for the disk where it holds up nobody.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::Unavailable(format!("reading the log failed: {error}"))),
    }
}
