//! Building netlink messages.

use super::{HEADER, NESTED, align};

/// One or more messages, ready to be sent. Every message gets the next sequence number, starting at 1, by which an
/// answer can be matched to it.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    sequence: u32,
}

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Appends a message of type `kind` whose body `build` writes: a fixed header first, then attributes.
    pub fn message(&mut self, kind: u16, flags: i32, build: impl FnOnce(&mut Writer)) {
        self.sequence += 1;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&self.sequence.to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
        debug_assert_eq!(self.bytes.len() - start, HEADER);
        build(self);
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
        self.pad();
    }

    /// Appends bytes as they are: a protocol's fixed header.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self
    }

    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.raw(value)
    }

    /// A number in the host's byte order, as rtnetlink wants it.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Writer {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// A number in network byte order, as nfnetlink wants it.
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Writer {
        self.attribute(kind, &value.to_be_bytes())
    }

    pub fn be64(&mut self, kind: u16, value: u64) -> &mut Writer {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// A text with its closing zero byte.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Writer {
        self.bytes.extend_from_slice(&(5 + value.len() as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self.pad();
        self
    }

    /// An attribute whose value is attributes. The caller keeps a nest below 64 KiB, which is all its length can say.
    pub fn nest(&mut self, kind: u16, build: impl FnOnce(&mut Writer)) -> &mut Writer {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        build(self);
        let length = self.bytes.len() - start;
        debug_assert!(length <= usize::from(u16::MAX), "a nest of {length} bytes");
        self.bytes[start..start + 2].copy_from_slice(&(length as u16).to_ne_bytes());
        self
    }

    /// Appends another writer's messages but for its first `skip` bytes, giving them the next sequence numbers.
    pub fn append(&mut self, other: &Writer, skip: usize) {
        let mut at = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes[skip..]);
        while let Some(length) = super::reader::u32_at(&self.bytes, at) {
            self.sequence += 1;
            self.bytes[at + 8..at + 12].copy_from_slice(&self.sequence.to_ne_bytes());
            at += align(length as usize);
        }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The sequence number of the newest message.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    fn pad(&mut self) {
        self.bytes.resize(align(self.bytes.len()), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Attributes, messages};

    #[test]
    fn what_is_written_can_be_read() {
        let mut writer = Writer::new();
        writer.message(16, libc::NLM_F_ACK, |w| {
            w.raw(&[9, 9, 9, 9]).text(1, "abcd").nest(2, |w| {
                w.be32(3, 7).attribute(4, &[1]);
            });
        });
        writer.message(17, 0, |w| {
            w.raw(&[8, 8, 8, 8]);
        });
        let read: Vec<_> = messages(writer.bytes()).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].kind, read[0].sequence), (16, 1));
        assert_eq!((read[1].kind, read[1].sequence), (17, 2));
        let attributes = Attributes::new(&read[0].body[4..]);
        assert_eq!(attributes.text(1), Some("abcd"));
        let nest = attributes.nest(2).unwrap();
        assert_eq!(nest.be32(3), Some(7));
        assert_eq!(nest.find(4), Some(&[1][..]));
        assert_eq!(nest.find(5), None);
    }

    #[test]
    fn torn_messages_end_the_reading() {
        let mut writer = Writer::new();
        writer.message(16, 0, |w| {
            w.raw(&[0; 4]).text(1, "abcd");
        });
        for length in 0..writer.len() {
            assert_eq!(messages(&writer.bytes()[..length]).count(), 0, "{length} bytes");
        }
        let attributes = Attributes::new(&[200, 0, 1, 0, 1, 2]);
        assert_eq!(attributes.iter().count(), 0);
    }
}
