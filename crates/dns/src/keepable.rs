//! How long an answer of another server may be kept (RFC 2308), and where in it times stand.

use crate::wire::{HEADER, OPT, kind, read_name, read_u16};

/// An answer that may be given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keepable {
    /// For how long.
    pub ttl_s: u32,
    /// The places of the times that count down.
    pub ttls_at: Vec<usize>,
}

/// None for answers that say nothing certain, that are cut, that cannot be read to their end or that nobody may keep. A
/// denial may be kept only as long as the zone's own record says.
pub fn keepable(answer: &[u8]) -> Option<Keepable> {
    let flags = read_u16(answer, 2)?;
    let (is_answer, is_cut, code) = (flags & 0x8000 != 0, flags & 0x0200 != 0, flags & 15);
    if !is_answer || is_cut || !matches!(code, 0 | 3) || read_u16(answer, 4)? != 1 {
        return None;
    }
    let counts = [read_u16(answer, 6)?, read_u16(answer, 8)?, read_u16(answer, 10)?];
    let mut at = read_name(answer, HEADER)?.1 + 4;
    let (mut ttl_s, mut ttls_at, mut has_zone) = (u32::MAX, Vec::new(), false);
    for _ in 0..counts.iter().map(|count| usize::from(*count)).sum() {
        let end = read_name(answer, at)?.1;
        let next = end + 10 + usize::from(read_u16(answer, end + 8)?);
        let record = answer.get(..next)?;
        let record_kind = read_u16(record, end)?;
        if record_kind != OPT {
            ttl_s = ttl_s.min(seconds(record, end + 4)?);
            ttls_at.push(end + 4);
        }
        if record_kind == kind::SOA {
            // The last field of the zone's record is how long a denial may be kept.
            ttl_s = ttl_s.min(seconds(record, next.checked_sub(4)?)?);
            has_zone = true;
        }
        at = next;
    }
    let denies = code == 3 || counts[0] == 0;
    let certain = at == answer.len() && ttl_s > 0 && !ttls_at.is_empty() && (has_zone || !denies);
    certain.then_some(Keepable { ttl_s, ttls_at })
}

/// A time of more than half of what fits is none (RFC 2181).
fn seconds(message: &[u8], at: usize) -> Option<u32> {
    let seconds = u32::from_be_bytes(message.get(at..at + 4)?.try_into().ok()?);
    Some(if seconds >> 31 == 0 { seconds } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer about the name "a" with these codes and records: kind, seconds and data of each by section.
    fn answer(code: u8, sections: [&[(u16, u32, &[u8])]; 3]) -> Vec<u8> {
        let mut out = vec![0, 7, 0x81, 0x80 | code, 0, 1];
        for section in sections {
            out.extend([0, section.len() as u8]);
        }
        out.extend([1, b'a', 0, 0, 1, 0, 1]);
        for (kind, ttl, data) in sections.concat() {
            out.extend([0xc0, 12]);
            out.extend(kind.to_be_bytes());
            out.extend([0, 1]);
            out.extend(ttl.to_be_bytes());
            out.extend((data.len() as u16).to_be_bytes());
            out.extend(data);
        }
        out
    }

    fn ttl(answer: &[u8]) -> Option<u32> {
        keepable(answer).map(|keepable| keepable.ttl_s)
    }

    const ADDRESS: &[u8] = &[192, 0, 2, 1];

    fn zone(minimum: u32) -> Vec<u8> {
        [&[0, 0][..], &[0; 16], &minimum.to_be_bytes()].concat()
    }

    #[test]
    fn an_answer_is_kept_as_long_as_its_shortest_record() {
        let both = answer(0, [&[(kind::CNAME, 300, &[0]), (kind::A, 20, ADDRESS)], &[], &[]]);
        let kept = keepable(&both).unwrap();
        assert_eq!((kept.ttl_s, kept.ttls_at), (20, vec![25, 38]));
        assert_eq!(ttl(&answer(0, [&[(kind::A, 0, ADDRESS)], &[], &[]])), None);
        assert_eq!(ttl(&answer(0, [&[(kind::A, u32::MAX, ADDRESS)], &[], &[]])), None);
        // What stands in the place of the time of an OPT record are flags.
        let extended = answer(0, [&[(kind::A, 9, ADDRESS)], &[], &[(OPT, 0, &[])]]);
        assert_eq!(ttl(&extended), Some(9));
    }

    #[test]
    fn a_denial_is_kept_as_long_as_its_zone_says_and_not_without_it() {
        for code in [0, 3] {
            assert_eq!(ttl(&answer(code, [&[], &[(kind::SOA, 900, &zone(30))], &[]])), Some(30));
            assert_eq!(ttl(&answer(code, [&[], &[(kind::SOA, 10, &zone(30))], &[]])), Some(10));
            assert_eq!(ttl(&answer(code, [&[], &[], &[]])), None);
            assert_eq!(ttl(&answer(code, [&[], &[(kind::NS, 10, &[0])], &[]])), None);
        }
    }

    #[test]
    fn what_is_no_certain_answer_is_not_kept() {
        let good = answer(0, [&[(kind::A, 20, ADDRESS)], &[], &[]]);
        assert_eq!(ttl(&good), Some(20));
        for code in [1, 2, 4, 5] {
            assert_eq!(ttl(&answer(code, [&[(kind::A, 20, ADDRESS)], &[], &[]])), None);
        }
        let mut cut = good.clone();
        cut[2] |= 0x02;
        assert_eq!(ttl(&cut), None);
        for length in 0..good.len() {
            assert_eq!(ttl(&good[..length]), None, "{length} bytes");
        }
        let longer = [good.as_slice(), &[0]].concat();
        assert_eq!(ttl(&longer), None);
        let mut question = good;
        question[2] = 1;
        assert_eq!(ttl(&question), None);
    }
}
