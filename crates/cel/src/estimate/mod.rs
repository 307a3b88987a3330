//! What an expression may cost at most, from the sizes that a schema allows, in upstream's units.
//!
//! The figures are part of the API: they decide which rules may stand in a definition. Macros count as the loops that
//! cel-go makes of them.

mod calls;
mod size;

use crate::ast::{Expr, Fold, FoldKind, Node};
use crate::check::{Environment, Facts};
use crate::cost::{MAKE_LIST, MAKE_MAP, MAKE_STRUCT};
use crate::{Type, Value};
pub use size::Size;
use size::size_of_type;

/// One step from a variable to the value that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Field(String),
    Items,
    Indices,
    Keys,
    Values,
}

/// Says how large values may be by where they come from. The first step names the variable.
pub trait Sizes {
    fn max_elements(&self, path: &[Step]) -> Option<u64>;
}

/// The greatest cost of a checked expression.
pub fn max_cost(expr: &Expr, environment: &Environment, sizes: &dyn Sizes) -> u64 {
    let facts = Facts::of(expr, environment);
    let estimator = Estimator { facts: &facts, sizes };
    estimator.of(expr, None).cost
}

/// What is known of a part of an expression.
#[derive(Clone, Debug, Default)]
struct Estimate {
    cost: u64,
    size: Option<Size>,
    /// The size of the items of a list, or of the values of a map, that the expression itself makes.
    items: Option<Size>,
    path: Vec<Step>,
}

impl Estimate {
    fn size(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }
}

/// A variable that a macro binds, innermost first.
struct Scope<'a> {
    name: &'a str,
    local: Estimate,
    outer: Option<&'a Scope<'a>>,
}

struct Estimator<'a> {
    facts: &'a Facts,
    sizes: &'a dyn Sizes,
}

/// Looking at the accumulator of a loop, or at any variable.
const IDENT: u64 = 1;

impl Estimator<'_> {
    fn type_of(&self, expr: &Expr) -> Type {
        self.facts.type_of(expr)
    }

    /// The size of what is found at a path, or of any value of the type.
    fn found_size(&self, path: &[Step], ty: &Type) -> Option<Size> {
        let by_path = match path {
            [] => None,
            path => self.sizes.max_elements(path).map(|max| Size { min: 0, max }),
        };
        by_path.or_else(|| size_of_type(ty))
    }

    fn of(&self, expr: &Expr, scope: Option<&Scope>) -> Estimate {
        match &expr.node {
            Node::Literal(value) => Estimate {
                size: size_of_literal(value),
                ..Estimate::default()
            },
            Node::Ident(name) => self.ident(expr, name, scope),
            Node::Select {
                operand,
                field,
                optional,
            } => self.select(expr, operand, field, *optional, scope),
            Node::Has { operand, .. } => Estimate {
                cost: self.of(operand, scope).cost,
                size: Some(Size::exactly(1)),
                ..Estimate::default()
            },
            Node::Call {
                function,
                target,
                arguments,
            } => self.call(expr, function, target.as_deref(), arguments, scope),
            Node::And(left, right) | Node::Or(left, right) => Estimate {
                cost: self.of(left, scope).cost.saturating_add(self.of(right, scope).cost),
                size: Some(Size::exactly(1)),
                ..Estimate::default()
            },
            Node::Conditional(condition, yes, no) => {
                let condition = self.of(condition, scope).cost;
                either(condition, self.of(yes, scope), self.of(no, scope))
            }
            Node::List(items) => {
                let items: Vec<Estimate> = items.iter().map(|(item, _)| self.of(item, scope)).collect();
                made(MAKE_LIST, items.len(), &items, &items)
            }
            Node::Map(entries) => {
                let keys: Vec<Estimate> = entries.iter().map(|(key, ..)| self.of(key, scope)).collect();
                let values: Vec<Estimate> = entries.iter().map(|(_, value, _)| self.of(value, scope)).collect();
                let all: Vec<Estimate> = keys.iter().chain(&values).cloned().collect();
                made(MAKE_MAP, entries.len(), &all, &values)
            }
            Node::Struct { fields, .. } => Estimate {
                cost: MAKE_STRUCT.saturating_add(sum(fields.iter().map(|(_, value, _)| self.of(value, scope).cost))),
                ..Estimate::default()
            },
            Node::Fold(fold) => self.fold(fold, scope),
            Node::Bind { name, value, body } => self.bind(name, self.of(value, scope), body, scope),
            Node::OptionalMap {
                target,
                name,
                body,
                flat,
            } => self.optional_map(expr, target, name, body, *flat, scope),
        }
    }

    fn ident(&self, expr: &Expr, name: &str, mut scope: Option<&Scope>) -> Estimate {
        let ty = self.type_of(expr);
        while let Some(inner) = scope {
            if inner.name == name {
                let local = &inner.local;
                return Estimate {
                    cost: IDENT,
                    size: self.found_size(&local.path, &ty).or(local.size),
                    items: local.items,
                    path: local.path.clone(),
                };
            }
            scope = inner.outer;
        }
        let path = vec![Step::Field(name.to_owned())];
        Estimate {
            cost: IDENT,
            size: self.found_size(&path, &ty),
            items: None,
            path,
        }
    }

    fn select(&self, expr: &Expr, operand: &Expr, field: &str, optional: bool, scope: Option<&Scope>) -> Estimate {
        let of = self.of(operand, scope);
        if optional {
            return Estimate {
                cost: of.cost.saturating_add(1),
                size: size_of_type(&self.type_of(expr)),
                ..Estimate::default()
            };
        }
        let has_fields = matches!(self.type_of(operand), Type::Map(..) | Type::Object(_));
        let mut path = of.path;
        path.push(Step::Field(field.to_owned()));
        Estimate {
            cost: of.cost.saturating_add(u64::from(has_fields)),
            size: self.found_size(&path, &self.type_of(expr)),
            items: None,
            path,
        }
    }

    /// `cel.bind` is a loop over an empty list.
    fn bind(&self, name: &str, value: Estimate, body: &Expr, scope: Option<&Scope>) -> Estimate {
        let cost = MAKE_LIST.saturating_add(value.cost);
        let inner = Scope {
            name,
            local: value,
            outer: scope,
        };
        let body = self.of(body, Some(&inner));
        Estimate {
            cost: cost.saturating_add(body.cost),
            path: Vec::new(),
            ..body
        }
    }

    /// `x.optMap(v, body)` is `x.hasValue() ? optional.of(cel.bind(v, x.value(), body)) : optional.none()`.
    fn optional_map(
        &self,
        expr: &Expr,
        target: &Expr,
        name: &str,
        body: &Expr,
        flat: bool,
        scope: Option<&Scope>,
    ) -> Estimate {
        let asked = self.of(target, scope).cost.saturating_add(1);
        let held = match self.type_of(target) {
            Type::Optional(of) => *of,
            _ => Type::Dyn,
        };
        let value = Estimate {
            cost: asked,
            size: size_of_type(&held),
            ..Estimate::default()
        };
        let mapped = self.bind(name, value, body, scope).cost;
        let mapped = mapped.saturating_add(u64::from(!flat));
        Estimate {
            cost: asked.saturating_add(mapped.max(1)),
            size: size_of_type(&self.type_of(expr)),
            ..Estimate::default()
        }
    }

    fn fold(&self, fold: &Fold, scope: Option<&Scope>) -> Estimate {
        let range = self.of(&fold.range, scope);
        let is_list = match self.type_of(&fold.range) {
            Type::List(_) => true,
            Type::Map(..) | Type::Object(_) => false,
            _ => range.items.is_some(),
        };
        let below = |step: Step, size: Option<Size>| {
            let mut path = range.path.clone();
            path.push(step);
            Estimate {
                size,
                path,
                ..Estimate::default()
            }
        };
        let first = match (is_list, fold.second.is_some()) {
            (true, false) => below(Step::Items, range.items),
            (true, true) => below(Step::Indices, range.items.map(|_| Size::exactly(1))),
            (false, _) => below(Step::Keys, None),
        };
        let second = below(if is_list { Step::Items } else { Step::Values }, range.items);
        let outer = Scope {
            name: &fold.first,
            local: first,
            outer: scope,
        };
        let inner = fold.second.as_deref().map(|name| Scope {
            name,
            local: second,
            outer: Some(&outer),
        });
        let scope = inner.as_ref().or(Some(&outer));
        let condition = fold.condition.as_ref().map(|condition| self.of(condition, scope).cost);
        let body = self.of(&fold.body, scope);
        let item = match fold.kind {
            FoldKind::Filter => self.bound_size(&outer, &self.item_type(&fold.range)),
            _ => body.size(),
        };
        let (once, each) = loop_cost(fold.kind, condition, body.cost);
        let count = range.size();
        let cost = range
            .cost
            .saturating_add(once)
            .saturating_add(count.max.saturating_mul(each));
        let (size, items) = match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => (Size::exactly(1), None),
            FoldKind::Map | FoldKind::Filter | FoldKind::TransformList => {
                let items = Size { min: 0, max: item.max };
                (count, Some(items))
            }
            FoldKind::TransformMap | FoldKind::TransformMapEntry => (count, None),
        };
        Estimate {
            cost,
            size: Some(size),
            items,
            path: Vec::new(),
        }
    }

    fn item_type(&self, range: &Expr) -> Type {
        match self.type_of(range) {
            Type::List(of) => *of,
            Type::Map(key, _) => *key,
            _ => Type::Dyn,
        }
    }

    fn bound_size(&self, scope: &Scope, ty: &Type) -> Size {
        let found = self.found_size(&scope.local.path, ty);
        found.or(scope.local.size).unwrap_or(Size::UNKNOWN)
    }
}

/// What a macro's loop costs besides its range: once, and for each item.
fn loop_cost(kind: FoldKind, condition: Option<u64>, body: u64) -> (u64, u64) {
    // `accumulator + [body]`, or nothing where there is a condition that does not hold.
    let adding = |body: u64| body.saturating_add(MAKE_LIST + 2);
    let guarded = |step: u64| step.max(IDENT).saturating_add(condition.unwrap_or(0));
    match kind {
        // The condition is @not_strictly_false(accumulator), the step `accumulator && body`.
        FoldKind::All => (IDENT, body.saturating_add(2 + IDENT)),
        // The condition has a negation more.
        FoldKind::Exists => (IDENT, body.saturating_add(3 + IDENT)),
        // The step is `body ? accumulator + 1 : accumulator`, the result `accumulator == 1`.
        FoldKind::ExistsOne => (2, body.saturating_add(2)),
        FoldKind::Map | FoldKind::TransformList => (MAKE_LIST + IDENT, guarded(adding(body))),
        // The body is the condition, and what is added is the item itself.
        FoldKind::Filter => (MAKE_LIST + IDENT, adding(IDENT).saturating_add(body)),
        FoldKind::TransformMap => (MAKE_MAP + IDENT, guarded(body.saturating_add(3))),
        FoldKind::TransformMapEntry => (MAKE_MAP + IDENT, guarded(body.saturating_add(2))),
    }
}

fn either(condition: u64, yes: Estimate, no: Estimate) -> Estimate {
    Estimate {
        cost: condition.saturating_add(yes.cost.max(no.cost)),
        size: Some(yes.size().or(no.size())),
        items: yes.items.zip(no.items).map(|(yes, no)| yes.or(no)),
        path: Vec::new(),
    }
}

/// A list or map that is written down.
fn made(base: u64, size: usize, parts: &[Estimate], items: &[Estimate]) -> Estimate {
    let sizes = items.iter().map(Estimate::size);
    Estimate {
        cost: base.saturating_add(sum(parts.iter().map(|part| part.cost))),
        size: Some(Size::exactly(size as u64)),
        items: Some(sizes.reduce(Size::or).unwrap_or(Size::exactly(0))),
        path: Vec::new(),
    }
}

fn sum(costs: impl Iterator<Item = u64>) -> u64 {
    costs.fold(0, u64::saturating_add)
}

fn size_of_literal(value: &Value) -> Option<Size> {
    match value {
        Value::String(text) => Some(Size::exactly(text.chars().count() as u64)),
        Value::Bytes(bytes) => Some(Size::exactly(bytes.len() as u64)),
        _ => Some(Size::exactly(1)),
    }
}

#[cfg(test)]
mod tests;
