//! Frames: the checksummed unit in which logs and checkpoints are written and read.
//!
//! A frame begins at a multiple of [`ALIGN`], so that its header never crosses a sector, and ends with a mark that is
//! never zero. Files are filled with zeros ahead of the log's end. A frame of which a sector never reached the disk can
//! therefore be told from one that was written whole and damaged later.
//!
//! ```text
//! magic u32 | payload length u32 | first revision u64 | time ms u64 | payload crc u32 | header crc u32
//! payload … | zeros | end mark u32
//! ```

use crc32fast::Hasher;

use crate::Revision;

pub const HEADER: usize = 32;
const ALIGN: usize = 32;
/// No byte of it is zero.
const END: u32 = 0x646e_653e;
/// The unit that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What a frame belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Log = 0x676f_6c6b,
    Checkpoint = 0x706b_636b,
}

/// Sealed into every header, so that bytes in a stored value cannot pass for a frame.
#[derive(Clone, Copy)]
pub struct Salt(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub payload_len: usize,
    pub first_revision: Revision,
    pub at_ms: u64,
    payload_crc: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    Frame {
        header: Header,
        payload: &'a [u8],
        end: usize,
    },
    /// Nothing was written here.
    Blank,
    /// Some part never reached the disk.
    Torn,
    /// All parts were written but they are not what was written.
    Broken(&'static str),
}

/// Starts a frame in an empty buffer; the payload is appended by the caller.
pub fn begin(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(HEADER, 0);
}

/// Completes the frame that `begin` started.
pub fn seal(buffer: &mut Vec<u8>, kind: Kind, first_revision: Revision, at_ms: u64, salt: Salt) {
    let payload_len = buffer.len() - HEADER;
    let payload_crc = crc32fast::hash(&buffer[HEADER..]);
    buffer.resize(total(payload_len) - 4, 0);
    buffer.extend_from_slice(&END.to_le_bytes());
    buffer[0..4].copy_from_slice(&(kind as u32).to_le_bytes());
    buffer[4..8].copy_from_slice(&(payload_len as u32).to_le_bytes());
    buffer[8..16].copy_from_slice(&first_revision.to_le_bytes());
    buffer[16..24].copy_from_slice(&at_ms.to_le_bytes());
    buffer[24..28].copy_from_slice(&payload_crc.to_le_bytes());
    let header_crc = header_crc(&buffer[..28], salt);
    buffer[28..32].copy_from_slice(&header_crc.to_le_bytes());
}

/// The length on disk of a frame with a payload of that length.
pub fn total(payload_len: usize) -> usize {
    (HEADER + payload_len + 4).next_multiple_of(ALIGN)
}

/// The header in `bytes`, if it is whole and of this kind.
pub fn header(bytes: &[u8; HEADER], kind: Kind, salt: Salt) -> Option<Header> {
    let valid = word(bytes, 0) == kind as u32 && word(bytes, 28) == header_crc(&bytes[..28], salt);
    valid.then(|| Header {
        payload_len: word(bytes, 4) as usize,
        first_revision: long(bytes, 8),
        at_ms: long(bytes, 16),
        payload_crc: word(bytes, 24),
    })
}

impl Header {
    /// Checks what follows the header: payload, zeros, end mark.
    pub fn payload<'a>(&self, body: &'a [u8]) -> Option<&'a [u8]> {
        let payload = body.get(..self.payload_len)?;
        let whole = word(body, body.len().checked_sub(4)?) == END && crc32fast::hash(payload) == self.payload_crc;
        whole.then_some(payload)
    }
}

/// The frame at `offset` of a whole log file.
pub fn parse(file: &[u8], offset: usize, kind: Kind, salt: Salt) -> Parsed<'_> {
    let Some(bytes) = file.get(offset..).and_then(|rest| rest.first_chunk::<HEADER>()) else {
        return if file.get(offset..).is_none_or(blank) {
            Parsed::Blank
        } else {
            Parsed::Torn
        };
    };
    if blank(bytes) {
        return Parsed::Blank;
    }
    let Some(header) = header(bytes, kind, salt) else {
        // What follows the header of a whole frame, be it only the end mark, is never blank.
        let cut = file[offset + HEADER..].iter().take(ALIGN).all(|byte| *byte == 0);
        return if cut {
            Parsed::Torn
        } else {
            Parsed::Broken("its header does not match its checksum")
        };
    };
    let end = offset + total(header.payload_len);
    let Some(body) = file.get(offset + HEADER..end) else {
        return Parsed::Torn;
    };
    match header.payload(body) {
        Some(payload) => Parsed::Frame { header, payload, end },
        None if body.last() == Some(&0) || misses_a_sector(file, offset, end) => Parsed::Torn,
        None => Parsed::Broken("its content does not match its checksum"),
    }
}

/// The first intact frame of at least revision `least` behind `offset`, to tell a torn end from a damaged middle.
pub fn find(file: &[u8], offset: usize, kind: Kind, salt: Salt, least: Revision) -> Option<usize> {
    let starts = (offset.next_multiple_of(ALIGN)..file.len()).step_by(ALIGN);
    starts.into_iter().find(|start| {
        let bytes = file[*start..].first_chunk::<HEADER>();
        let found = bytes.and_then(|bytes| header(bytes, kind, salt));
        found.is_some_and(|header| header.first_revision >= least)
            && matches!(parse(file, *start, kind, salt), Parsed::Frame { .. })
    })
}

/// Whether some sector's share of the frame is all zero, as it was before the write.
fn misses_a_sector(file: &[u8], start: usize, end: usize) -> bool {
    let mut from = start;
    while from < end {
        let to = (from + 1).next_multiple_of(SECTOR).min(end);
        if blank(&file[from..to]) {
            return true;
        }
        from = to;
    }
    false
}

pub fn blank(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn header_crc(bytes: &[u8], salt: Salt) -> u32 {
    let mut hasher = Hasher::new_with_initial(salt.0);
    hasher.update(bytes);
    hasher.finalize()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt(7);

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut buffer = Vec::new();
        begin(&mut buffer);
        buffer.extend_from_slice(payload);
        seal(&mut buffer, Kind::Log, 42, 1000, SALT);
        buffer
    }

    fn kind_of(file: &[u8]) -> &'static str {
        match parse(file, 0, Kind::Log, SALT) {
            Parsed::Frame { .. } => "frame",
            Parsed::Blank => "blank",
            Parsed::Torn => "torn",
            Parsed::Broken(_) => "broken",
        }
    }

    #[test]
    fn a_frame_comes_back_as_it_was_written() {
        for length in [0, 1, 27, 28, 29, 60, 5000] {
            let payload = vec![b'x'; length];
            let file = frame(&payload);
            assert_eq!(file.len() % ALIGN, 0);
            match parse(&file, 0, Kind::Log, SALT) {
                Parsed::Frame {
                    header,
                    payload: read,
                    end,
                } => {
                    assert_eq!((header.first_revision, header.at_ms), (42, 1000));
                    assert_eq!((read, end), (&payload[..], file.len()));
                }
                other => panic!("{length} bytes: {other:?}"),
            }
        }
    }

    #[test]
    fn a_frame_that_was_cut_anywhere_is_torn() {
        let whole = frame(&[b'x'; 3000]);
        for cut in 0..whole.len() {
            let mut zeroed = whole.clone();
            zeroed[cut..].fill(0);
            let expected = if cut == 0 { "blank" } else { "torn" };
            assert_eq!(
                (kind_of(&zeroed), kind_of(&whole[..cut])),
                (expected, expected),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_frame_that_misses_any_one_sector_is_torn() {
        let whole = frame(&[b'x'; 3000]);
        for sector in 1..whole.len() / SECTOR {
            let mut file = whole.clone();
            file[sector * SECTOR..(sector + 1) * SECTOR].fill(0);
            assert_eq!(kind_of(&file), "torn", "sector {sector}");
        }
    }

    #[test]
    fn a_flipped_bit_is_damage_and_never_taken_for_a_torn_write() {
        let whole = frame(b"a value of some length that is not very long");
        for bit in 0..whole.len() * 8 {
            let mut file = whole.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            let kind = kind_of(&file);
            let padding = bit / 8 >= HEADER + 44 && bit / 8 < whole.len() - 4;
            assert_eq!(kind, if padding { "frame" } else { "broken" }, "bit {bit}");
        }
    }

    #[test]
    fn a_frame_of_another_store_is_not_a_frame() {
        let file = frame(b"x");
        assert_eq!(find(&file, 0, Kind::Log, SALT, 42), Some(0));
        assert_eq!(find(&file, 0, Kind::Log, Salt(8), 42), None);
        assert_eq!(find(&file, 0, Kind::Checkpoint, SALT, 42), None);
    }
}
