//! Applying the log to a state: once at start, and again whenever somebody asks for the distant past.

use std::sync::Arc;

use bytes::Bytes;

use super::frame::Header;
use super::record::{Change, Malformed, Reader};
use crate::history::Commit;
use crate::state::State;
use crate::{Entry, Event, Revision};

/// Applies those transactions of a frame that are newer than `state` and not newer than `limit`, handing each to `sink`.
/// Returns the revision of the frame's last transaction. Entries that `known` has are shared with it.
pub fn apply(
    state: &mut State,
    header: &Header,
    payload: &[u8],
    limit: Revision,
    known: &State,
    mut sink: impl FnMut(Commit),
) -> Result<Revision, Malformed> {
    let mut reader = Reader::new(payload);
    let mut next = header.first_revision;
    while !reader.is_at_end() {
        let revision = next;
        next += 1;
        let changes = reader.transaction()?;
        if revision <= state.revision || revision > limit {
            continue;
        }
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            events.push(change_state(state, change, revision, known).ok_or(Malformed)?);
        }
        state.revision = revision;
        sink(Commit {
            revision,
            at_ms: header.at_ms,
            events,
        });
    }
    Ok(next - 1)
}

/// `None` when the change cannot have happened: the log never has the deletion of a key that is not there.
fn change_state(state: &mut State, change: Change<'_>, revision: Revision, known: &State) -> Option<Event> {
    match change {
        Change::Delete { key } => state.remove(key, revision),
        Change::Put {
            key,
            value,
            expires_at_ms,
        } => {
            if let Some(entry) = known.at(key, revision) {
                return Some(state.restore(entry));
            }
            let before = state.entries.get(key);
            let entry = Entry {
                key: before.map_or_else(|| key.into(), |before| before.key.clone()),
                value: Bytes::copy_from_slice(value),
                create_revision: before.map_or(revision, |before| before.create_revision),
                mod_revision: revision,
                expires_at_ms,
            };
            Some(state.restore(Arc::new(entry)))
        }
    }
}
