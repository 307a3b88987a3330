//! Runs checked expressions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Expr, Fold, FoldKind, Node};
use crate::cost::{ITERATION, MAKE_LIST, MAKE_MAP, MAKE_STRUCT, STEP};
use crate::error::{EvalError, failed};
use crate::{Budget, Key, Value, functions};

/// Where variables come from.
pub trait Activation {
    fn variable(&self, name: &str) -> Option<Value>;

    /// A field of a variable that is computed only when it is asked for; `None` for ordinary variables.
    fn lazy_field(&self, _name: &str, _field: &str, _budget: &mut Budget) -> Option<Result<Value, EvalError>> {
        None
    }
}

impl Activation for BTreeMap<String, Value> {
    fn variable(&self, name: &str) -> Option<Value> {
        self.get(name).cloned()
    }
}

pub fn evaluate(expr: &Expr, activation: &dyn Activation, budget: &mut Budget) -> Result<Value, EvalError> {
    budget.begin_call();
    let mut evaluator = Evaluator { activation, budget };
    evaluator.eval(expr, None)
}

struct Evaluator<'a> {
    activation: &'a dyn Activation,
    budget: &'a mut Budget,
}

/// Variables that macros bind, innermost first.
#[derive(Clone, Copy)]
struct Scope<'a> {
    name: &'a str,
    value: &'a Value,
    outer: Option<&'a Scope<'a>>,
}

type Outcome = Result<Value, EvalError>;

impl Evaluator<'_> {
    fn eval(&mut self, expr: &Expr, scope: Option<&Scope>) -> Outcome {
        match &expr.node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Ident(name) => self.ident(name, scope),
            Node::Select {
                operand,
                field,
                optional,
            } => self.select(operand, field, *optional, scope),
            // Asking whether a field is there costs nothing beside finding where it would be.
            Node::Has { operand, field } => match self.eval(operand, scope)? {
                Value::Map(fields) | Value::Struct(_, fields) => {
                    Ok(Value::Bool(fields.contains_key(&Key::String(field.as_str().into()))))
                }
                Value::Optional(inner) => {
                    let held = inner.and_then(|inner| member(&inner, field));
                    Ok(Value::Bool(held.is_some()))
                }
                _ => Err(failed("no such overload")),
            },
            Node::Call {
                function,
                target,
                arguments,
            } => {
                let mut values = Vec::with_capacity(arguments.len() + 1);
                for part in target.iter().map(Box::as_ref).chain(arguments) {
                    values.push(self.eval(part, scope)?);
                }
                functions::call(function, target.is_some(), &values, self.budget)
            }
            Node::And(left, right) => self.logic(left, right, false, scope),
            Node::Or(left, right) => self.logic(left, right, true, scope),
            Node::Conditional(condition, yes, no) => match self.eval(condition, scope)? {
                Value::Bool(true) => self.eval(yes, scope),
                Value::Bool(false) => self.eval(no, scope),
                _ => Err(failed("no such overload")),
            },
            Node::List(items) => self.list(items, scope),
            Node::Map(entries) => self.map(entries, scope),
            Node::Struct { name, fields } => self.structure(name, fields, scope),
            Node::Fold(fold) => self.fold(fold, scope),
            Node::Bind { name, value, body } => {
                let value = self.eval(value, scope)?;
                let inner = Scope {
                    name,
                    value: &value,
                    outer: scope,
                };
                self.eval(body, Some(&inner))
            }
            Node::OptionalMap {
                target,
                name,
                body,
                flat,
            } => match self.eval(target, scope)? {
                Value::Optional(None) => Ok(Value::Optional(None)),
                Value::Optional(Some(value)) => {
                    let inner = Scope {
                        name,
                        value: &value,
                        outer: scope,
                    };
                    let mapped = self.eval(body, Some(&inner))?;
                    Ok(if *flat { mapped } else { Value::optional(Some(mapped)) })
                }
                _ => Err(failed("no such overload")),
            },
        }
    }

    fn ident(&mut self, name: &str, mut scope: Option<&Scope>) -> Outcome {
        self.budget.spend(STEP)?;
        while let Some(inner) = scope {
            if inner.name == name {
                return Ok(inner.value.clone());
            }
            scope = inner.outer;
        }
        if let Some(value) = self.activation.variable(name) {
            return Ok(value);
        }
        match functions::is_type_name(name) {
            true => Ok(Value::Type(functions::full_type_name(name).into())),
            false => Err(failed(format!("no such attribute(s): {name}"))),
        }
    }

    fn select(&mut self, operand: &Expr, field: &str, optional: bool, scope: Option<&Scope>) -> Outcome {
        self.budget.spend(STEP)?;
        if let Node::Ident(name) = &operand.node
            && !is_bound(name, scope)
            && let Some(value) = self.activation.lazy_field(name, field, self.budget)
        {
            return value;
        }
        let operand = self.eval(operand, scope)?;
        match (operand, optional) {
            (Value::Optional(None), _) => Ok(Value::Optional(None)),
            (Value::Optional(Some(inner)), _) => Ok(Value::optional(member(&inner, field))),
            (operand @ (Value::Map(_) | Value::Struct(..)), true) => Ok(Value::optional(member(&operand, field))),
            (operand @ (Value::Map(_) | Value::Struct(..)), false) => {
                member(&operand, field).ok_or_else(|| failed(format!("no such key: {field}")))
            }
            _ => Err(failed("no such overload")),
        }
    }

    /// `&&` and `||`: an error on one side does not matter when the other decides.
    fn logic(&mut self, left: &Expr, right: &Expr, decisive: bool, scope: Option<&Scope>) -> Outcome {
        let left = self.eval(left, scope);
        if matches!(&left, Ok(Value::Bool(value)) if *value == decisive) {
            return left;
        }
        if let Err(EvalError::TooExpensive | EvalError::OutOfBudget) = left {
            return left;
        }
        let right = self.eval(right, scope)?;
        match (left, right) {
            (_, Value::Bool(value)) if value == decisive => Ok(Value::Bool(decisive)),
            (Err(error), _) => Err(error),
            (Ok(Value::Bool(_)), Value::Bool(value)) => Ok(Value::Bool(value)),
            _ => Err(failed("no such overload")),
        }
    }

    fn list(&mut self, items: &[(Expr, bool)], scope: Option<&Scope>) -> Outcome {
        self.budget.spend(MAKE_LIST)?;
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            match (self.eval(item, scope)?, optional) {
                (Value::Optional(held), true) => values.extend(held.map(|held| (*held).clone())),
                (value, false) => values.push(value),
                (_, true) => return Err(failed("no such overload")),
            }
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &[(Expr, Expr, bool)], scope: Option<&Scope>) -> Outcome {
        self.budget.spend(MAKE_MAP)?;
        let mut made = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(key, scope)?;
            let key = key.to_key().ok_or_else(|| failed("unsupported key type"))?;
            let value = match (self.eval(value, scope)?, optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(held)), true) => (*held).clone(),
                (value, _) => value,
            };
            if let Some(Key::String(name)) = made.insert(key.clone(), value).map(|_| key) {
                return Err(failed(format!("Failed with repeated key: {name}")));
            }
        }
        Ok(Value::Map(Arc::new(made)))
    }

    fn structure(&mut self, name: &str, fields: &[(String, Expr, bool)], scope: Option<&Scope>) -> Outcome {
        self.budget.spend(MAKE_STRUCT)?;
        let mut made = BTreeMap::new();
        for (field, value, optional) in fields {
            let value = match (self.eval(value, scope)?, optional) {
                (Value::Optional(None), true) => continue,
                (Value::Optional(Some(held)), true) => (*held).clone(),
                (value, _) => value,
            };
            made.insert(Key::String(field.as_str().into()), value);
        }
        Ok(Value::Struct(name.into(), Arc::new(made)))
    }

    fn fold(&mut self, fold: &Fold, scope: Option<&Scope>) -> Outcome {
        let range = self.eval(&fold.range, scope)?;
        let pairs = pairs(&range, fold.second.is_some())?;
        let mut result = Folding::new(fold.kind);
        for (first, second) in pairs {
            self.budget.spend(ITERATION)?;
            let outer = Scope {
                name: &fold.first,
                value: &first,
                outer: scope,
            };
            let inner = Scope {
                name: fold.second.as_deref().unwrap_or(&fold.first),
                value: second.as_ref().unwrap_or(&first),
                outer: Some(&outer),
            };
            if let Some(condition) = &fold.condition
                && !self.eval(condition, Some(&inner))?.is_true()
            {
                continue;
            }
            let body = self.eval(&fold.body, Some(&inner));
            if result.add(first.clone(), body)? {
                break;
            }
        }
        result.finish()
    }
}

fn is_bound(name: &str, mut scope: Option<&Scope>) -> bool {
    while let Some(inner) = scope {
        if inner.name == name {
            return true;
        }
        scope = inner.outer;
    }
    false
}

pub fn member(value: &Value, field: &str) -> Option<Value> {
    match value {
        Value::Map(fields) | Value::Struct(_, fields) => fields.get(&Key::String(field.into())).cloned(),
        _ => None,
    }
}

/// What a macro goes over: the items of a list or the keys of a map; with two variables, also the other half.
fn pairs(range: &Value, two: bool) -> Result<Vec<(Value, Option<Value>)>, EvalError> {
    match range {
        Value::List(items) if two => {
            let numbered = items.iter().enumerate();
            Ok(numbered
                .map(|(index, item)| (Value::Int(index as i64), Some(item.clone())))
                .collect())
        }
        Value::List(items) => Ok(items.iter().map(|item| (item.clone(), None)).collect()),
        Value::Map(entries) | Value::Struct(_, entries) => {
            let entries = entries.iter();
            Ok(entries
                .map(|(key, value)| (key.to_value(), two.then(|| value.clone())))
                .collect())
        }
        _ => Err(failed("no such overload")),
    }
}

/// The accumulator of a macro.
struct Folding {
    kind: FoldKind,
    count: usize,
    items: Vec<Value>,
    entries: BTreeMap<Key, Value>,
    error: Option<EvalError>,
}

impl Folding {
    fn new(kind: FoldKind) -> Folding {
        Folding {
            kind,
            count: 0,
            items: Vec::new(),
            entries: BTreeMap::new(),
            error: None,
        }
    }

    /// Adds the body's value for one item; whether the result is already decided.
    fn add(&mut self, item: Value, body: Outcome) -> Result<bool, EvalError> {
        match self.kind {
            FoldKind::All | FoldKind::Exists => {
                let decisive = self.kind == FoldKind::Exists;
                match body {
                    Ok(Value::Bool(value)) if value == decisive => {
                        self.count = 1;
                        return Ok(true);
                    }
                    Ok(Value::Bool(_)) => {}
                    Err(error @ (EvalError::TooExpensive | EvalError::OutOfBudget)) => return Err(error),
                    Err(error) => self.error = Some(error),
                    Ok(_) => self.error = Some(failed("no such overload")),
                }
            }
            FoldKind::ExistsOne => self.count += usize::from(body?.is_true()),
            FoldKind::Filter => {
                if body?.is_true() {
                    self.items.push(item);
                }
            }
            FoldKind::Map | FoldKind::TransformList => self.items.push(body?),
            FoldKind::TransformMap => {
                let key = item.to_key().ok_or_else(|| failed("unsupported key type"))?;
                self.entries.insert(key, body?);
            }
            FoldKind::TransformMapEntry => match body? {
                Value::Map(made) => self.entries.extend((*made).clone()),
                _ => return Err(failed("no such overload")),
            },
        }
        Ok(false)
    }

    fn finish(self) -> Outcome {
        match self.kind {
            FoldKind::All | FoldKind::Exists => match (self.count, self.error) {
                (0, Some(error)) => Err(error),
                (0, None) => Ok(Value::Bool(self.kind == FoldKind::All)),
                _ => Ok(Value::Bool(self.kind == FoldKind::Exists)),
            },
            FoldKind::ExistsOne => Ok(Value::Bool(self.count == 1)),
            FoldKind::Map | FoldKind::Filter | FoldKind::TransformList => Ok(Value::list(self.items)),
            FoldKind::TransformMap | FoldKind::TransformMapEntry => Ok(Value::Map(Arc::new(self.entries))),
        }
    }
}
