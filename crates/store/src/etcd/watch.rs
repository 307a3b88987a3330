//! Watches of the etcd engine: from the ring in memory, and from etcd itself while they are further behind than that.

use std::sync::Arc;

use async_trait::async_trait;

use super::client::{Client, Watching};
use super::proto::event::EventType;
use super::proto::{self, WatchResponse};
use super::wire;
use crate::shared::{Cursor, Missing, Shared};
use crate::{Event, EventBatch, EventStream, Revision, StoreError};

pub(crate) struct Watch {
    shared: Arc<Shared>,
    client: Client,
    after: Revision,
    source: Source,
}

enum Source {
    Ring(Cursor),
    /// `None` until the watch is open.
    Etcd(Option<Box<Watching>>),
}

impl Watch {
    pub async fn open(shared: Arc<Shared>, client: Client, after: Revision) -> Result<Self, StoreError> {
        let source = match shared.cursor(after) {
            Ok(cursor) => Source::Ring(cursor),
            Err(missing @ Missing::Future { .. }) => return Err(missing.into_error(after)),
            Err(Missing::Older { .. }) => Source::Etcd(None),
        };
        let mut watch = Watch {
            shared,
            client,
            after,
            source,
        };
        if let Source::Etcd(None) = &watch.source {
            watch.source = Source::Etcd(Some(watch.open_etcd().await?));
        }
        Ok(watch)
    }

    async fn open_etcd(&self) -> Result<Box<Watching>, StoreError> {
        let opened = async {
            // A watch alone would not tell that the deletion of a key is missing from history.
            self.client.check_history(self.after).await?;
            self.client
                .watch(self.client.members.current(), self.after + 1, true)
                .await
                .map(Box::new)
        };
        opened.await.map_err(|status| match wire::is_compacted(&status) {
            true => self.compacted(0),
            false => wire::read_error(&status),
        })
    }

    async fn read_etcd(&mut self, mut watching: Box<Watching>) -> Result<EventBatch, StoreError> {
        loop {
            let response = watching
                .responses
                .message()
                .await
                .map_err(|status| wire::read_error(&status))?;
            let response = response.ok_or_else(|| StoreError::Unavailable("etcd ended the watch".into()))?;
            if let Some(batch) = self.batch(response)? {
                self.source = Source::Etcd(Some(watching));
                return Ok(batch);
            }
        }
    }

    fn batch(&self, response: WatchResponse) -> Result<Option<EventBatch>, StoreError> {
        if response.canceled {
            return Err(match response.compact_revision {
                0 => StoreError::Unavailable(format!("etcd: {}", response.cancel_reason)),
                oldest => self.compacted(oldest as Revision),
            });
        }
        let events = response
            .events
            .into_iter()
            .map(|event| self.event(event))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(events
            .last()
            .map(|last| last.revision)
            .map(|complete_to| EventBatch { events, complete_to }))
    }

    fn event(&self, event: proto::Event) -> Result<Event, StoreError> {
        let kind = event.r#type();
        let kv = event
            .kv
            .ok_or_else(|| StoreError::Corrupt("etcd sent an event without a key".into()))?;
        let previous = event
            .prev_kv
            .map(|kv| wire::entry(kv, &*self.client.codec))
            .transpose()?;
        let revision = kv.mod_revision as Revision;
        if kind == EventType::Delete {
            let key = String::from_utf8_lossy(&kv.key).into();
            return Ok(Event {
                revision,
                key,
                current: None,
                previous,
            });
        }
        let current = wire::entry(kv, &*self.client.codec)?;
        Ok(Event {
            revision,
            key: current.key.clone(),
            current: Some(current),
            previous,
        })
    }

    fn compacted(&self, oldest: Revision) -> StoreError {
        StoreError::Compacted {
            requested: self.after,
            oldest: oldest.max(self.after + 1),
        }
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
                        self.source = Source::Etcd(None);
                        continue;
                    }
                },
                Source::Etcd(watching) => {
                    let watching = watching.take();
                    self.shared.check_open()?;
                    if let Ok(cursor) = self.shared.cursor(self.after) {
                        self.source = Source::Ring(cursor);
                        continue;
                    }
                    // If this future is dropped, the watch is opened again from `after`.
                    let watching = match watching {
                        Some(watching) => watching,
                        None => self.open_etcd().await?,
                    };
                    self.read_etcd(watching).await?
                }
            };
            self.after = batch.complete_to;
            return Ok(batch);
        }
    }
}
