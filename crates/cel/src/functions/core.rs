//! Operators: arithmetic, comparison, membership, indexes.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Price::{Product, Step, Walk};
use super::{Row, Run};
use crate::error::failed;
use crate::{EvalError, Value};

const LESS: Run = |v| order(v, |o| o == Ordering::Less);
const LESS_EQUAL: Run = |v| order(v, |o| o != Ordering::Greater);
const GREATER: Run = |v| order(v, |o| o == Ordering::Greater);
const GREATER_EQUAL: Run = |v| order(v, |o| o != Ordering::Less);

pub const TABLE: &[Row] = &[
    Row("_==_(A, A): bool", Walk, |v| Ok(Value::Bool(v[0].equals(&v[1])))),
    Row("_!=_(A, A): bool", Walk, |v| Ok(Value::Bool(!v[0].equals(&v[1])))),
    Row("!_(bool): bool", Step, |v| Ok(Value::Bool(!v[0].is_true()))),
    Row("-_(int): int", Step, negate),
    Row("-_(double): double", Step, negate),
    Row("_+_(int, int): int", Step, add),
    Row("_+_(uint, uint): uint", Step, add),
    Row("_+_(double, double): double", Step, add),
    Row("_+_(string, string): string", Walk, add),
    Row("_+_(bytes, bytes): bytes", Walk, add),
    Row("_+_(list(A), list(A)): list(A)", Step, add),
    Row("_+_(timestamp, duration): timestamp", Step, add),
    Row("_+_(duration, timestamp): timestamp", Step, add),
    Row("_+_(duration, duration): duration", Step, add),
    Row("_-_(int, int): int", Step, subtract),
    Row("_-_(uint, uint): uint", Step, subtract),
    Row("_-_(double, double): double", Step, subtract),
    Row("_-_(timestamp, timestamp): duration", Step, subtract),
    Row("_-_(timestamp, duration): timestamp", Step, subtract),
    Row("_-_(duration, duration): duration", Step, subtract),
    Row("_*_(int, int): int", Step, multiply),
    Row("_*_(uint, uint): uint", Step, multiply),
    Row("_*_(double, double): double", Step, multiply),
    Row("_/_(int, int): int", Step, divide),
    Row("_/_(uint, uint): uint", Step, divide),
    Row("_/_(double, double): double", Step, divide),
    Row("_%_(int, int): int", Step, modulo),
    Row("_%_(uint, uint): uint", Step, modulo),
    Row("_<_(A, A): bool", Walk, LESS),
    Row("_<_(int, double): bool", Step, LESS),
    Row("_<_(double, int): bool", Step, LESS),
    Row("_<_(int, uint): bool", Step, LESS),
    Row("_<_(uint, int): bool", Step, LESS),
    Row("_<=_(A, A): bool", Walk, LESS_EQUAL),
    Row("_<=_(int, double): bool", Step, LESS_EQUAL),
    Row("_<=_(double, int): bool", Step, LESS_EQUAL),
    Row("_<=_(int, uint): bool", Step, LESS_EQUAL),
    Row("_<=_(uint, int): bool", Step, LESS_EQUAL),
    Row("_>_(A, A): bool", Walk, GREATER),
    Row("_>_(int, double): bool", Step, GREATER),
    Row("_>_(double, int): bool", Step, GREATER),
    Row("_>_(int, uint): bool", Step, GREATER),
    Row("_>_(uint, int): bool", Step, GREATER),
    Row("_>=_(A, A): bool", Walk, GREATER_EQUAL),
    Row("_>=_(int, double): bool", Step, GREATER_EQUAL),
    Row("_>=_(double, int): bool", Step, GREATER_EQUAL),
    Row("_>=_(int, uint): bool", Step, GREATER_EQUAL),
    Row("_>=_(uint, int): bool", Step, GREATER_EQUAL),
    Row("@in(A, list(A)): bool", Product, |v| contains(&v[0], &v[1])),
    Row("@in(A, map(A, B)): bool", Step, |v| contains(&v[0], &v[1])),
    Row("_[_](list(A), int): A", Step, index),
    Row("_[_](map(A, B), A): B", Step, index),
    Row("_[_](optional(list(A)), int): optional(A)", Step, optional_index),
    Row("_[_](optional(map(A, B)), A): optional(B)", Step, optional_index),
    Row("_[?_](list(A), int): optional(A)", Step, optional_index),
    Row("_[?_](map(A, B), A): optional(B)", Step, optional_index),
    Row("_[?_](optional(list(A)), int): optional(A)", Step, optional_index),
    Row("_[?_](optional(map(A, B)), A): optional(B)", Step, optional_index),
    Row("type(A): type", Step, |v| Ok(Value::Type(v[0].type_name().into()))),
    Row("dyn(A): dyn", Step, |v| Ok(v[0].clone())),
    Row("size(string): int", Walk, size),
    Row("size(bytes): int", Step, size),
    Row("size(list(A)): int", Step, size),
    Row("size(map(A, B)): int", Step, size),
    Row("<string>.size(): int", Walk, size),
    Row("<bytes>.size(): int", Step, size),
    Row("<list(A)>.size(): int", Step, size),
    Row("<map(A, B)>.size(): int", Step, size),
];

fn overflow<T>(value: Option<T>) -> Result<T, EvalError> {
    value.ok_or_else(|| failed("integer overflow"))
}

fn no_overload() -> EvalError {
    failed("no such overload")
}

fn negate(v: &[Value]) -> Result<Value, EvalError> {
    match &v[0] {
        Value::Int(value) => overflow(value.checked_neg()).map(Value::Int),
        Value::Double(value) => Ok(Value::Double(-value)),
        _ => Err(no_overload()),
    }
}

fn add(v: &[Value]) -> Result<Value, EvalError> {
    Ok(match (&v[0], &v[1]) {
        (Value::Int(one), Value::Int(other)) => Value::Int(overflow(one.checked_add(*other))?),
        (Value::Uint(one), Value::Uint(other)) => Value::Uint(overflow(one.checked_add(*other))?),
        (Value::Double(one), Value::Double(other)) => Value::Double(one + other),
        (Value::String(one), Value::String(other)) => Value::text(&format!("{one}{other}")),
        (Value::Bytes(one), Value::Bytes(other)) => Value::Bytes([&**one, &**other].concat().into()),
        (Value::List(one), Value::List(other)) => {
            let mut items = (**one).clone();
            items.extend(other.iter().cloned());
            Value::List(Arc::new(items))
        }
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            Value::Timestamp(at + i128::from(*by))
        }
        (Value::Duration(one), Value::Duration(other)) => Value::Duration(overflow(one.checked_add(*other))?),
        _ => return Err(no_overload()),
    })
}

fn subtract(v: &[Value]) -> Result<Value, EvalError> {
    Ok(match (&v[0], &v[1]) {
        (Value::Int(one), Value::Int(other)) => Value::Int(overflow(one.checked_sub(*other))?),
        (Value::Uint(one), Value::Uint(other)) => Value::Uint(overflow(one.checked_sub(*other))?),
        (Value::Double(one), Value::Double(other)) => Value::Double(one - other),
        (Value::Timestamp(one), Value::Timestamp(other)) => Value::Duration(overflow(i64::try_from(one - other).ok())?),
        (Value::Timestamp(at), Value::Duration(by)) => Value::Timestamp(at - i128::from(*by)),
        (Value::Duration(one), Value::Duration(other)) => Value::Duration(overflow(one.checked_sub(*other))?),
        _ => return Err(no_overload()),
    })
}

fn multiply(v: &[Value]) -> Result<Value, EvalError> {
    Ok(match (&v[0], &v[1]) {
        (Value::Int(one), Value::Int(other)) => Value::Int(overflow(one.checked_mul(*other))?),
        (Value::Uint(one), Value::Uint(other)) => Value::Uint(overflow(one.checked_mul(*other))?),
        (Value::Double(one), Value::Double(other)) => Value::Double(one * other),
        _ => return Err(no_overload()),
    })
}

fn divide(v: &[Value]) -> Result<Value, EvalError> {
    match (&v[0], &v[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(failed("division by zero")),
        (Value::Int(one), Value::Int(other)) => overflow(one.checked_div(*other)).map(Value::Int),
        (Value::Uint(one), Value::Uint(other)) => Ok(Value::Uint(one / other)),
        (Value::Double(one), Value::Double(other)) => Ok(Value::Double(one / other)),
        _ => Err(no_overload()),
    }
}

fn modulo(v: &[Value]) -> Result<Value, EvalError> {
    match (&v[0], &v[1]) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(failed("modulus by zero")),
        (Value::Int(one), Value::Int(other)) => overflow(one.checked_rem(*other)).map(Value::Int),
        (Value::Uint(one), Value::Uint(other)) => Ok(Value::Uint(one % other)),
        _ => Err(no_overload()),
    }
}

fn order(v: &[Value], holds: fn(Ordering) -> bool) -> Result<Value, EvalError> {
    let order = v[0].compare(&v[1]).ok_or_else(no_overload)?;
    Ok(Value::Bool(holds(order)))
}

fn contains(item: &Value, of: &Value) -> Result<Value, EvalError> {
    Ok(Value::Bool(match of {
        Value::List(items) => items.iter().any(|known| known.equals(item)),
        Value::Map(entries) => item.to_key().is_some_and(|key| entries.contains_key(&key)),
        _ => return Err(no_overload()),
    }))
}

fn find(of: &Value, at: &Value) -> Result<Option<Value>, EvalError> {
    match of {
        Value::List(items) => {
            let index = at.to_key().ok_or_else(no_overload)?;
            let crate::Key::Number(index) = index else {
                return Err(no_overload());
            };
            Ok(usize::try_from(index).ok().and_then(|index| items.get(index).cloned()))
        }
        Value::Map(entries) => Ok(at.to_key().and_then(|key| entries.get(&key).cloned())),
        Value::Struct(_, entries) => Ok(at.to_key().and_then(|key| entries.get(&key).cloned())),
        _ => Err(no_overload()),
    }
}

fn index(v: &[Value]) -> Result<Value, EvalError> {
    let shown = || v[1].to_key().map(|key| key.to_string()).unwrap_or_default();
    find(&v[0], &v[1])?.ok_or_else(|| match &v[0] {
        Value::List(_) => failed(format!("index out of bounds: {}", shown())),
        _ => failed(format!("no such key: {}", shown())),
    })
}

fn optional_index(v: &[Value]) -> Result<Value, EvalError> {
    match &v[0] {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(held)) => find(held, &v[1]).map(Value::optional),
        of => find(of, &v[1]).map(Value::optional),
    }
}

fn size(v: &[Value]) -> Result<Value, EvalError> {
    Ok(Value::Int(crate::cost::size(&v[0]) as i64))
}
