//! Lists as sequences and as sets.

use std::cmp::Ordering;

use super::Price::{Product, Walk};
use super::Row;
use crate::error::failed;
use crate::{EvalError, Value};

pub const TABLE: &[Row] = &[
    Row("<list(A)>.isSorted(): bool", Walk, |v| {
        let items = items(&v[0]);
        let ordered = items.windows(2).all(|pair| {
            pair[0]
                .compare(&pair[1])
                .is_some_and(|order| order != Ordering::Greater)
        });
        Ok(Value::Bool(ordered))
    }),
    Row("<list(A)>.sum(): A", Walk, sum),
    Row("<list(A)>.min(): A", Walk, |v| extreme(v, Ordering::Less, "min")),
    Row("<list(A)>.max(): A", Walk, |v| extreme(v, Ordering::Greater, "max")),
    Row("<list(A)>.indexOf(A): int", Walk, |v| {
        Ok(place(items(&v[0]).iter().position(|item| item.equals(&v[1]))))
    }),
    Row("<list(A)>.lastIndexOf(A): int", Walk, |v| {
        Ok(place(items(&v[0]).iter().rposition(|item| item.equals(&v[1]))))
    }),
    Row("<list(A)>.slice(int, int): list(A)", Walk, slice),
    Row("<list(A)>.reverse(): list(A)", Walk, |v| {
        Ok(Value::list(items(&v[0]).iter().rev().cloned().collect()))
    }),
    Row("<list(A)>.distinct(): list(A)", Product, |v| {
        Ok(Value::list(distinct(items(&v[0]))))
    }),
    Row("<list(A)>.sort(): list(A)", Walk, |v| {
        let mut sorted = items(&v[0]).to_vec();
        sorted.sort_by(|one, other| one.compare(other).unwrap_or(Ordering::Equal));
        Ok(Value::list(sorted))
    }),
    Row("<list(A)>.flatten(): list(dyn)", Walk, |v| {
        Ok(Value::list(flatten(items(&v[0]), 1)))
    }),
    Row("<list(A)>.flatten(int): list(dyn)", Walk, |v| {
        let depth = v[1].integer().unwrap_or(1).clamp(0, 64) as usize;
        Ok(Value::list(flatten(items(&v[0]), depth)))
    }),
    Row("<list(A)>.first(): optional(A)", Walk, |v| {
        Ok(Value::optional(items(&v[0]).first().cloned()))
    }),
    Row("<list(A)>.last(): optional(A)", Walk, |v| {
        Ok(Value::optional(items(&v[0]).last().cloned()))
    }),
    Row("lists.range(int): list(int)", Walk, |v| {
        let count = v[0].integer().unwrap_or(0);
        match count <= MAX_RANGE {
            true => Ok(Value::list((0..count as i64).map(Value::Int).collect())),
            false => Err(failed(format!("range of {count} is too long"))),
        }
    }),
    Row("sets.contains(list(A), list(A)): bool", Product, |v| {
        Ok(Value::Bool(covers(items(&v[0]), items(&v[1]))))
    }),
    Row("sets.equivalent(list(A), list(A)): bool", Product, |v| {
        let (one, other) = (items(&v[0]), items(&v[1]));
        Ok(Value::Bool(covers(one, other) && covers(other, one)))
    }),
    Row("sets.intersects(list(A), list(A)): bool", Product, |v| {
        let other = items(&v[1]);
        Ok(Value::Bool(
            items(&v[0])
                .iter()
                .any(|item| other.iter().any(|known| known.equals(item))),
        ))
    }),
];

/// The longest list that `lists.range` makes.
const MAX_RANGE: i128 = 1_000_000;

fn items(value: &Value) -> &[Value] {
    match value {
        Value::List(items) => items,
        _ => &[],
    }
}

fn place(at: Option<usize>) -> Value {
    Value::Int(at.map_or(-1, |at| at as i64))
}

fn covers(all: &[Value], wanted: &[Value]) -> bool {
    wanted.iter().all(|item| all.iter().any(|known| known.equals(item)))
}

fn distinct(items: &[Value]) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    for item in items {
        if !seen.iter().any(|known| known.equals(item)) {
            seen.push(item.clone());
        }
    }
    seen
}

fn flatten(items: &[Value], depth: usize) -> Vec<Value> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            Value::List(inner) if depth > 0 => flat.extend(flatten(inner, depth - 1)),
            other => flat.push(other.clone()),
        }
    }
    flat
}

fn sum(v: &[Value]) -> Result<Value, EvalError> {
    let mut total: Option<Value> = None;
    for item in items(&v[0]) {
        total = Some(match (total, item) {
            (None, item) => item.clone(),
            (Some(Value::Int(one)), Value::Int(other)) => {
                Value::Int(one.checked_add(*other).ok_or_else(|| failed("integer overflow"))?)
            }
            (Some(Value::Uint(one)), Value::Uint(other)) => {
                Value::Uint(one.checked_add(*other).ok_or_else(|| failed("integer overflow"))?)
            }
            (Some(Value::Double(one)), Value::Double(other)) => Value::Double(one + other),
            (Some(Value::Duration(one)), Value::Duration(other)) => {
                Value::Duration(one.checked_add(*other).ok_or_else(|| failed("integer overflow"))?)
            }
            _ => return Err(failed("no such overload")),
        });
    }
    Ok(total.unwrap_or(Value::Int(0)))
}

fn extreme(v: &[Value], wanted: Ordering, name: &str) -> Result<Value, EvalError> {
    let mut items = items(&v[0]).iter();
    let first = items
        .next()
        .ok_or_else(|| failed(format!("{name} called on empty list")))?;
    let mut best = first;
    for item in items {
        if item.compare(best).ok_or_else(|| failed("no such overload"))? == wanted {
            best = item;
        }
    }
    Ok(best.clone())
}

fn slice(v: &[Value]) -> Result<Value, EvalError> {
    let items = items(&v[0]);
    let bound = |value: &Value| value.integer().and_then(|at| usize::try_from(at).ok());
    match (bound(&v[1]), bound(&v[2])) {
        (Some(from), Some(to)) if from <= to && to <= items.len() => Ok(Value::list(items[from..to].to_vec())),
        _ => Err(failed("cannot slice: the range lies outside of the list")),
    }
}
