//! The wire format: tags, varints, lengths. Writing goes backwards, so that a message's length is known when its
//! header is written and everything is written once.

use super::ProtobufError;

pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const LENGTH_DELIMITED: u32 = 2;
const START_GROUP: u32 = 3;
const END_GROUP: u32 = 4;
const FIXED32: u32 = 5;

/// A buffer that grows towards its front.
pub(super) struct BackWriter {
    buffer: Vec<u8>,
    start: usize,
}

impl BackWriter {
    pub fn with_capacity(capacity: usize) -> Self {
        BackWriter {
            buffer: vec![0; capacity.max(64)],
            start: capacity.max(64),
        }
    }

    pub fn into_vec(mut self) -> Vec<u8> {
        self.buffer.drain(..self.start);
        self.buffer
    }

    /// The number of bytes written; take it before a message and pass it to [`BackWriter::close`].
    pub fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        if self.start < bytes.len() {
            self.grow(bytes.len());
        }
        self.start -= bytes.len();
        self.buffer[self.start..self.start + bytes.len()].copy_from_slice(bytes);
    }

    pub fn varint(&mut self, mut value: u64) {
        let mut encoded = [0u8; 10];
        let mut length = 0;
        loop {
            encoded[length] = (value & 0x7f) as u8;
            value >>= 7;
            length += 1;
            if value == 0 {
                break;
            }
            encoded[length - 1] |= 0x80;
        }
        self.bytes(&encoded[..length]);
    }

    pub fn tag(&mut self, tag: u32, wire_type: u32) {
        self.varint(u64::from(tag << 3 | wire_type));
    }

    pub fn varint_field(&mut self, tag: u32, value: u64) {
        self.varint(value);
        self.tag(tag, VARINT);
    }

    pub fn bytes_field(&mut self, tag: u32, bytes: &[u8]) {
        self.bytes(bytes);
        self.varint(bytes.len() as u64);
        self.tag(tag, LENGTH_DELIMITED);
    }

    /// Writes the header of the message that was begun when `len` was `before`.
    pub fn close(&mut self, tag: u32, before: usize) {
        let length = self.len() - before;
        self.varint(length as u64);
        self.tag(tag, LENGTH_DELIMITED);
    }

    fn grow(&mut self, needed: usize) {
        let used = self.len();
        let capacity = (self.buffer.len() * 2).max(used + needed);
        let mut larger = vec![0; capacity];
        larger[capacity - used..].copy_from_slice(&self.buffer[self.start..]);
        self.start = capacity - used;
        self.buffer = larger;
    }
}

/// A field of a message as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    /// What no message here has: fixed 32-bit numbers and groups.
    Other,
}

/// Reads the fields of one message.
pub(super) struct Fields<'a> {
    data: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Fields { data }
    }

    /// The next field's tag and content.
    pub fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtobufError> {
        if self.data.is_empty() {
            return Ok(None);
        }
        let header = self.varint()?;
        let tag = u32::try_from(header >> 3).map_err(|_| ProtobufError::Malformed("a tag is out of range"))?;
        if tag == 0 {
            return Err(ProtobufError::Malformed("a tag is zero"));
        }
        let wire = match (header & 7) as u32 {
            VARINT => Wire::Varint(self.varint()?),
            FIXED64 => {
                let bytes = self.take(8)?;
                Wire::Fixed64(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
            }
            LENGTH_DELIMITED => {
                let length = self.length()?;
                Wire::Bytes(self.take(length)?)
            }
            FIXED32 => {
                self.take(4)?;
                Wire::Other
            }
            START_GROUP => {
                self.skip_group()?;
                Wire::Other
            }
            END_GROUP => return Err(ProtobufError::Malformed("a group ends that never began")),
            _ => return Err(ProtobufError::Malformed("a wire type is unknown")),
        };
        Ok(Some((tag, wire)))
    }

    fn length(&mut self) -> Result<usize, ProtobufError> {
        usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)
    }

    pub fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0;
        for (index, &byte) in self.data.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.data = &self.data[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.data.len() < 10 {
            ProtobufError::Truncated
        } else {
            ProtobufError::Malformed("a number is longer than ten bytes")
        })
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        if self.data.len() < length {
            return Err(ProtobufError::Truncated);
        }
        let (taken, rest) = self.data.split_at(length);
        self.data = rest;
        Ok(taken)
    }

    fn skip_group(&mut self) -> Result<(), ProtobufError> {
        let mut depth = 1;
        while depth > 0 {
            match (self.varint()? & 7) as u32 {
                VARINT => drop(self.varint()?),
                FIXED64 => drop(self.take(8)?),
                LENGTH_DELIMITED => {
                    let length = self.length()?;
                    self.take(length)?;
                }
                START_GROUP => depth += 1,
                END_GROUP => depth -= 1,
                FIXED32 => drop(self.take(4)?),
                _ => return Err(ProtobufError::Malformed("a wire type is unknown")),
            }
        }
        Ok(())
    }
}
