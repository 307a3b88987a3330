//! Query parameters.

use std::num::ParseIntError;

/// Decoded name-value pairs, in order.
pub struct Query(Vec<(String, String)>);

/// What is wrong with a parameter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    #[error("query parameter {name:?} is not a number: {value:?}")]
    Number {
        name: String,
        value: String,
        source: ParseIntError,
    },
    #[error("{0} must not be negative")]
    Negative(String),
    #[error("{name} is not a time: {value:?}")]
    Time { name: String, value: String },
}

impl Query {
    pub fn parse(text: &str) -> Query {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decode = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(name), unescape(value))
        };
        Query(pairs.map(decode).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn all(&self, name: &str) -> Vec<String> {
        let fitting = self.0.iter().filter(|(known, _)| known == name);
        fitting.map(|(_, value)| value.clone()).collect()
    }

    /// `1` and `true` alike.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true" | "True" | "t"))
    }

    pub fn number(&self, name: &str) -> Result<Option<i64>, QueryError> {
        let value = self.get(name).filter(|value| !value.is_empty());
        let parse = |value: &str| {
            value.parse().map_err(|source| QueryError::Number {
                name: name.to_owned(),
                value: value.to_owned(),
                source,
            })
        };
        value.map(parse).transpose()
    }
}

/// A part of a path, where a plus is a plus.
pub fn unescape_path(text: &str) -> String {
    unescape(&text.replace('+', "%2B"))
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let pair: Vec<u8> = rest.clone().take(2).collect();
                let hex = std::str::from_utf8(&pair).ok().filter(|hex| hex.len() == 2);
                match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(decoded) => {
                        bytes.push(decoded);
                        rest.nth(1);
                    }
                    None => bytes.push(b'%'),
                }
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("command=sh&command=-c&command=echo+a%26b%20%zz&tty=1&tailLines=x");
        assert_eq!(query.all("command"), ["sh", "-c", "echo a&b %zz"]);
        assert!(query.flag("tty") && !query.flag("input"));
        assert!(query.number("tailLines").is_err());
        assert_eq!(query.number("limitBytes"), Ok(None));
    }
}
