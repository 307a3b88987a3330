//! Records: what a frame's payload says. Lengths and numbers are little-endian; text is UTF-8.

use std::sync::Arc;

use bytes::Bytes;

use crate::codec::{Codec, CodecError};
use crate::{Entry, Event, Revision};

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// One write as the log tells it; the revisions follow from its place.
#[derive(Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Put {
        key: &'a str,
        value: &'a [u8],
        expires_at_ms: u64,
    },
    Delete {
        key: &'a str,
    },
}

/// Why a record cannot be read, though its checksum holds.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The payload is not what this version writes.
    #[error("it has an unknown format")]
    Malformed,
    #[error("the value of {key}: {source}")]
    Codec { key: String, source: CodecError },
}

/// Appends one transaction. `values` are those of its puts, as they are to lie in the file.
pub fn write_transaction(buffer: &mut Vec<u8>, events: &[Event], values: &[Bytes]) {
    let mut values = values.iter();
    write_u32(buffer, events.len());
    for event in events {
        match &event.current {
            Some(entry) => {
                buffer.push(PUT);
                write_bytes(buffer, entry.key.as_bytes());
                buffer.extend_from_slice(&entry.expires_at_ms.to_le_bytes());
                write_bytes(buffer, values.next().unwrap_or(&entry.value));
            }
            None => {
                buffer.push(DELETE);
                write_bytes(buffer, event.key.as_bytes());
            }
        }
    }
}

/// Appends one entry of a checkpoint.
pub fn write_entry(buffer: &mut Vec<u8>, entry: &Entry, codec: &dyn Codec) -> Result<(), CodecError> {
    let value = codec.to_disk(&entry.key, &entry.value)?;
    write_bytes(buffer, entry.key.as_bytes());
    buffer.extend_from_slice(&entry.create_revision.to_le_bytes());
    buffer.extend_from_slice(&entry.mod_revision.to_le_bytes());
    buffer.extend_from_slice(&entry.expires_at_ms.to_le_bytes());
    write_bytes(buffer, &value);
    Ok(())
}

/// A value as it is in memory.
pub fn decode(codec: &dyn Codec, key: &str, stored: &[u8]) -> Result<Bytes, RecordError> {
    let decoded = codec.from_disk(key, &Bytes::copy_from_slice(stored));
    decoded.map_err(|source| RecordError::Codec {
        key: key.to_owned(),
        source,
    })
}

/// Reads what the functions above wrote.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(payload: &'a [u8]) -> Self {
        Reader { rest: payload }
    }

    pub fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn transaction(&mut self) -> Result<Vec<Change<'a>>, RecordError> {
        let count = self.u32()?;
        (0..count).map(|_| self.change()).collect()
    }

    /// An entry of a checkpoint. `known` may supply it when it is in memory already.
    pub fn entry(
        &mut self,
        codec: &dyn Codec,
        known: impl FnOnce(&str, Revision) -> Option<Arc<Entry>>,
    ) -> Result<Arc<Entry>, RecordError> {
        let key = self.text()?;
        let create_revision = self.u64()?;
        let mod_revision = self.u64()?;
        let expires_at_ms = self.u64()?;
        let value = self.bytes()?;
        if let Some(known) = known(key, mod_revision) {
            return Ok(known);
        }
        Ok(Arc::new(Entry {
            key: key.into(),
            value: decode(codec, key, value)?,
            create_revision,
            mod_revision,
            expires_at_ms,
        }))
    }

    fn change(&mut self) -> Result<Change<'a>, RecordError> {
        let tag = self.take(1)?[0];
        let key = self.text()?;
        match tag {
            PUT => {
                let expires_at_ms = self.u64()?;
                Ok(Change::Put {
                    key,
                    value: self.bytes()?,
                    expires_at_ms,
                })
            }
            DELETE => Ok(Change::Delete { key }),
            _ => Err(RecordError::Malformed),
        }
    }

    fn text(&mut self) -> Result<&'a str, RecordError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| RecordError::Malformed)
    }

    fn bytes(&mut self) -> Result<&'a [u8], RecordError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub fn u32(&mut self) -> Result<u32, RecordError> {
        let bytes = self.take(4)?.try_into().map_err(|_| RecordError::Malformed)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, RecordError> {
        let bytes = self.take(8)?.try_into().map_err(|_| RecordError::Malformed)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(RecordError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn write_bytes(buffer: &mut Vec<u8>, bytes: &[u8]) {
    write_u32(buffer, bytes.len());
    buffer.extend_from_slice(bytes);
}

/// Transactions are bounded far below 4 GiB before they come here.
fn write_u32(buffer: &mut Vec<u8>, number: usize) {
    buffer.extend_from_slice(&(number as u32).to_le_bytes());
}
