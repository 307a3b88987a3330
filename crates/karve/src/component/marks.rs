//! A component in a process of its own tells the API server its marks, so that `karve trace` finds all in one place.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use http::Request;
use serde_json::json;
use trace::{Cursor, Mark};

/// How late a mark may arrive.
const INTERVAL: Duration = Duration::from_millis(500);
/// Marks told at once, fewer than the server takes.
const BATCH: usize = 500;
/// An API server that is not Karve's, or does not let us, is not asked more often than this.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);

/// Stops telling when dropped.
pub struct Telling(tokio::task::JoinHandle<()>);

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn tell(client: &Client) -> Telling {
    Telling(tokio::spawn(run(client.clone())))
}

async fn run(client: Client) {
    let mut told = Cursor::default();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let (marks, next) = trace::since(told, BATCH);
        if marks.is_empty() {
            continue;
        }
        match post(&client, &marks).await {
            Ok(()) => told = next,
            Err(error) => {
                tracing::debug!(%error, "Failed to report trace marks to the API server");
                tokio::time::sleep(AFTER_REFUSAL).await;
            }
        }
    }
}

async fn post(client: &Client, marks: &[Mark]) -> anyhow::Result<()> {
    let body = Bytes::from(serde_json::to_vec(&json!({ "marks": marks }))?);
    let request = Request::post("/debug/karve/marks").header("content-type", "application/json");
    client.fetch(request.body(body)?).await?;
    Ok(())
}
