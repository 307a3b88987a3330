//! The query of a request.

use std::collections::BTreeMap;

use super::path::unescape;

/// Repeated keys keep all values; flags without a value are empty strings. Pairs that cannot be read are left out, as
/// those behind us would do.
#[derive(Clone, Debug, Default)]
pub struct Query(BTreeMap<String, Vec<String>>);

impl Query {
    pub fn parse(query: &str) -> Query {
        let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if let (Some(key), Some(value)) = (form_decode(key), form_decode(value)) {
                values.entry(key).or_default().push(value);
            }
        }
        Query(values)
    }

    /// The same query as text, with nothing in it that was not understood.
    pub fn encode(&self) -> String {
        let pairs = self.0.iter().flat_map(|(key, values)| {
            let key = form_encode(key);
            values.iter().map(move |value| format!("{key}={}", form_encode(value)))
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    pub fn first(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.first().map(String::as_str)
    }

    /// A parameter that counts only when it is not empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.first(key).filter(|value| !value.is_empty())
    }

    pub fn all(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    /// `?watch`, `?watch=1` and `?watch=true` all set a flag; only `0` and `false` do not.
    pub fn flag(&self, key: &str) -> bool {
        self.first(key)
            .is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }
}

fn form_decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    Some(String::from_utf8_lossy(&unescape(spaced.as_bytes())?).into_owned())
}

fn form_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(char::from(byte)),
            b' ' => encoded.push('+'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
