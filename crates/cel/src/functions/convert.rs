//! Conversions between types.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::Price::{Step, Walk};
use super::{Row, time};
use crate::error::failed;
use crate::{EvalError, Value};

pub const TABLE: &[Row] = &[
    Row("bool(bool): bool", Step, |v| Ok(v[0].clone())),
    Row("bool(string): bool", Step, to_bool),
    Row("int(int): int", Step, to_int),
    Row("int(uint): int", Step, to_int),
    Row("int(double): int", Step, to_int),
    Row("int(string): int", Walk, to_int),
    Row("int(timestamp): int", Step, to_int),
    Row("int(duration): int", Step, to_int),
    Row("uint(uint): uint", Step, to_uint),
    Row("uint(int): uint", Step, to_uint),
    Row("uint(double): uint", Step, to_uint),
    Row("uint(string): uint", Walk, to_uint),
    Row("double(double): double", Step, to_double),
    Row("double(int): double", Step, to_double),
    Row("double(uint): double", Step, to_double),
    Row("double(string): double", Walk, to_double),
    Row("string(A): string", Walk, |v| {
        to_text(&v[0])
            .map(|text| Value::text(&text))
            .ok_or_else(|| failed("no such overload"))
    }),
    Row("bytes(bytes): bytes", Step, |v| Ok(v[0].clone())),
    Row("bytes(string): bytes", Walk, |v| {
        Ok(Value::Bytes(v[0].as_text().unwrap_or_default().as_bytes().into()))
    }),
    Row("base64.encode(bytes): string", Walk, |v| match &v[0] {
        Value::Bytes(bytes) => Ok(Value::text(&STANDARD.encode(bytes))),
        _ => Err(failed("no such overload")),
    }),
    Row("base64.decode(string): bytes", Walk, |v| {
        let text = v[0].as_text().unwrap_or_default();
        let decoded = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
        decoded
            .map(|bytes| Value::Bytes(bytes.into()))
            .map_err(|error| failed(error.to_string()))
    }),
];

fn range(what: &str) -> EvalError {
    failed(format!("{what} range"))
}

fn to_bool(v: &[Value]) -> Result<Value, EvalError> {
    match v[0].as_text() {
        Some("true" | "True" | "TRUE" | "t" | "1") => Ok(Value::Bool(true)),
        Some("false" | "False" | "FALSE" | "f" | "0") => Ok(Value::Bool(false)),
        other => Err(failed(format!(
            "type conversion error from 'string' to 'bool': {}",
            other.unwrap_or_default()
        ))),
    }
}

fn to_int(v: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Int(match &v[0] {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| failed("integer overflow"))?,
        Value::Double(value) if value.abs() < 9.223_372_036_854_776e18 => *value as i64,
        Value::Double(_) => return Err(failed("integer overflow")),
        Value::String(text) => text
            .parse()
            .map_err(|_| failed(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))?,
        Value::Timestamp(at) => i64::try_from(at.div_euclid(1_000_000_000)).map_err(|_| range("int"))?,
        Value::Duration(nanos) => *nanos,
        _ => return Err(failed("no such overload")),
    }))
}

fn to_uint(v: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Uint(match &v[0] {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| failed("unsigned integer overflow"))?,
        Value::Double(value) if *value >= 0.0 && *value < 1.844_674_407_370_955_2e19 => *value as u64,
        Value::Double(_) => return Err(failed("unsigned integer overflow")),
        Value::String(text) => text
            .parse()
            .map_err(|_| failed(format!("strconv.ParseUint: parsing {text:?}: invalid syntax")))?,
        _ => return Err(failed("no such overload")),
    }))
}

fn to_double(v: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Double(match &v[0] {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => text
            .parse()
            .map_err(|_| failed(format!("strconv.ParseFloat: parsing {text:?}: invalid syntax")))?,
        _ => return Err(failed("no such overload")),
    }))
}

/// The text of values that have one.
pub fn to_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => number(*value),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Value::Timestamp(at) => time::format(*at),
        Value::Duration(nanos) => time::format_duration(*nanos),
        Value::Type(name) => name.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(address, bits) => format!("{address}/{bits}"),
        Value::Quantity(quantity) => quantity.to_string(),
        Value::Semver(version) => version.to_string(),
        Value::Url(url) => url.to_string(),
        _ => return None,
    })
}

/// A double as Go's `%g` prints it.
pub fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        value if value != 0.0 && !(1e-4..1e21).contains(&value.abs()) => {
            let text = format!("{value:e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (sign, digits) = exponent
                .strip_prefix('-')
                .map_or(('+', exponent), |digits| ('-', digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        value => value.to_string(),
    }
}
