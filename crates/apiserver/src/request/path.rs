//! Paths: decoded once, taken apart, and encoded again for those they are passed on to.

use std::borrow::Cow;

/// The path without its escapes; nothing when one is malformed.
pub fn decode(path: &str) -> Option<Cow<'_, [u8]>> {
    unescape(path.as_bytes())
}

/// Takes the escapes out of a text; nothing when one is malformed.
pub fn unescape(text: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !text.contains(&b'%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut left = text;
    while let Some((first, after)) = left.split_first() {
        left = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let (digits, after) = left.split_at_checked(2)?;
        decoded.push(hex(digits[0])? << 4 | hex(digits[1])?);
        left = after;
    }
    Some(Cow::Owned(decoded))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

/// The parts between slashes. Slashes at both ends count for nothing; two in a row have an empty part between them.
pub fn parts(path: &str) -> impl Iterator<Item = &str> {
    let trimmed = path.trim_matches('/');
    trimmed.split('/').filter(move |_| !trimmed.is_empty())
}

/// What comes after some parts of a decoded path: encoded, and clean, so that nobody behind it finds dots to climb by.
pub fn rest(decoded: &[u8], parts_before: usize) -> String {
    let start = decoded.iter().position(|byte| *byte != b'/').unwrap_or(decoded.len());
    let after = decoded[start..].split(|byte| *byte == b'/').skip(parts_before);
    let mut kept: Vec<&[u8]> = Vec::new();
    for part in after {
        match part {
            b"" | b"." => {}
            b".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    let mut rest = encode(&kept.join(&b'/'));
    if !rest.is_empty() && decoded.ends_with(b"/") {
        rest.push('/');
    }
    rest
}

/// Escapes everything that has no place in a path; slashes stay.
pub fn encode(path: &[u8]) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(char::from(*byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'@' => {
                encoded.push(char::from(*byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
