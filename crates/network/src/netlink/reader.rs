//! Reading netlink messages. What the kernel sends is trusted to be well meant, not to be well formed: a length that
//! does not fit ends the reading.

use super::{HEADER, TYPE_MASK, align};

/// One message as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    pub kind: u16,
    pub flags: u16,
    pub sequence: u32,
    /// The port of the socket that asked for it, or for the change that it tells of; 0 for the kernel's own.
    pub sender: u32,
    /// Everything after the netlink header.
    pub body: &'a [u8],
}

/// The messages in one datagram.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        if length < HEADER || length > bytes.len() {
            return None;
        }
        let message = Message {
            kind: u16_at(bytes, 4)?,
            flags: u16_at(bytes, 6)?,
            sequence: u32_at(bytes, 8)?,
            sender: u32_at(bytes, 12)?,
            body: &bytes[HEADER..length],
        };
        bytes = &bytes[align(length).min(bytes.len())..];
        Some(message)
    })
}

/// A run of attributes.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    pub fn new(bytes: &'a [u8]) -> Attributes<'a> {
        Attributes(bytes)
    }

    /// The attributes of a message that follow its fixed header of `header` bytes.
    pub fn after(message: &Message<'a>, header: usize) -> Attributes<'a> {
        Attributes(message.body.get(header..).unwrap_or(&[]))
    }

    pub fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut bytes = self.0;
        std::iter::from_fn(move || {
            let length = usize::from(u16_at(bytes, 0)?);
            let kind = u16_at(bytes, 2)? & TYPE_MASK;
            if length < 4 || length > bytes.len() {
                return None;
            }
            let value = &bytes[4..length];
            bytes = &bytes[align(length).min(bytes.len())..];
            Some((kind, value))
        })
    }

    pub fn find(&self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(found, _)| *found == kind).map(|(_, value)| value)
    }

    pub fn nest(&self, kind: u16) -> Option<Attributes<'a>> {
        self.find(kind).map(Attributes)
    }

    pub fn text(&self, kind: u16) -> Option<&'a str> {
        let value = self.find(kind)?;
        let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
        std::str::from_utf8(&value[..end]).ok()
    }

    pub fn u32(&self, kind: u16) -> Option<u32> {
        u32_at(self.find(kind)?, 0)
    }

    pub fn be32(&self, kind: u16) -> Option<u32> {
        self.u32(kind).map(u32::from_be)
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
