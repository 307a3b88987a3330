//! `math`: extremes, rounding and bits.

use std::cmp::Ordering;

use super::Price::{Step, Walk};
use super::{Row, Run};
use crate::error::failed;
use crate::{EvalError, Value};

const GREATEST: Run = |v| pick(v, Ordering::Greater);
const LEAST: Run = |v| pick(v, Ordering::Less);

pub const TABLE: &[Row] = &[
    Row("math.greatest(list(A)): A", Walk, |v| {
        pick_list(&v[0], Ordering::Greater)
    }),
    Row("math.greatest(A): A", Step, GREATEST),
    Row("math.greatest(A, B): dyn", Step, GREATEST),
    Row("math.greatest(A, B, dyn): dyn", Step, GREATEST),
    Row("math.greatest(A, B, dyn, dyn): dyn", Step, GREATEST),
    Row("math.least(list(A)): A", Walk, |v| pick_list(&v[0], Ordering::Less)),
    Row("math.least(A): A", Step, LEAST),
    Row("math.least(A, B): dyn", Step, LEAST),
    Row("math.least(A, B, dyn): dyn", Step, LEAST),
    Row("math.least(A, B, dyn, dyn): dyn", Step, LEAST),
    Row("math.abs(int): int", Step, |v| match &v[0] {
        Value::Int(value) => value
            .checked_abs()
            .map(Value::Int)
            .ok_or_else(|| failed("integer overflow")),
        _ => Err(failed("no such overload")),
    }),
    Row("math.abs(uint): uint", Step, |v| Ok(v[0].clone())),
    Row("math.abs(double): double", Step, |v| double(v, f64::abs)),
    Row("math.ceil(double): double", Step, |v| double(v, f64::ceil)),
    Row("math.floor(double): double", Step, |v| double(v, f64::floor)),
    Row("math.round(double): double", Step, |v| double(v, f64::round)),
    Row("math.trunc(double): double", Step, |v| double(v, f64::trunc)),
    Row("math.sqrt(double): double", Step, |v| double(v, f64::sqrt)),
    Row("math.sqrt(int): double", Step, |v| double(v, f64::sqrt)),
    Row("math.isNaN(double): bool", Step, |v| {
        Ok(Value::Bool(matches!(v[0], Value::Double(value) if value.is_nan())))
    }),
    Row("math.isInf(double): bool", Step, |v| {
        Ok(Value::Bool(matches!(v[0], Value::Double(value) if value.is_infinite())))
    }),
    Row("math.isFinite(double): bool", Step, |v| {
        Ok(Value::Bool(matches!(v[0], Value::Double(value) if value.is_finite())))
    }),
    Row("math.sign(int): int", Step, |v| {
        Ok(Value::Int(v[0].integer().unwrap_or(0).signum() as i64))
    }),
    Row("math.sign(double): double", Step, |v| {
        double(v, |value| if value == 0.0 { 0.0 } else { value.signum() })
    }),
    Row("math.bitAnd(int, int): int", Step, |v| {
        bits(v, |one, other| one & other)
    }),
    Row("math.bitOr(int, int): int", Step, |v| bits(v, |one, other| one | other)),
    Row("math.bitXor(int, int): int", Step, |v| {
        bits(v, |one, other| one ^ other)
    }),
    Row("math.bitNot(int): int", Step, |v| {
        Ok(Value::Int(!(v[0].integer().unwrap_or(0) as i64)))
    }),
    Row("math.bitShiftLeft(int, int): int", Step, |v| {
        bits(v, |one, by| if (0..64).contains(&by) { one << by } else { 0 })
    }),
    Row("math.bitShiftRight(int, int): int", Step, |v| {
        bits(v, |one, by| {
            if (0..64).contains(&by) {
                ((one as u64) >> by) as i64
            } else {
                0
            }
        })
    }),
];

fn pick(values: &[Value], wanted: Ordering) -> Result<Value, EvalError> {
    let mut best = &values[0];
    for value in values {
        if value.compare(best).ok_or_else(|| failed("no such overload"))? == wanted {
            best = value;
        }
    }
    Ok(best.clone())
}

fn pick_list(list: &Value, wanted: Ordering) -> Result<Value, EvalError> {
    match list {
        Value::List(items) if !items.is_empty() => pick(items, wanted),
        _ => Err(failed("math: the list must not be empty")),
    }
}

fn double(v: &[Value], apply: fn(f64) -> f64) -> Result<Value, EvalError> {
    match &v[0] {
        Value::Double(value) => Ok(Value::Double(apply(*value))),
        Value::Int(value) => Ok(Value::Double(apply(*value as f64))),
        _ => Err(failed("no such overload")),
    }
}

fn bits(v: &[Value], apply: fn(i64, i64) -> i64) -> Result<Value, EvalError> {
    match (&v[0], &v[1]) {
        (Value::Int(one), Value::Int(other)) => Ok(Value::Int(apply(*one, *other))),
        _ => Err(failed("no such overload")),
    }
}
