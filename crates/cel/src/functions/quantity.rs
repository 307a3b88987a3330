//! Quantities of resources: `quantity('1.5Gi')`.

use std::cmp::Ordering;
use std::sync::Arc;

use schema::quantity::{Format, Quantity};

use super::Price::Step;
use super::{Row, strings};
use crate::error::failed;
use crate::{EvalError, Value};

pub const TABLE: &[Row] = &[
    Row("quantity(string): quantity", Step, |v| {
        let parsed: Result<Quantity, _> = strings::text(&v[0]).parse();
        parsed
            .map(|quantity| Value::Quantity(Arc::new(quantity)))
            .map_err(|error| failed(error.to_string()))
    }),
    Row("isQuantity(string): bool", Step, |v| {
        Ok(Value::Bool(strings::text(&v[0]).parse::<Quantity>().is_ok()))
    }),
    Row("<quantity>.sign(): int", Step, |v| {
        let quantity = as_quantity(&v[0])?;
        Ok(Value::Int(if quantity.is_zero() {
            0
        } else if quantity.is_negative() {
            -1
        } else {
            1
        }))
    }),
    Row("<quantity>.add(quantity): quantity", Step, |v| {
        combine(&v[0], as_quantity(&v[1])?, Quantity::add)
    }),
    Row("<quantity>.add(int): quantity", Step, |v| {
        combine(&v[0], &whole(&v[1]), Quantity::add)
    }),
    Row("<quantity>.sub(quantity): quantity", Step, |v| {
        combine(&v[0], as_quantity(&v[1])?, Quantity::sub)
    }),
    Row("<quantity>.sub(int): quantity", Step, |v| {
        combine(&v[0], &whole(&v[1]), Quantity::sub)
    }),
    Row("<quantity>.isLessThan(quantity): bool", Step, |v| {
        Ok(Value::Bool(
            as_quantity(&v[0])?.cmp(as_quantity(&v[1])?) == Ordering::Less,
        ))
    }),
    Row("<quantity>.isGreaterThan(quantity): bool", Step, |v| {
        Ok(Value::Bool(
            as_quantity(&v[0])?.cmp(as_quantity(&v[1])?) == Ordering::Greater,
        ))
    }),
    Row("<quantity>.compareTo(quantity): int", Step, |v| {
        Ok(Value::Int(as_quantity(&v[0])?.cmp(as_quantity(&v[1])?) as i64))
    }),
    Row("<quantity>.asApproximateFloat(): double", Step, |v| {
        Ok(Value::Double(as_quantity(&v[0])?.to_f64()))
    }),
    Row("<quantity>.asInteger(): int", Step, |v| {
        match is_integer(as_quantity(&v[0])?) {
            true => Ok(Value::Int(as_quantity(&v[0])?.value())),
            false => Err(failed("cannot convert value to integer")),
        }
    }),
    Row("<quantity>.isInteger(): bool", Step, |v| {
        Ok(Value::Bool(is_integer(as_quantity(&v[0])?)))
    }),
];

fn as_quantity(value: &Value) -> Result<&Quantity, EvalError> {
    match value {
        Value::Quantity(quantity) => Ok(quantity),
        _ => Err(failed("no such overload")),
    }
}

fn whole(value: &Value) -> Quantity {
    Quantity::new(value.integer().unwrap_or(0) as i64, Format::DecimalSi)
}

fn is_integer(quantity: &Quantity) -> bool {
    Quantity::new(quantity.value(), Format::DecimalSi).cmp(quantity) == Ordering::Equal
}

fn combine(one: &Value, other: &Quantity, apply: fn(&mut Quantity, &Quantity)) -> Result<Value, EvalError> {
    let mut result = as_quantity(one)?.clone();
    apply(&mut result, other);
    Ok(Value::Quantity(Arc::new(result)))
}
