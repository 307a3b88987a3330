//! Values that may be absent.

use super::Price::Step;
use super::Row;
use crate::Value;
use crate::error::failed;

pub const TABLE: &[Row] = &[
    Row("optional.of(A): optional(A)", Step, |v| {
        Ok(Value::optional(Some(v[0].clone())))
    }),
    Row("optional.ofNonZeroValue(A): optional(A)", Step, |v| {
        Ok(Value::optional((!is_zero(&v[0])).then(|| v[0].clone())))
    }),
    Row("optional.none(): optional(dyn)", Step, |_| Ok(Value::Optional(None))),
    Row("<optional(A)>.hasValue(): bool", Step, |v| {
        Ok(Value::Bool(matches!(v[0], Value::Optional(Some(_)))))
    }),
    Row("<optional(A)>.value(): A", Step, |v| match &v[0] {
        Value::Optional(Some(held)) => Ok((**held).clone()),
        _ => Err(failed("optional.none() dereference")),
    }),
    Row("<optional(A)>.or(optional(A)): optional(A)", Step, |v| match &v[0] {
        Value::Optional(None) => Ok(v[1].clone()),
        held => Ok(held.clone()),
    }),
    Row("<optional(A)>.orValue(A): A", Step, |v| match &v[0] {
        Value::Optional(Some(held)) => Ok((**held).clone()),
        _ => Ok(v[1].clone()),
    }),
    Row("optional.unwrap(list(optional(A))): list(A)", Step, |v| {
        Ok(unwrap(&v[0]))
    }),
    Row("<list(optional(A))>.unwrapOpt(): list(A)", Step, |v| Ok(unwrap(&v[0]))),
];

fn unwrap(list: &Value) -> Value {
    let Value::List(items) = list else {
        return Value::list(Vec::new());
    };
    let held = items.iter().filter_map(|item| match item {
        Value::Optional(held) => held.as_deref().cloned(),
        other => Some(other.clone()),
    });
    Value::list(held.collect())
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Duration(0) => true,
        Value::Double(value) => *value == 0.0,
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => crate::cost::size(value) == 0,
        _ => false,
    }
}
