//! Small habits of Go that clients see: how it quotes strings in messages, and how it writes durations.

use std::fmt::Write;

use serde_json::Map;

use crate::Value;

/// The text in double quotes, escaped as Go's `%q` does.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            '\x0b' => quoted.push_str("\\v"),
            '\x0c' => quoted.push_str("\\f"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                let _ = write!(quoted, "\\x{:02x}", control as u32);
            }
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", control as u32);
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// A value as Go's `%v` prints it.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => list_text(items),
        Value::Object(map) => map_text(map),
        other => other.to_string(),
    }
}

pub fn list_text(items: &[Value]) -> String {
    let items: Vec<String> = items.iter().map(value_text).collect();
    format!("[{}]", items.join(" "))
}

pub fn map_text(map: &Map<String, Value>) -> String {
    let members: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{key}:{}", value_text(value)))
        .collect();
    format!("map[{}]", members.join(" "))
}

/// The Go type of a value that was decoded without one.
pub fn type_text(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", quote(unit), quote(text))]
    UnknownUnit { unit: String, text: String },
}

const UNITS: &[(&str, i128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Reads a duration such as `1h15m0.5s` as nanoseconds.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (negative, mut rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number_length = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'.')
            .count();
        let (number, after) = rest.split_at(number_length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let unit_length = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, remaining) = after.split_at(unit_length);
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let Some(&(_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        };
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        total = whole
            .checked_mul(nanos)
            .and_then(|part| total.checked_add(part))
            .ok_or_else(invalid)?;
        total += fraction_nanos(fraction, nanos);
        rest = remaining;
    }
    i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())
}

fn fraction_nanos(digits: &str, unit: i128) -> i128 {
    let mut numerator: i128 = 0;
    let mut denominator: i128 = 1;
    for byte in digits.bytes().take(18) {
        numerator = numerator * 10 + i128::from(byte - b'0');
        denominator *= 10;
    }
    numerator * unit / denominator
}

/// Writes nanoseconds as Go does: `1h15m0.5s`, `1.5ms`, `0s`.
pub fn format_duration(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    if magnitude == 0 {
        return "0s".to_owned();
    }
    if magnitude < 1_000_000_000 {
        let (unit, scale, digits) = match magnitude {
            0..1_000 => ("ns", 1, 0),
            1_000..1_000_000 => ("µs", 1_000, 3),
            _ => ("ms", 1_000_000, 6),
        };
        return format!("{sign}{}{unit}", decimal(magnitude / scale, magnitude % scale, digits));
    }
    let seconds = magnitude / 1_000_000_000;
    let last = decimal(seconds % 60, magnitude % 1_000_000_000, 9);
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{sign}{last}s"),
        (0, minutes) => format!("{sign}{minutes}m{last}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{last}s"),
    }
}

fn decimal(whole: u64, fraction: u64, digits: usize) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    let fraction = format!("{fraction:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let rows = [
            ("0", "0s"),
            ("60s", "1m0s"),
            ("1h", "1h0m0s"),
            ("90m", "1h30m0s"),
            ("1.5ms", "1.5ms"),
            ("-2.25s", "-2.25s"),
            ("1us", "1µs"),
            ("15ns", "15ns"),
            ("1h15m0.5s", "1h15m0.5s"),
        ];
        for (input, expected) in rows {
            assert_eq!(format_duration(parse_duration(input).unwrap()), expected);
        }
        assert_eq!(
            parse_duration("5").unwrap_err().to_string(),
            r#"time: missing unit in duration "5""#
        );
        assert_eq!(
            parse_duration("").unwrap_err().to_string(),
            r#"time: invalid duration """#
        );
        assert_eq!(
            parse_duration("5x").unwrap_err().to_string(),
            r#"time: unknown unit "x" in duration "5x""#
        );
    }
}
