//! DNS messages: reading questions and writing answers (RFC 1035, 2782, 6891).

use std::net::{Ipv4Addr, Ipv6Addr};

/// The numbers of the record types that are known here.
pub mod kind {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const ANY: u16 = 255;
}

/// The longest message over UDP when the client says nothing, and the most we send however much it would take.
const PLAIN_UDP_BYTES: usize = 512;
pub const LARGEST_UDP_BYTES: usize = 1232;
/// A name takes at most 255 bytes, so following more pointers than this leads nowhere.
const MAX_LABELS: usize = 128;
pub const HEADER: usize = 12;
pub const OPT: u16 = 41;
const INTERNET: u16 = 1;

/// A question, with all that an answer has to take from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    pub id: u16,
    /// In lower case, without the last dot; the root is empty.
    pub name: String,
    pub kind: u16,
    pub class: u16,
    pub recursion_desired: bool,
    /// The longest answer that the client takes over UDP.
    pub udp_bytes: usize,
    /// The question as it was written, to be repeated: clients compare it with upper and lower case.
    question: Vec<u8>,
    extended: bool,
    /// The question alone decides about the answer: it asks for recursion and for nothing that not everybody asks for.
    pub is_plain: bool,
}

/// Why a message gets no proper answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not even the header is there, or it is itself an answer: say nothing.
    NoQuery,
    /// The message with this id cannot be read.
    Format(u16),
    /// The message with this id asks for something other than a lookup.
    NotImplemented(u16),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    Success = 0,
    FormatError = 1,
    ServerFailure = 2,
    NoName = 3,
    NotImplemented = 4,
    Refused = 5,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    pub ttl_s: u32,
    pub data: Data,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    A(Ipv4Addr),
    Aaaa(Ipv6Addr),
    Cname(String),
    Ns(String),
    Ptr(String),
    Txt(String),
    Srv {
        port: u16,
        weight: u16,
        target: String,
    },
    Soa {
        server: String,
        contact: String,
        serial: u32,
    },
}

/// An answer before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub code: Code,
    /// From our own zone, not from somebody we asked.
    pub authoritative: bool,
    pub answers: Vec<Record>,
    pub authority: Vec<Record>,
    pub additional: Vec<Record>,
}

impl Query {
    pub fn parse(message: &[u8]) -> Result<Query, Malformed> {
        let word = |at: usize| read_u16(message, at);
        let (id, flags) = word(0).zip(word(2)).ok_or(Malformed::NoQuery)?;
        if message.len() < HEADER || flags & 0x8000 != 0 {
            return Err(Malformed::NoQuery);
        }
        if flags & 0x7800 != 0 {
            return Err(Malformed::NotImplemented(id));
        }
        if word(4) != Some(1) {
            return Err(Malformed::Format(id));
        }
        let (name, end) = read_name(message, HEADER).ok_or(Malformed::Format(id))?;
        let (kind, class) = word(end).zip(word(end + 2)).ok_or(Malformed::Format(id))?;
        let extension = extension(message, end + 4);
        Ok(Query {
            id,
            is_plain: is_plain(message, flags, &name, end + 4),
            name: name.to_ascii_lowercase(),
            kind,
            class,
            recursion_desired: flags & 0x0100 != 0,
            udp_bytes: extension.map_or(PLAIN_UDP_BYTES, |bytes| {
                usize::from(bytes).clamp(PLAIN_UDP_BYTES, LARGEST_UDP_BYTES)
            }),
            question: message[HEADER..end + 4].to_vec(),
            extended: extension.is_some(),
        })
    }

    /// The same question about another name, to be sent to another server.
    pub fn about(&self, name: &str) -> Vec<u8> {
        let mut out = Vec::new();
        push_u16(&mut out, self.id);
        push_u16(&mut out, 0x0100);
        for count in [1, 0, 0, 0] {
            push_u16(&mut out, count);
        }
        push_name(&mut out, name);
        push_u16(&mut out, self.kind);
        push_u16(&mut out, INTERNET);
        out
    }

    pub fn is_internet(&self) -> bool {
        self.class == INTERNET
    }

    pub fn is_extended(&self) -> bool {
        self.extended
    }

    /// Whether a server's message answers this question, whatever its id.
    pub fn is_answered_by(&self, message: &[u8]) -> bool {
        let is_answer = read_u16(message, 2).is_some_and(|flags| flags & 0x8000 != 0);
        let question = message.get(HEADER..HEADER + self.question.len());
        let (name, rest) = self.question.split_at(self.question.len().saturating_sub(4));
        let same = |question: &[u8]| {
            let (other, others_rest) = question.split_at(name.len());
            other.eq_ignore_ascii_case(name) && others_rest == rest
        };
        is_answer && read_u16(message, 4) == Some(1) && question.is_some_and(same)
    }

    /// Makes an answer to the same question one to this one, with its id and spelling.
    pub fn address(&self, answer: &mut [u8]) {
        if let Some(id) = answer.get_mut(..2) {
            id.copy_from_slice(&self.id.to_be_bytes());
        }
        if let Some(question) = answer.get_mut(HEADER..HEADER + self.question.len()) {
            question.copy_from_slice(&self.question);
        }
    }

    /// The answer's bytes. What does not fit within `limit` is left out and the client told to ask by TCP.
    pub fn answer(&self, reply: &Reply, limit: usize) -> Vec<u8> {
        let whole = self.write(reply, false);
        if whole.len() <= limit {
            return whole;
        }
        let empty = Reply {
            answers: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
            ..reply.clone()
        };
        self.write(&empty, true)
    }

    fn write(&self, reply: &Reply, truncated: bool) -> Vec<u8> {
        let mut flags = 0x8080 | u16::from(reply.code as u8);
        for (set, bit) in [
            (reply.authoritative, 0x0400),
            (truncated, 0x0200),
            (self.recursion_desired, 0x0100),
        ] {
            flags |= if set { bit } else { 0 };
        }
        let additional = reply.additional.len() + usize::from(self.extended);
        let counts = [1, reply.answers.len(), reply.authority.len(), additional];
        let mut out = Vec::with_capacity(PLAIN_UDP_BYTES);
        push_u16(&mut out, self.id);
        push_u16(&mut out, flags);
        for count in counts {
            push_u16(&mut out, count as u16);
        }
        out.extend_from_slice(&self.question);
        for record in reply.answers.iter().chain(&reply.authority).chain(&reply.additional) {
            self.write_record(&mut out, record);
        }
        if self.extended {
            // The root, OPT, our size, no flags, no options.
            out.push(0);
            push_u16(&mut out, OPT);
            push_u16(&mut out, LARGEST_UDP_BYTES as u16);
            out.extend_from_slice(&[0; 6]);
        }
        out
    }

    fn write_record(&self, out: &mut Vec<u8>, record: &Record) {
        if record.name == self.name {
            // A pointer to the question's name.
            push_u16(out, 0xc000 | HEADER as u16);
        } else {
            push_name(out, &record.name);
        }
        push_u16(out, record.data.kind());
        push_u16(out, INTERNET);
        out.extend_from_slice(&record.ttl_s.to_be_bytes());
        let length_at = out.len();
        push_u16(out, 0);
        record.data.write(out);
        let length = (out.len() - length_at - 2) as u16;
        out[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }
}

/// An answer of nothing but a code, to a message that could not be read beyond its id.
pub fn bare(id: u16, code: Code) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER);
    push_u16(&mut out, id);
    push_u16(&mut out, 0x8080 | u16::from(code as u8));
    out.extend_from_slice(&[0; 8]);
    out
}

/// The addresses that another server's answer gives, whatever aliases it followed; all under the name asked for.
pub fn addresses(answer: &[u8], name: &str) -> Vec<Record> {
    let mut records = Vec::new();
    let mut read = || -> Option<()> {
        let mut at = HEADER;
        for _ in 0..read_u16(answer, 4)? {
            at = read_name(answer, at)?.1 + 4;
        }
        for _ in 0..read_u16(answer, 6)? {
            let end = read_name(answer, at)?.1;
            let ttl_s = u32::from(read_u16(answer, end + 4)?) << 16 | u32::from(read_u16(answer, end + 6)?);
            let length = usize::from(read_u16(answer, end + 8)?);
            let value = answer.get(end + 10..end + 10 + length)?;
            let data = match read_u16(answer, end)? {
                kind::A => <[u8; 4]>::try_from(value).ok().map(|octets| Data::A(octets.into())),
                kind::AAAA => <[u8; 16]>::try_from(value).ok().map(|octets| Data::Aaaa(octets.into())),
                _ => None,
            };
            records.extend(data.map(|data| Record {
                name: name.to_owned(),
                ttl_s,
                data,
            }));
            at = end + 10 + length;
        }
        Some(())
    };
    // What could be read of a torn answer still counts.
    let _ = read();
    records
}

impl Reply {
    pub fn with_code(code: Code) -> Reply {
        Reply {
            code,
            authoritative: false,
            answers: Vec::new(),
            authority: Vec::new(),
            additional: Vec::new(),
        }
    }
}

impl Data {
    pub fn kind(&self) -> u16 {
        match self {
            Data::A(_) => kind::A,
            Data::Aaaa(_) => kind::AAAA,
            Data::Cname(_) => kind::CNAME,
            Data::Ns(_) => kind::NS,
            Data::Ptr(_) => kind::PTR,
            Data::Txt(_) => kind::TXT,
            Data::Srv { .. } => kind::SRV,
            Data::Soa { .. } => kind::SOA,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Data::A(address) => out.extend_from_slice(&address.octets()),
            Data::Aaaa(address) => out.extend_from_slice(&address.octets()),
            Data::Cname(name) | Data::Ns(name) | Data::Ptr(name) => push_name(out, name),
            Data::Txt(text) => {
                let text = &text.as_bytes()[..text.len().min(255)];
                out.push(text.len() as u8);
                out.extend_from_slice(text);
            }
            Data::Srv { port, weight, target } => {
                push_u16(out, 0);
                push_u16(out, *weight);
                push_u16(out, *port);
                push_name(out, target);
            }
            Data::Soa {
                server,
                contact,
                serial,
            } => {
                push_name(out, server);
                push_name(out, contact);
                // Refresh, retry and expire concern secondary servers, of which there are none.
                for number in [*serial, 7200, 1800, 86400, SOA_MINIMUM_S] {
                    out.extend_from_slice(&number.to_be_bytes());
                }
            }
        }
    }
}

/// How long others may remember that a name does not exist.
const SOA_MINIMUM_S: u32 = 5;

pub fn read_u16(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

fn push_u16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// A name that does not fit the format (an empty or overlong label) comes out as the root.
fn push_name(out: &mut Vec<u8>, name: &str) {
    let start = out.len();
    for label in name.split('.').filter(|_| !name.is_empty()) {
        if label.is_empty() || label.len() > 63 || out.len() - start > 254 {
            out.truncate(start);
            break;
        }
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
}

/// The name at a place, and the place after it.
pub fn read_name(message: &[u8], at: usize) -> Option<(String, usize)> {
    let (mut at, mut end) = (at, None);
    let mut name = String::new();
    for _ in 0..MAX_LABELS {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some((name, end.unwrap_or(at + 1))),
            1..=63 => {
                let label = std::str::from_utf8(message.get(at + 1..at + 1 + length)?).ok()?;
                if label.contains('.') {
                    return None;
                }
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(label);
                at += 1 + length;
            }
            0xc0.. => {
                end = end.or(Some(at + 2));
                at = usize::from(read_u16(message, at)? & 0x3fff);
            }
            _ => return None,
        }
    }
    None
}

/// The end of the question is at `end`. Behind it, nothing may stand but an OPT record without flags and options.
fn is_plain(message: &[u8], flags: u16, name: &str, end: usize) -> bool {
    let written = HEADER + name.len() + if name.is_empty() { 1 } else { 2 } + 4;
    let rest = message.get(end..).unwrap_or_default();
    let counts = [6, 8, 10].map(|at| read_u16(message, at));
    let extension = match counts {
        [Some(0), Some(0), Some(0)] => rest.is_empty(),
        // The root, OPT, a size of two bytes, four bytes of flags and a length.
        [Some(0), Some(0), Some(1)] => {
            rest.len() == 11 && rest[..3] == [0, 0, OPT as u8] && rest[5..].iter().all(|byte| *byte == 0)
        }
        _ => false,
    };
    flags == 0x0100 && end == written && extension
}

/// The size that the client takes over UDP, if it says so in an OPT record among the additional ones.
fn extension(message: &[u8], mut at: usize) -> Option<u16> {
    let counts = [read_u16(message, 6)?, read_u16(message, 8)?];
    if counts != [0, 0] {
        return None;
    }
    for _ in 0..read_u16(message, 10)?.min(4) {
        let (_, end) = read_name(message, at)?;
        let (kind, class, length) = (
            read_u16(message, end)?,
            read_u16(message, end + 2)?,
            read_u16(message, end + 8)?,
        );
        if kind == OPT {
            return Some(class);
        }
        at = end + 10 + usize::from(length);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str, kind: u16, with_opt: bool) -> Vec<u8> {
        let mut message = vec![0x12, 0x34, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(with_opt)];
        push_name(&mut message, name);
        push_u16(&mut message, kind);
        push_u16(&mut message, INTERNET);
        if with_opt {
            message.extend_from_slice(&[0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
        }
        message
    }

    #[test]
    fn questions_are_read_and_their_spelling_is_kept() {
        let query = Query::parse(&question("Web.Default", kind::A, true)).unwrap();
        assert_eq!(
            (query.id, query.name.as_str(), query.kind),
            (0x1234, "web.default", kind::A)
        );
        assert_eq!(query.udp_bytes, LARGEST_UDP_BYTES);
        assert!(query.recursion_desired);
        let answer = query.answer(&Reply::with_code(Code::Refused), 512);
        assert!(answer.windows(3).any(|window| window == b"Web"));
        assert_eq!(answer[3] & 15, Code::Refused as u8);
        assert_eq!(Query::parse(&question("", kind::NS, false)).unwrap().udp_bytes, 512);
    }

    #[test]
    fn counts_that_no_message_can_have_add_up_to_nothing() {
        let mut message = question("a", kind::A, true);
        message[6..10].copy_from_slice(&[0xff, 0xff, 0, 1]);
        assert_eq!(Query::parse(&message).unwrap().udp_bytes, PLAIN_UDP_BYTES);
    }

    #[test]
    fn what_is_no_question_gets_the_answer_it_deserves() {
        assert_eq!(Query::parse(&[1, 2, 3]), Err(Malformed::NoQuery));
        let mut message = question("a", kind::A, false);
        message[2] = 0x80;
        assert_eq!(Query::parse(&message), Err(Malformed::NoQuery));
        message[2] = 0x28;
        assert_eq!(Query::parse(&message), Err(Malformed::NotImplemented(0x1234)));
        let message = question("a", kind::A, false);
        for length in HEADER..message.len() {
            assert_eq!(
                Query::parse(&message[..length]),
                Err(Malformed::Format(0x1234)),
                "{length} bytes"
            );
        }
        // A name that points at itself.
        let looping = [0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1];
        assert_eq!(Query::parse(&looping), Err(Malformed::Format(0x1234)));
    }

    #[test]
    fn what_does_not_fit_is_cut_and_marked() {
        let query = Query::parse(&question("a", kind::A, false)).unwrap();
        let record = |host: u8| Record {
            name: "a".to_owned(),
            ttl_s: 5,
            data: Data::A([10, 0, 0, host].into()),
        };
        let mut reply = Reply::with_code(Code::Success);
        reply.answers = (0..30).map(record).collect();
        let whole = query.answer(&reply, 512);
        assert_eq!((whole.len(), whole[2] & 2, whole[7]), (12 + 7 + 30 * 16, 0, 30));
        reply.answers = (0..40).map(record).collect();
        let cut = query.answer(&reply, 512);
        assert_eq!((cut.len(), cut[2] & 2, cut[7]), (19, 2, 0));
        assert_eq!(query.answer(&reply, 65535).len(), 19 + 40 * 16);
    }
}
