//! The revision of an object is not known when it is encoded, so stored bytes carry none. It is put in where the
//! object is served, right after the brace that opens `metadata`.

use std::io::Write;

use bytes::Bytes;

use super::{parse_json, write_json};
use crate::Value;

/// The stored object with its revision.
pub fn splice_resource_version(stored: &Bytes, revision: u64) -> Bytes {
    let mut out = Vec::with_capacity(stored.len() + 48);
    write_with_resource_version(&mut out, stored, revision);
    out.into()
}

/// Appends the stored object with its revision to `out`.
pub fn write_with_resource_version(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    match metadata_start(stored) {
        Some(at) => write_fast(out, &stored[..at], &stored[at..], revision),
        None => write_slowly(out, stored, revision, true),
    }
}

/// Appends the stored object with its revision as an item of a list, whose own kind says what its items are.
pub fn write_list_item(out: &mut Vec<u8>, stored: &[u8], revision: u64) {
    match metadata_start(stored) {
        Some(at) => write_fast(out, b"{\"metadata\":{", &stored[at..], revision),
        None => write_slowly(out, stored, revision, false),
    }
}

fn write_fast(out: &mut Vec<u8>, head: &[u8], tail: &[u8], revision: u64) {
    out.reserve(head.len() + tail.len() + 48);
    out.extend_from_slice(head);
    out.extend_from_slice(b"\"resourceVersion\":\"");
    let written = write!(out, "{revision}");
    debug_assert!(written.is_ok(), "writing to memory does not fail");
    out.extend_from_slice(if tail.first() == Some(&b'}') { b"\"" } else { b"\"," });
    out.extend_from_slice(tail);
}

/// The position just inside `metadata`, where the object begins as [`super::encode_json`] writes it.
fn metadata_start(stored: &[u8]) -> Option<usize> {
    let api_version = stored.strip_prefix(b"{\"apiVersion\":\"")?;
    let kind = api_version[memchr::memchr(b'"', api_version)?..].strip_prefix(b"\",\"kind\":\"")?;
    let metadata = kind[memchr::memchr(b'"', kind)?..].strip_prefix(b"\",\"metadata\":{")?;
    Some(stored.len() - metadata.len())
}

/// For bytes that something else encoded in another order.
fn write_slowly(out: &mut Vec<u8>, stored: &[u8], revision: u64, with_kind: bool) {
    let Ok(mut value) = parse_json(stored) else {
        return out.extend_from_slice(stored);
    };
    if let Some(object) = value.as_object_mut() {
        if !with_kind {
            object.remove("apiVersion");
            object.remove("kind");
        }
        let metadata = object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Default::default()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
    }
    write_json(out, &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_lists_do_not_repeat_their_kind() {
        let shown = |stored: &str| {
            let mut out = Vec::new();
            write_list_item(&mut out, stored.as_bytes(), 7);
            String::from_utf8(out).unwrap()
        };
        let expected = r#"{"metadata":{"resourceVersion":"7","name":"kind"},"data":{"kind":"x"}}"#;
        let stored = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kind"},"data":{"kind":"x"}}"#;
        assert_eq!(shown(stored), expected);
        let other = r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"kind":"x"},"metadata":{"name":"kind"}}"#;
        let other: Value = serde_json::from_str(&shown(other)).unwrap();
        assert_eq!(other, serde_json::from_str::<Value>(expected).unwrap());
    }

    fn check(stored: &str, expected: &str) {
        let spliced = splice_resource_version(&Bytes::copy_from_slice(stored.as_bytes()), 42);
        assert_eq!(String::from_utf8_lossy(&spliced), expected);
    }

    #[test]
    fn the_revision_goes_first_in_metadata() {
        check(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"42","name":"a"},"spec":{}}"#,
        );
        check(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"42"}}"#,
        );
    }

    #[test]
    fn bytes_in_another_order_still_get_it() {
        check(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}"#,
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"42"}}"#,
        );
    }
}
