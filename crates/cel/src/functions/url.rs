//! URLs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Price::{Step, Walk};
use super::{Row, strings};
use crate::error::failed;
use crate::{EvalError, Key, Value};

/// The parts of an absolute URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

pub const TABLE: &[Row] = &[
    Row("url(string): url", Walk, |v| {
        parse(strings::text(&v[0])).map(|url| Value::Url(Arc::new(url)))
    }),
    Row("isURL(string): bool", Walk, |v| {
        Ok(Value::Bool(parse(strings::text(&v[0])).is_ok()))
    }),
    Row("<url>.getScheme(): string", Step, |v| {
        Ok(Value::text(&as_url(&v[0])?.scheme))
    }),
    Row("<url>.getHost(): string", Step, |v| {
        Ok(Value::text(&as_url(&v[0])?.host))
    }),
    Row("<url>.getHostname(): string", Step, |v| {
        Ok(Value::text(as_url(&v[0])?.split_host().0))
    }),
    Row("<url>.getPort(): string", Step, |v| {
        Ok(Value::text(as_url(&v[0])?.split_host().1))
    }),
    Row("<url>.getEscapedPath(): string", Step, |v| {
        Ok(Value::text(&as_url(&v[0])?.path))
    }),
    Row("<url>.getQuery(): map(string, list(string))", Step, |v| {
        let mut pairs: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
        for pair in as_url(&v[0])?.query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = Key::String(unescape(key).as_str().into());
            pairs.entry(key).or_default().push(Value::text(&unescape(value)));
        }
        Ok(Value::Map(Arc::new(
            pairs
                .into_iter()
                .map(|(key, values)| (key, Value::list(values)))
                .collect(),
        )))
    }),
];

fn as_url(value: &Value) -> Result<&Url, EvalError> {
    match value {
        Value::Url(url) => Ok(url),
        _ => Err(failed("no such overload")),
    }
}

/// Absolute URLs and absolute paths, as Go's `url.ParseRequestURI` takes them.
fn parse(text: &str) -> Result<Url, EvalError> {
    let bad = || {
        failed(format!(
            "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
        ))
    };
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return Err(bad());
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest))
            if !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
        {
            (scheme.to_ascii_lowercase(), rest)
        }
        _ if text.starts_with('/') => (String::new(), text),
        _ => return Err(bad()),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = match (scheme.is_empty(), rest.find('/')) {
        (true, _) => ("", rest),
        (false, Some(at)) => rest.split_at(at),
        (false, None) => (rest, ""),
    };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Ok(Url {
        scheme,
        host: host.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
    })
}

fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = text
            .get(at + 1..at + 3)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], code) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Url {
    fn split_host(&self) -> (&str, &str) {
        if let Some(rest) = self.host.strip_prefix('[') {
            let (name, port) = rest.split_once(']').unwrap_or((rest, ""));
            return (name, port.trim_start_matches(':'));
        }
        self.host.split_once(':').unwrap_or((&self.host, ""))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(formatter, "{}://", self.scheme)?;
        }
        write!(formatter, "{}{}", self.host, self.path)?;
        match self.query.as_str() {
            "" => Ok(()),
            query => write!(formatter, "?{query}"),
        }
    }
}
