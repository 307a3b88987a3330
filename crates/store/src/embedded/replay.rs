//! Applying the log to a state: once at start, and again whenever somebody asks for the distant past.

use std::sync::Arc;

use super::frame::Header;
use super::record::{self, Change, Reader, RecordError};
use crate::codec::Codec;
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
    codec: &dyn Codec,
    mut sink: impl FnMut(Commit),
) -> Result<Revision, RecordError> {
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
            events.push(change_state(state, change, revision, known, codec)?);
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

/// A change that cannot have happened is malformed: the log never has the deletion of a key that is not there.
fn change_state(
    state: &mut State,
    change: Change<'_>,
    revision: Revision,
    known: &State,
    codec: &dyn Codec,
) -> Result<Event, RecordError> {
    match change {
        Change::Delete { key } => state.remove(key, revision).ok_or(RecordError::Malformed),
        Change::Put {
            key,
            value,
            expires_at_ms,
        } => {
            if let Some(entry) = known.at(key, revision) {
                return Ok(state.restore(entry));
            }
            let value = record::decode(codec, key, value)?;
            let before = state.entries.get(key);
            let entry = Entry {
                key: before.map_or_else(|| key.into(), |before| before.key.clone()),
                value,
                create_revision: before.map_or(revision, |before| before.create_revision),
                mod_revision: revision,
                expires_at_ms,
            };
            Ok(state.restore(Arc::new(entry)))
        }
    }
}
