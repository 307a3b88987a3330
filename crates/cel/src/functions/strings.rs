//! Texts: searching, cutting, joining, regular expressions, formatting.

use regex::Regex;

use super::Price::{Product, Walk};
use super::{Row, convert};
use crate::error::failed;
use crate::{EvalError, Value};

pub const TABLE: &[Row] = &[
    Row("<string>.contains(string): bool", Product, |v| {
        Ok(Value::Bool(text(&v[0]).contains(text(&v[1]))))
    }),
    Row("<string>.startsWith(string): bool", Walk, |v| {
        Ok(Value::Bool(text(&v[0]).starts_with(text(&v[1]))))
    }),
    Row("<string>.endsWith(string): bool", Walk, |v| {
        Ok(Value::Bool(text(&v[0]).ends_with(text(&v[1]))))
    }),
    Row("<string>.matches(string): bool", Product, |v| {
        Ok(Value::Bool(regex(&v[1])?.is_match(text(&v[0]))))
    }),
    Row("matches(string, string): bool", Product, |v| {
        Ok(Value::Bool(regex(&v[1])?.is_match(text(&v[0]))))
    }),
    Row("<string>.find(string): string", Product, |v| {
        let found = regex(&v[1])?
            .find(text(&v[0]))
            .map_or("", |found| found.as_str())
            .to_owned();
        Ok(Value::text(&found))
    }),
    Row("<string>.findAll(string): list(string)", Product, |v| {
        find_all(v, usize::MAX)
    }),
    Row("<string>.findAll(string, int): list(string)", Product, |v| {
        find_all(v, limit(&v[2]))
    }),
    Row("<string>.charAt(int): string", Walk, |v| {
        let characters: Vec<char> = text(&v[0]).chars().collect();
        let at = bounded(&v[1], characters.len())?;
        Ok(Value::text(&characters[at..].iter().take(1).collect::<String>()))
    }),
    Row("<string>.indexOf(string): int", Walk, |v| {
        Ok(index_of(text(&v[0]), text(&v[1]), 0))
    }),
    Row("<string>.indexOf(string, int): int", Walk, |v| {
        let from = bounded(&v[2], text(&v[0]).chars().count())?;
        Ok(index_of(text(&v[0]), text(&v[1]), from))
    }),
    Row("<string>.lastIndexOf(string): int", Walk, |v| {
        Ok(last_index_of(text(&v[0]), text(&v[1]), usize::MAX))
    }),
    Row("<string>.lastIndexOf(string, int): int", Walk, |v| {
        let from = bounded(&v[2], text(&v[0]).chars().count())?;
        Ok(last_index_of(text(&v[0]), text(&v[1]), from))
    }),
    Row("<string>.lowerAscii(): string", Walk, |v| {
        Ok(Value::text(&text(&v[0]).to_ascii_lowercase()))
    }),
    Row("<string>.upperAscii(): string", Walk, |v| {
        Ok(Value::text(&text(&v[0]).to_ascii_uppercase()))
    }),
    Row("<string>.trim(): string", Walk, |v| Ok(Value::text(text(&v[0]).trim()))),
    Row("<string>.reverse(): string", Walk, |v| {
        Ok(Value::text(&text(&v[0]).chars().rev().collect::<String>()))
    }),
    Row("<string>.replace(string, string): string", Walk, |v| {
        Ok(Value::text(&text(&v[0]).replace(text(&v[1]), text(&v[2]))))
    }),
    Row("<string>.replace(string, string, int): string", Walk, |v| {
        Ok(Value::text(&text(&v[0]).replacen(
            text(&v[1]),
            text(&v[2]),
            limit(&v[3]),
        )))
    }),
    Row("<string>.split(string): list(string)", Walk, |v| {
        Ok(split(text(&v[0]), text(&v[1]), usize::MAX))
    }),
    Row("<string>.split(string, int): list(string)", Walk, |v| {
        Ok(split(text(&v[0]), text(&v[1]), limit(&v[2])))
    }),
    Row("<string>.substring(int): string", Walk, |v| {
        let characters: Vec<char> = text(&v[0]).chars().collect();
        let from = bounded(&v[1], characters.len())?;
        Ok(Value::text(&characters[from..].iter().collect::<String>()))
    }),
    Row("<string>.substring(int, int): string", Walk, |v| {
        let characters: Vec<char> = text(&v[0]).chars().collect();
        let (from, to) = (bounded(&v[1], characters.len())?, bounded(&v[2], characters.len())?);
        match from <= to {
            true => Ok(Value::text(&characters[from..to].iter().collect::<String>())),
            false => Err(failed(format!("invalid substring range. start: {from}, end: {to}"))),
        }
    }),
    Row("<list(string)>.join(): string", Walk, |v| join(&v[0], "")),
    Row("<list(string)>.join(string): string", Walk, |v| {
        join(&v[0], text(&v[1]))
    }),
    Row("strings.quote(string): string", Walk, |v| {
        Ok(Value::text(&format!("{:?}", text(&v[0]))))
    }),
    Row("<string>.format(list(dyn)): string", Walk, format),
];

pub fn text(value: &Value) -> &str {
    value.as_text().unwrap_or_default()
}

fn regex(pattern: &Value) -> Result<Regex, EvalError> {
    Regex::new(text(pattern)).map_err(|error| failed(format!("error parsing regexp: {error}")))
}

fn limit(value: &Value) -> usize {
    match value {
        Value::Int(limit) => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}

/// An index of a text that must lie in it; its end is allowed.
fn bounded(value: &Value, length: usize) -> Result<usize, EvalError> {
    let index = value.integer().unwrap_or(-1);
    match usize::try_from(index) {
        Ok(at) if at <= length => Ok(at),
        _ => Err(failed(format!("index out of range: {index}"))),
    }
}

fn find_all(v: &[Value], limit: usize) -> Result<Value, EvalError> {
    let regex = regex(&v[1])?;
    let found = regex
        .find_iter(text(&v[0]))
        .take(limit)
        .map(|found| Value::text(found.as_str()));
    Ok(Value::list(found.collect()))
}

fn index_of(text: &str, wanted: &str, from: usize) -> Value {
    let start = text.char_indices().nth(from).map_or(text.len(), |(at, _)| at);
    let found = text[start..].find(wanted);
    Value::Int(found.map_or(-1, |at| text[..start + at].chars().count() as i64))
}

fn last_index_of(text: &str, wanted: &str, from: usize) -> Value {
    let mut found = -1;
    for (index, (at, _)) in text.char_indices().chain([(text.len(), ' ')]).enumerate() {
        if index <= from && text[at..].starts_with(wanted) {
            found = index as i64;
        }
    }
    Value::Int(found)
}

fn split(text: &str, separator: &str, limit: usize) -> Value {
    let parts: Vec<Value> = match (limit, separator) {
        (0, _) => Vec::new(),
        (limit, "") => {
            let characters: Vec<String> = text.chars().map(String::from).collect();
            let (alone, rest) = characters.split_at(characters.len().min(limit - 1));
            let rest = (!rest.is_empty()).then(|| rest.concat());
            let single = limit == usize::MAX;
            match single {
                true => characters.iter().map(|part| Value::text(part)).collect(),
                false => alone
                    .iter()
                    .cloned()
                    .chain(rest)
                    .map(|part| Value::text(&part))
                    .collect(),
            }
        }
        (limit, separator) => text.splitn(limit, separator).map(Value::text).collect(),
    };
    Value::list(parts)
}

fn join(list: &Value, separator: &str) -> Result<Value, EvalError> {
    let Value::List(items) = list else {
        return Err(failed("no such overload"));
    };
    let texts: Option<Vec<&str>> = items.iter().map(Value::as_text).collect();
    texts
        .map(|texts| Value::text(&texts.join(separator)))
        .ok_or_else(|| failed("no such overload"))
}

/// `'%s is %d'.format([…])`.
fn format(v: &[Value]) -> Result<Value, EvalError> {
    let Value::List(arguments) = &v[1] else {
        return Err(failed("no such overload"));
    };
    let mut arguments = arguments.iter();
    let mut out = String::new();
    let mut characters = text(&v[0]).chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut precision = None;
        if characters.peek() == Some(&'.') {
            characters.next();
            let mut digits = String::new();
            while let Some(digit) = characters.peek().filter(|c| c.is_ascii_digit()) {
                digits.push(*digit);
                characters.next();
            }
            precision = digits.parse().ok();
        }
        let verb = characters
            .next()
            .ok_or_else(|| failed("could not parse formatting clause: unexpected end of string"))?;
        if verb == '%' {
            out.push('%');
            continue;
        }
        let argument = arguments.next().ok_or_else(|| failed("index out of range"))?;
        out.push_str(&clause(verb, precision, argument)?);
    }
    Ok(Value::text(&out))
}

fn clause(verb: char, precision: Option<usize>, value: &Value) -> Result<String, EvalError> {
    let bad = || failed(format!("error during formatting: no such overload for '%{verb}'"));
    let float = || match value {
        Value::Double(value) => Ok(*value),
        other => other.integer().map(|value| value as f64).ok_or_else(bad),
    };
    Ok(match verb {
        's' => shown(value),
        'd' => match value {
            Value::Double(value) => convert::number(*value),
            other => other.integer().ok_or_else(bad)?.to_string(),
        },
        'f' => format!("{:.*}", precision.unwrap_or(6), float()?),
        'e' => {
            let text = format!("{:.*e}", precision.unwrap_or(6), float()?);
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, digits) = exponent
                .strip_prefix('-')
                .map_or(('+', exponent), |digits| ('-', digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        'b' => match value {
            Value::Bool(value) => u8::from(*value).to_string(),
            other => format!("{:b}", other.integer().ok_or_else(bad)?),
        },
        'o' => format!("{:o}", value.integer().ok_or_else(bad)?),
        'x' => hex(value).ok_or_else(bad)?,
        'X' => hex(value).ok_or_else(bad)?.to_uppercase(),
        _ => {
            return Err(failed(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            )));
        }
    })
}

fn hex(value: &Value) -> Option<String> {
    let of_bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match value {
        Value::String(text) => Some(of_bytes(text.as_bytes())),
        Value::Bytes(bytes) => Some(of_bytes(bytes)),
        other => Some(format!("{:x}", other.integer()?)),
    }
}

/// A value inside of a text: lists and maps as CEL would write them.
fn shown(value: &Value) -> String {
    let listed = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::List(items) => format!("[{}]", listed(items.iter().map(shown).collect())),
        Value::Map(entries) => {
            let parts = entries.iter().map(|(key, value)| format!("{key}: {}", shown(value)));
            format!("{{{}}}", listed(parts.collect()))
        }
        Value::Null => "null".to_owned(),
        other => convert::to_text(other).unwrap_or_default(),
    }
}
