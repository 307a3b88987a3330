//! Records: what a frame's payload says. Lengths and numbers are little-endian; text is UTF-8.

use std::sync::Arc;

use bytes::Bytes;

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

/// The payload is not what this version writes, though its checksum holds.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// Appends one transaction.
pub fn write_transaction(buffer: &mut Vec<u8>, events: &[Event]) {
    write_u32(buffer, events.len());
    for event in events {
        match &event.current {
            Some(entry) => {
                buffer.push(PUT);
                write_bytes(buffer, entry.key.as_bytes());
                buffer.extend_from_slice(&entry.expires_at_ms.to_le_bytes());
                write_bytes(buffer, &entry.value);
            }
            None => {
                buffer.push(DELETE);
                write_bytes(buffer, event.key.as_bytes());
            }
        }
    }
}

/// Appends one entry of a checkpoint.
pub fn write_entry(buffer: &mut Vec<u8>, entry: &Entry) {
    write_bytes(buffer, entry.key.as_bytes());
    buffer.extend_from_slice(&entry.create_revision.to_le_bytes());
    buffer.extend_from_slice(&entry.mod_revision.to_le_bytes());
    buffer.extend_from_slice(&entry.expires_at_ms.to_le_bytes());
    write_bytes(buffer, &entry.value);
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

    pub fn transaction(&mut self) -> Result<Vec<Change<'a>>, Malformed> {
        let count = self.u32()?;
        (0..count).map(|_| self.change()).collect()
    }

    /// An entry of a checkpoint. `known` may supply it when it is in memory already.
    pub fn entry(&mut self, known: impl FnOnce(&str, Revision) -> Option<Arc<Entry>>) -> Result<Arc<Entry>, Malformed> {
        let key = self.text()?;
        let create_revision = self.u64()?;
        let mod_revision = self.u64()?;
        let expires_at_ms = self.u64()?;
        let value = self.bytes()?;
        Ok(known(key, mod_revision).unwrap_or_else(|| {
            let value = Bytes::copy_from_slice(value);
            Arc::new(Entry {
                key: key.into(),
                value,
                create_revision,
                mod_revision,
                expires_at_ms,
            })
        }))
    }

    fn change(&mut self) -> Result<Change<'a>, Malformed> {
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
            _ => Err(Malformed),
        }
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?.try_into().map_err(|_| Malformed)?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?.try_into().map_err(|_| Malformed)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
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
