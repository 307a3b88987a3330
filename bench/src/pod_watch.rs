//! A watch of pods that goes on where it ended, as every client's does: servers end the streams of slow readers.

use anyhow::{Context, Result, ensure};

use crate::http2::{Lines, Pool};
use crate::objects::PodEvent;

pub struct PodWatch {
    pool: Pool,
    /// Without its revision.
    path: String,
    revision: String,
    lines: Lines,
    /// How often in a row it ended before anything came.
    fruitless: usize,
}

/// A server that ends so many streams at once will not serve one.
const RETRIES: usize = 10;

impl PodWatch {
    /// `path` is that of a collection, with a query.
    pub async fn open(pool: Pool, path: &str, revision: String) -> Result<Self> {
        let path = format!("{path}&watch=true&allowWatchBookmarks=true");
        let lines = pool.watch(&format!("{path}&resourceVersion={revision}")).await?;
        Ok(Self {
            pool,
            path,
            revision,
            lines,
            fruitless: 0,
        })
    }

    /// The next event that is not a bookmark.
    pub async fn next(&mut self) -> Result<PodEvent> {
        loop {
            let Some(line) = self.lines.next().await? else {
                ensure!(
                    self.fruitless < RETRIES,
                    "the watch of {} ends again and again",
                    self.path
                );
                self.fruitless += 1;
                let path = format!("{}&resourceVersion={}", self.path, self.revision);
                self.lines = self.pool.watch(&path).await?;
                continue;
            };
            self.fruitless = 0;
            let event: PodEvent = serde_json::from_slice(&line)
                .with_context(|| format!("the watch said {}", String::from_utf8_lossy(&line)))?;
            ensure!(
                event.kind != "ERROR",
                "the watch said {}",
                String::from_utf8_lossy(&line)
            );
            self.revision.clone_from(&event.object.metadata.resource_version);
            if event.kind != "BOOKMARK" {
                return Ok(event);
            }
        }
    }
}
