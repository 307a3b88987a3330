//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::Price::{Step, Walk};
use super::{Row, strings};
use crate::error::failed;
use crate::{EvalError, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    numbers: [u64; 3],
    prerelease: String,
    build: String,
}

pub const TABLE: &[Row] = &[
    Row("semver(string): semver", Walk, |v| {
        parse(strings::text(&v[0])).map(|version| Value::Semver(Arc::new(version)))
    }),
    Row("semver(string, bool): semver", Walk, |v| {
        parse_as(&v[0], &v[1]).map(|version| Value::Semver(Arc::new(version)))
    }),
    Row("isSemver(string): bool", Walk, |v| {
        Ok(Value::Bool(parse(strings::text(&v[0])).is_ok()))
    }),
    Row("isSemver(string, bool): bool", Walk, |v| {
        Ok(Value::Bool(parse_as(&v[0], &v[1]).is_ok()))
    }),
    Row("<semver>.major(): int", Step, |v| {
        Ok(Value::Int(as_version(&v[0])?.numbers[0] as i64))
    }),
    Row("<semver>.minor(): int", Step, |v| {
        Ok(Value::Int(as_version(&v[0])?.numbers[1] as i64))
    }),
    Row("<semver>.patch(): int", Step, |v| {
        Ok(Value::Int(as_version(&v[0])?.numbers[2] as i64))
    }),
    Row("<semver>.isLessThan(semver): bool", Step, |v| {
        Ok(Value::Bool(
            as_version(&v[0])?.compare(as_version(&v[1])?) == Ordering::Less,
        ))
    }),
    Row("<semver>.isGreaterThan(semver): bool", Step, |v| {
        Ok(Value::Bool(
            as_version(&v[0])?.compare(as_version(&v[1])?) == Ordering::Greater,
        ))
    }),
    Row("<semver>.compareTo(semver): int", Step, |v| {
        Ok(Value::Int(as_version(&v[0])?.compare(as_version(&v[1])?) as i64))
    }),
];

fn as_version(value: &Value) -> Result<&Version, EvalError> {
    match value {
        Value::Semver(version) => Ok(version),
        _ => Err(failed("no such overload")),
    }
}

/// With normalisation a leading `v`, missing parts and leading zeros are forgiven.
fn parse_as(text: &Value, normalize: &Value) -> Result<Version, EvalError> {
    let text = strings::text(text);
    if !normalize.is_true() {
        return parse(text);
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at(end);
    let mut numbers: Vec<&str> = core
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            trimmed => trimmed,
        })
        .collect();
    while numbers.len() < 3 {
        numbers.push("0");
    }
    parse(&format!("{}{rest}", numbers.join(".")))
}

/// Whether a text is a version, without forgiving anything.
pub fn is_version(text: &str) -> bool {
    parse(text).is_ok()
}

fn parse(text: &str) -> Result<Version, EvalError> {
    let bad = || failed(format!("invalid semantic version {text:?}"));
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, prerelease) = rest
        .split_once('-')
        .map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let parts: Vec<&str> = core.split('.').collect();
    let [major, minor, patch] = parts.as_slice() else {
        return Err(bad());
    };
    let number = |part: &str| -> Result<u64, EvalError> {
        let plain =
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
        if plain {
            part.parse().map_err(|_| bad())
        } else {
            Err(bad())
        }
    };
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    for words in [prerelease, build].into_iter().flatten() {
        if !words.split('.').all(is_word) {
            return Err(bad());
        }
    }
    Ok(Version {
        numbers: [number(major)?, number(minor)?, number(patch)?],
        prerelease: prerelease.unwrap_or_default().to_owned(),
        build: build.unwrap_or_default().to_owned(),
    })
}

impl Version {
    pub fn compare(&self, other: &Version) -> Ordering {
        let by_number = self.numbers.cmp(&other.numbers);
        by_number.then_with(|| match (self.prerelease.as_str(), other.prerelease.as_str()) {
            ("", "") => Ordering::Equal,
            ("", _) => Ordering::Greater,
            (_, "") => Ordering::Less,
            (one, other) => compare_words(one, other),
        })
    }
}

fn compare_words(one: &str, other: &str) -> Ordering {
    let (mut ours, mut theirs) = (one.split('.'), other.split('.'));
    loop {
        let order = match (ours.next(), theirs.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(one), Some(other)) => match (one.parse::<u64>(), other.parse::<u64>()) {
                (Ok(one), Ok(other)) => one.cmp(&other),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => one.cmp(other),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(formatter, "{major}.{minor}.{patch}")?;
        if !self.prerelease.is_empty() {
            write!(formatter, "-{}", self.prerelease)?;
        }
        match self.build.as_str() {
            "" => Ok(()),
            build => write!(formatter, "+{build}"),
        }
    }
}
