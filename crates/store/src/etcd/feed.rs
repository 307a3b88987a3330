//! The feed: one watch of etcd keeps the state in memory up to date, for as long as the store is open.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tonic::Status;

use super::client::{Client, LoadError, Watching};
use super::proto::event::EventType;
use super::proto::{self, WatchResponse};
use super::wire;
use crate::expiry::now_ms;
use crate::history::Commit;
use crate::shared::Shared;
use crate::state::State;
use crate::{Event, Revision};

/// Pauses between attempts to reach etcd.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(crate) struct Feed {
    pub client: Client,
    pub shared: Arc<Shared>,
    pub progress: Arc<Progress>,
}

/// How the store's readers ask the feed to find out how far it is.
#[derive(Default)]
pub(crate) struct Progress {
    pub wanted: Notify,
    /// Whether this member's answers can be believed. Older ones may send them ahead of events.
    pub reliable: AtomicBool,
}

/// Why a watch has ended.
enum End {
    Lost(String),
    /// What comes next is no longer in etcd's history.
    Compacted,
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        End::Lost(wire::read_error(&status).to_string())
    }
}

impl Feed {
    /// Follows etcd until the store is closed.
    pub async fn run(self) {
        tokio::select! {
            () = self.follow() => (),
            () = self.shared.ended() => (),
        }
    }

    async fn follow(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.shared.state().revision;
            let member = self.client.members.current();
            let end = tokio::select! {
                end = self.session(member) => end,
                () = self.client.members.left(member) => {
                    // Others found out that it no longer answers. The next one is there.
                    pause = FIRST_PAUSE;
                    continue;
                }
            };
            match end {
                End::Compacted => self.reload().await,
                End::Lost(why) => tracing::warn!(error = why, "The watch on etcd was lost; reconnecting"),
            }
            let moved = self.shared.state().revision > before;
            pause = if moved {
                FIRST_PAUSE
            } else {
                (pause * 2).min(LONGEST_PAUSE)
            };
            sleep(pause).await;
        }
    }

    /// One watch from its creation to its end.
    async fn session(&self, member: usize) -> End {
        // Where the version is not told, nothing depends on it.
        let version = self.client.version(member).await.unwrap_or_default();
        self.progress
            .reliable
            .store(progress_is_reliable(&version), Ordering::Relaxed);
        match self.client.watch(member, self.shared.state().revision + 1, false).await {
            Ok(watching) => self.read(watching).await,
            Err(status) => {
                self.client.members.leave(member);
                status.into()
            }
        }
    }

    async fn read(&self, mut watching: Watching) -> End {
        loop {
            let applied = tokio::select! {
                response = watching.responses.message() => match response {
                    Ok(Some(response)) => self.apply(response),
                    Ok(None) => Err(End::Lost("etcd ended the watch".into())),
                    Err(status) => Err(status.into()),
                },
                () = self.progress.wanted.notified() => {
                    watching.ask_for_progress();
                    Ok(())
                }
            };
            if let Err(end) = applied {
                return end;
            }
        }
    }

    fn apply(&self, response: WatchResponse) -> Result<(), End> {
        if response.canceled {
            return Err(match response.compact_revision {
                0 => End::Lost(response.cancel_reason),
                _ => End::Compacted,
            });
        }
        if response.created {
            return Ok(());
        }
        let mut state = State::clone(&self.shared.state());
        let now_ms = now_ms();
        let mut commits: Vec<Commit> = Vec::new();
        for event in response.events {
            let Some(event) = self.change(&mut state, event) else {
                continue;
            };
            match commits.last_mut() {
                Some(commit) if commit.revision == event.revision => commit.events.push(event),
                _ => commits.push(Commit {
                    revision: event.revision,
                    at_ms: now_ms,
                    events: vec![event],
                }),
            }
        }
        // Without events it is a notification of progress, and its header says how far.
        if commits.is_empty() && self.progress.reliable.load(Ordering::Relaxed) {
            state.revision = state.revision.max(wire::header_revision(response.header).unwrap_or(0));
        }
        if let Some(last) = commits.last() {
            state.revision = last.revision;
        }
        self.shared.publish(state, commits, now_ms);
        Ok(())
    }

    fn change(&self, state: &mut State, event: proto::Event) -> Option<Event> {
        let kind = event.r#type();
        let kv = event.kv?;
        let revision = kv.mod_revision as Revision;
        if revision <= state.revision {
            return None;
        }
        if kind == EventType::Delete {
            return state.remove(std::str::from_utf8(&kv.key).ok()?, revision);
        }
        match wire::entry_or_raw(kv, &*self.client.codec) {
            Ok(entry) => Some(state.restore(entry)),
            Err(error) => {
                tracing::error!(%error, revision, "Skipped a change from etcd that cannot be read; the API server does not show it");
                None
            }
        }
    }

    /// Starts again from the present; readers of the time between are told that it is gone.
    async fn reload(&self) {
        match self
            .client
            .load(0, &self.shared.state())
            .await
            .map_err(LoadError::into_error)
        {
            Ok(state) => {
                tracing::warn!(
                    revision = state.revision,
                    "etcd compacted changes before they were read; reloaded all keys"
                );
                self.shared.reset(state);
            }
            Err(error) => tracing::warn!(%error, "Failed to read all keys from etcd; retrying"),
        }
    }
}

/// From these versions on a notification of progress is never ahead of the events before it.
fn progress_is_reliable(version: &str) -> bool {
    let mut parts = version
        .split(['.', '-', '+'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor, patch) = (
        parts.next().unwrap_or(0),
        parts.next().unwrap_or(0),
        parts.next().unwrap_or(0),
    );
    match (major, minor) {
        (3, 4) => patch >= 31,
        (3, 5) => patch >= 13,
        _ => (major, minor) >= (3, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_believed_from_the_versions_on_that_fixed_it() {
        for version in ["3.4.31", "3.5.13", "3.6.0", "3.6.0-rc.1", "4.0.0"] {
            assert!(progress_is_reliable(version), "{version}");
        }
        for version in ["3.3.27", "3.4.23", "3.4.30", "3.5.0", "3.5.12", "", "x"] {
            assert!(!progress_is_reliable(version), "{version}");
        }
    }
}
