//! Values to bytes, byte for byte as Go's encoder writes them, so that what controllers compare as text stays equal.

use std::io::Write;

use serde_json::Number;

use crate::Value;

/// What comes first in an object, in this order: readers dispatch on it, and the revision is spliced in after it.
const LEADING: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Encodes an object: `apiVersion`, `kind` and `metadata` first, the rest in the order of the keys.
pub fn encode_json(value: &Value) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    write_json(&mut out, value);
    out
}

/// Appends an encoded object to `out`.
pub fn write_json(out: &mut Vec<u8>, value: &Value) {
    let Value::Object(map) = value else {
        return write_value(out, value);
    };
    out.push(b'{');
    let leading = LEADING.iter().filter_map(|name| map.get_key_value(*name));
    let rest = map.iter().filter(|(name, _)| !LEADING.contains(&name.as_str()));
    write_members(out, leading.chain(rest));
    out.push(b'}');
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_value(out, item);
            }
            out.push(b']');
        }
        Value::Object(map) => {
            out.push(b'{');
            write_members(out, map.iter());
            out.push(b'}');
        }
    }
}

fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    let mut first = true;
    for (name, value) in members {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write_string(out, name);
        out.push(b':');
        write_value(out, value);
    }
}

/// Whole numbers have no fraction; very small and very large ones an exponent.
fn write_number(out: &mut Vec<u8>, number: &Number) {
    let result = if let Some(integer) = number.as_i64() {
        write!(out, "{integer}")
    } else if let Some(integer) = number.as_u64() {
        write!(out, "{integer}")
    } else {
        write_float(out, number.as_f64().unwrap_or_default())
    };
    debug_assert!(result.is_ok(), "writing to memory does not fail");
}

fn write_float(out: &mut Vec<u8>, number: f64) -> std::io::Result<()> {
    let magnitude = number.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return write!(out, "{number}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if !exponent.starts_with('-') => write!(out, "{mantissa}e+{exponent}"),
        _ => out.write_all(text.as_bytes()),
    }
}

/// The bytes that may not stand in a string as they are. 0xE2 begins U+2028 and U+2029, which Go escapes as well.
const ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = true;
        byte += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[b'<' as usize] = true;
    table[b'>' as usize] = true;
    table[b'&' as usize] = true;
    table[0xe2] = true;
    table
};

fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut written = 0;
    let mut position = 0;
    while let Some(length) = bytes[position..].iter().position(|&byte| ESCAPED[byte as usize]) {
        position += length;
        if let Some(size) = write_escape(out, &bytes[written..], position - written) {
            position += size;
            written = position;
        } else {
            position += 1;
        }
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// Writes what precedes the escape and the escape itself, and returns the length of what was escaped.
fn write_escape(out: &mut Vec<u8>, bytes: &[u8], at: usize) -> Option<usize> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let byte = bytes[at];
    if byte == 0xe2 {
        let escape: &[u8] = match bytes.get(at + 1..at + 3)? {
            [0x80, 0xa8] => b"\\u2028",
            [0x80, 0xa9] => b"\\u2029",
            _ => return None,
        };
        out.extend_from_slice(&bytes[..at]);
        out.extend_from_slice(escape);
        return Some(3);
    }
    out.extend_from_slice(&bytes[..at]);
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            return Some(1);
        }
    };
    out.extend_from_slice(&[b'\\', short]);
    Some(1)
}
