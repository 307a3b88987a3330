//! Keeping a cache current: list, then watch, resume, and list again only when the revision is gone.

use std::sync::Arc;
use std::time::Duration;

use api::ObjectMeta;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    Api, Backoff, Cache, Error, Key, List, ListOptions, Object, Result, WatchEvent, WatchOptions, WatchStream,
};

/// The pauses between attempts to list or watch while the server does not answer.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
/// A watch that held this long was a good one: the next failure starts with the shortest pause again.
const GOOD_WATCH: Duration = Duration::from_secs(5);
/// A watch is renewed after five to ten minutes, so that connections spread over servers.
const WATCH_SECONDS: u32 = 300;
/// Objects per page when the state has to be read consistently; otherwise all come at once.
const PAGE: u32 = 500;

/// Which objects of a resource a reflector follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selection {
    /// Empty for all namespaces.
    pub namespace: String,
    pub label_selector: String,
    pub field_selector: String,
}

/// Follows a resource into a cache.
pub struct Reflector<T> {
    api: Api,
    selection: Selection,
    cache: Arc<Cache<T>>,
    /// The last revision seen; empty before the first list and after it expired.
    revision: String,
    expired: bool,
}

/// What every object has, a bookmark included.
#[derive(Deserialize)]
struct Metadata {
    metadata: ObjectMeta,
}

impl<T: Object> Reflector<T> {
    pub fn new(api: Api, selection: Selection, cache: Arc<Cache<T>>) -> Reflector<T> {
        Reflector {
            api: api.in_namespace(selection.namespace.clone()),
            selection,
            cache,
            revision: String::new(),
            expired: false,
        }
    }

    /// Follows the resource until the future is dropped.
    pub async fn run(mut self) {
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            match self.round().await {
                Ok(()) if begun.elapsed() >= GOOD_WATCH => failures = 0,
                // The server ended the watch early, as it does when it shuts down: resume, but do not spin.
                Ok(()) => {}
                Err(error) if error.is_expired() => {
                    tracing::debug!(resource = %self.api.resource().qualified(), %error, "listing again");
                    self.revision.clear();
                    self.expired = true;
                }
                Err(error) => {
                    if failures > 0 {
                        tracing::warn!(resource = %self.api.resource().qualified(), %error, "could not list or watch");
                    }
                    if begun.elapsed() >= GOOD_WATCH {
                        failures = 0;
                    }
                }
            }
            if begun.elapsed() < GOOD_WATCH {
                tokio::time::sleep(RETRY.wait(failures)).await;
                failures += 1;
            }
        }
    }

    /// Lists if need be, then watches until the stream ends.
    async fn round(&mut self) -> Result<()> {
        if self.revision.is_empty() {
            self.list().await?;
        }
        let seconds = WATCH_SECONDS + (f64::from(WATCH_SECONDS) * clock::fraction()) as u32;
        let options = WatchOptions {
            label_selector: self.selection.label_selector.clone(),
            field_selector: self.selection.field_selector.clone(),
            resource_version: self.revision.clone(),
            allow_bookmarks: true,
            timeout_seconds: seconds,
        };
        let mut stream = self.api.watch(&options).await?;
        self.follow(&mut stream).await
    }

    async fn list(&mut self) -> Result<()> {
        // Any state will do to begin with. After an expired revision only the latest will: a lagging server could
        // otherwise hand out the same expired revision again.
        let mut options = ListOptions {
            label_selector: self.selection.label_selector.clone(),
            field_selector: self.selection.field_selector.clone(),
            resource_version: if self.expired { "" } else { "0" }.to_owned(),
            limit: if self.expired { PAGE } else { 0 },
            continue_token: String::new(),
        };
        let mut objects = Vec::new();
        loop {
            let page = self.api.list_bytes(&options).await?;
            let decode = |source| Error::Decode {
                request: format!("list {}", self.api.resource().qualified()),
                source,
            };
            let list: List<&RawValue> = serde_json::from_slice(&page).map_err(decode)?;
            objects.extend(
                list.items
                    .iter()
                    .filter_map(|item| self.decode(&page.slice_ref(item.get().as_bytes()))),
            );
            if list.metadata.continue_token.is_empty() {
                self.revision = list.metadata.resource_version;
                break;
            }
            options.continue_token = list.metadata.continue_token;
            options.resource_version.clear();
        }
        self.cache.replace(objects, &self.revision);
        self.expired = false;
        Ok(())
    }

    async fn follow(&mut self, stream: &mut WatchStream) -> Result<()> {
        while let Some(event) = stream.next().await {
            let revision = match event? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => match self.decode(&object) {
                    Some(object) => {
                        let revision = object.resource_version().to_owned();
                        self.cache.insert(object);
                        revision
                    }
                    None => metadata_of(&object).resource_version,
                },
                // Of what is gone only the name matters, whether or not the rest can be read.
                WatchEvent::Deleted(object) => {
                    let metadata = metadata_of(&object);
                    let key = Key::new(&metadata.namespace, &metadata.name);
                    self.cache.remove(key.as_str(), &metadata.resource_version);
                    metadata.resource_version
                }
                WatchEvent::Bookmark(object) => metadata_of(&object).resource_version,
            };
            if !revision.is_empty() {
                self.cache.reached(&revision);
                self.revision = revision;
            }
        }
        Ok(())
    }

    /// An object that does not fit the projection is left out: one odd object must not hide all others.
    fn decode(&self, object: &Bytes) -> Option<T> {
        match T::decode(object) {
            Ok(decoded) => Some(decoded),
            Err(error) => {
                let resource = self.api.resource().qualified();
                tracing::warn!(%resource, %error, "an object cannot be read and is left out");
                None
            }
        }
    }
}

fn metadata_of(object: &[u8]) -> ObjectMeta {
    serde_json::from_slice::<Metadata>(object)
        .map(|object| object.metadata)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, THINGS, Thing};

    fn start(fake: &Fake) -> (Arc<Cache<Thing>>, tokio::task::JoinHandle<()>) {
        let cache = Arc::new(Cache::default());
        let api = fake.client().resource(&THINGS);
        let reflector = Reflector::new(api, Selection::default(), cache.clone());
        (cache, tokio::spawn(reflector.run()))
    }

    #[tokio::test]
    async fn the_cache_follows_creations_changes_and_deletions() {
        let fake = Fake::default();
        fake.put("a", "one", "x");
        let (cache, task) = start(&fake);
        cache.synced().await;
        assert_eq!(cache.get("a", "one").unwrap().color, "x");

        fake.put("a", "two", "y");
        fake.put("a", "one", "z");
        fake.until(|| cache.len() == 2 && cache.get("a", "one").unwrap().color == "z")
            .await;
        fake.delete("a", "one");
        fake.until(|| cache.len() == 1).await;
        assert_eq!(fake.lists(), 1);
        task.abort();
    }

    #[tokio::test]
    async fn a_broken_watch_is_resumed_without_listing() {
        let fake = Fake::default();
        fake.put("a", "one", "x");
        let (cache, task) = start(&fake);
        cache.synced().await;
        fake.break_watches();
        fake.put("a", "two", "y");
        fake.until(|| cache.len() == 2).await;
        assert_eq!(fake.lists(), 1);
        task.abort();
    }

    #[tokio::test]
    async fn a_compacted_revision_is_listed_again() {
        let fake = Fake::default();
        fake.put("a", "one", "x");
        let (cache, task) = start(&fake);
        cache.synced().await;
        fake.put("a", "gone", "y");
        fake.delete("a", "gone");
        fake.put("a", "two", "y");
        fake.compact();
        fake.break_watches();
        fake.until(|| cache.get("a", "two").is_some() && cache.get("a", "gone").is_none())
            .await;
        fake.put("a", "three", "y");
        fake.until(|| cache.len() == 3).await;
        task.abort();
    }
}
