//! Just enough of DER to find the public key of a certificate and the parts of a private key.

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_IDENTIFIER: u8 = 0x06;
pub const SEQUENCE: u8 = 0x30;
/// The tags that a context numbers, of values inside of which another stands.
pub const CONTEXT: [u8; 2] = [0xa0, 0xa1];

/// Elements that follow each other.
#[derive(Clone, Copy)]
pub struct Der<'a>(pub &'a [u8]);

impl<'a> Der<'a> {
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The content of the next element, if it has this tag.
    pub fn read(&mut self, tag: u8) -> Option<Der<'a>> {
        let (&found, rest) = self.0.split_first()?;
        if found != tag {
            return None;
        }
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let bytes = usize::from(first & 0x7f);
            if !(1..=4).contains(&bytes) {
                return None;
            }
            let (digits, after) = rest.split_at_checked(bytes)?;
            length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
            rest = after;
            // A length is as short as it can be.
            if length < 0x80 || digits[0] == 0 {
                return None;
            }
        }
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Der(content))
    }

    /// The same of an element that may be missing.
    pub fn read_optional(&mut self, tag: u8) -> Option<Option<Der<'a>>> {
        match self.0.first() {
            Some(found) if *found == tag => self.read(tag).map(Some),
            _ => Some(None),
        }
    }

    /// A number that is not negative, without leading zeros.
    pub fn unsigned(&mut self) -> Option<&'a [u8]> {
        let digits = self.read(INTEGER)?.0;
        let negative = digits.first().is_none_or(|first| *first >= 0x80);
        (!negative).then(|| &digits[digits.iter().take_while(|digit| **digit == 0).count()..])
    }

    /// Bits that are whole bytes.
    pub fn bits(&mut self) -> Option<&'a [u8]> {
        let (unused, bytes) = self.read(BIT_STRING)?.0.split_first()?;
        (*unused == 0).then_some(bytes)
    }
}
