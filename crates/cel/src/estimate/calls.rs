//! What calls of the library may cost.

use super::size::{REGEX, Size, TRAVERSAL, scaled, size_of_type};
use super::{Estimate, Estimator, Scope, Step, sum};
use crate::Type;
use crate::ast::{Expr, Node};
use crate::cost::MAKE_LIST;

/// A target or an argument.
struct Operand<'a> {
    expr: &'a Expr,
    ty: Type,
    estimate: Estimate,
}

impl Operand<'_> {
    fn size(&self) -> Size {
        self.estimate.size()
    }

    /// The number that is written here.
    fn written(&self) -> Option<u64> {
        match &self.expr.node {
            Node::Literal(crate::Value::Int(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }
}

/// What one call costs besides its operands, and how large its result is where that follows from them.
struct Call {
    cost: u64,
    result: Option<Size>,
}

impl Call {
    fn costs(cost: u64) -> Call {
        Call { cost, result: None }
    }
}

/// The longest regular expression behind a named format, and the longest name of one.
const FORMAT_REGEX: f64 = 128.0;
const FORMAT_NAME: u64 = 64;

impl Estimator<'_> {
    pub(super) fn call(
        &self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        arguments: &[Expr],
        scope: Option<&Scope>,
    ) -> Estimate {
        let operand = |expr| Operand {
            expr,
            ty: self.type_of(expr),
            estimate: self.of(expr, scope),
        };
        let target = target.map(operand);
        let arguments: Vec<Operand> = arguments.iter().map(operand).collect();
        let parts = sum(target.iter().chain(&arguments).map(|part| part.estimate.cost));
        let call = self.priced(function, target.as_ref(), &arguments);
        let mut made = Estimate {
            cost: parts.saturating_add(call.cost),
            size: call.result,
            ..Estimate::default()
        };
        match (function, arguments.as_slice()) {
            ("dyn", [argument]) => {
                made.size = argument.estimate.size;
                made.items = argument.estimate.items;
            }
            ("_[_]", [container, _]) => {
                let step = match container.ty {
                    Type::List(_) => Some(Step::Items),
                    Type::Map(..) => Some(Step::Values),
                    _ => None,
                };
                if let Some(step) = step {
                    made.path.clone_from(&container.estimate.path);
                    made.path.push(step);
                    made.size = container.estimate.items;
                }
            }
            ("_+_", [left, right]) => {
                made.items = left
                    .estimate
                    .items
                    .zip(right.estimate.items)
                    .map(|(one, other)| one.or(other));
            }
            _ => {}
        }
        made.size = made.size.or_else(|| self.found_size(&made.path, &self.type_of(expr)));
        made
    }

    fn priced(&self, function: &str, target: Option<&Operand>, arguments: &[Operand]) -> Call {
        let known = match (target, arguments) {
            (Some(target), arguments) => self.member(function, target, arguments),
            (None, [one]) => global(function, one),
            (None, [left, right, ..]) => operator(function, left, right),
            (None, []) => None,
        };
        known.unwrap_or(Call::costs(1))
    }

    fn member(&self, function: &str, target: &Operand, arguments: &[Operand]) -> Option<Call> {
        let size = target.size();
        let walked = |times: f64| scaled(size.max, times * TRAVERSAL);
        Some(match (function, arguments) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", _) => match self.items_of(target) {
                Some((ty, items)) => {
                    let compared = match ty {
                        Type::String | Type::Bytes => items.traversal().saturating_add(1),
                        _ => 1,
                    };
                    Call::costs(size.max.saturating_mul(compared))
                }
                None => Call::costs(walked(1.0)),
            },
            ("lowerAscii" | "upperAscii" | "substring" | "trim", _) => Call {
                cost: walked(1.0),
                result: Some(size),
            },
            ("replace", [from, to, ..]) => Call {
                cost: walked(2.0),
                result: Some(replaced(size, from.size(), to.size())),
            },
            ("split", rest) => {
                let limit = rest.get(1).and_then(Operand::written);
                let max = limit.unwrap_or(size.max);
                Call {
                    cost: walked(2.0),
                    result: Some(Size { min: 0, max }),
                }
            }
            ("join", rest) => self.join(target, rest.first()),
            ("find" | "findAll", [pattern, ..]) => Call {
                cost: searched(size, pattern.size()),
                result: Some(Size { min: 0, max: size.max }),
            },
            ("matches", [pattern]) => Call::costs(searched(size, pattern.size())),
            ("contains", [part]) => Call::costs(size.traversal().saturating_mul(part.size().traversal())),
            ("startsWith" | "endsWith", [part]) => Call::costs(part.size().traversal()),
            ("format", _) => Call::costs(size.traversal()),
            ("containsIP" | "containsCIDR", [other]) => Call::costs(contained(function, other)),
            ("validate", [text]) => Call::costs(scaled(text.size().traversal(), FORMAT_REGEX * REGEX)),
            ("slice", [start, end]) => {
                let (start, end) = (start.written().unwrap_or(0), end.written().unwrap_or(size.max));
                list_made(1.0, Size::exactly(end.saturating_sub(start)))
            }
            ("reverse", []) if matches!(target.ty, Type::List(_)) => list_made(1.0, size),
            ("flatten", depth) => {
                let depth = depth.first().map_or(Some(1), Operand::written).unwrap_or(u64::MAX);
                list_made(depth as f64, size)
            }
            ("distinct", []) => list_made(2.0, size.times(size)),
            ("sort", []) => {
                let texts = matches!(&target.ty, Type::List(of) if matches!(**of, Type::String | Type::Bytes));
                list_made(if texts { 2.0 + TRAVERSAL } else { 2.0 }, size.times(size))
            }
            _ => return None,
        })
    }

    fn join(&self, list: &Operand, separator: Option<&Operand>) -> Call {
        let size = list.size();
        let mut joined = match self.items_of(list) {
            Some((_, items)) => size.times(items),
            None => Size::exactly(0),
        };
        if let Some(separator) = separator {
            let between = Size {
                min: size.min.saturating_sub(1),
                max: size.max.saturating_sub(1),
            };
            joined = joined.plus(separator.size().times(between));
        }
        Call {
            cost: joined.traversal(),
            result: Some(joined),
        }
    }

    /// The type and size of a list's items, as the schema allows them.
    fn items_of(&self, list: &Operand) -> Option<(Type, Size)> {
        let ty = match &list.ty {
            Type::List(of) => (**of).clone(),
            Type::Map(key, _) => (**key).clone(),
            _ => return None,
        };
        let found = match list.estimate.path.as_slice() {
            [] => None,
            path => {
                let mut path = path.to_vec();
                path.push(Step::Items);
                self.sizes.max_elements(&path).map(|max| Size { min: 0, max })
            }
        };
        Some((ty, found.unwrap_or(Size::UNKNOWN)))
    }
}

fn global(function: &str, argument: &Operand) -> Option<Call> {
    let size = argument.size();
    Some(match (function, &argument.ty) {
        ("url" | "jsonpatch.escapeKey", _) => Call {
            cost: size.traversal(),
            result: Some(size),
        },
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", _) => {
            Call::costs(size.traversal())
        }
        ("ip.isCanonical", _) => Call::costs(scaled(size.max, 2.0 * TRAVERSAL)),
        ("bytes", Type::String | Type::Dyn) => Call {
            cost: size.traversal(),
            result: Some(Size {
                min: size.min,
                max: size.max.saturating_mul(4),
            }),
        },
        ("string", Type::Bytes | Type::Dyn) => Call {
            cost: size.traversal(),
            result: Some(Size {
                min: size.min / 4,
                max: size.max,
            }),
        },
        ("strings.quote", _) => Call {
            cost: size.traversal(),
            result: Some(size.plus(Size { min: 0, max: size.max }).plus(Size::exactly(2))),
        },
        ("lists.range", _) => list_made(1.0, Size::exactly(argument.written().unwrap_or(u64::MAX))),
        _ => return None,
    })
}

/// Operators and functions of two arguments or more.
fn operator(function: &str, left: &Operand, right: &Operand) -> Option<Call> {
    let smaller = left.size().max.min(right.size().max);
    let is_text = |ty: &Type| matches!(ty, Type::String | Type::Bytes | Type::Dyn);
    Some(match function {
        "semver" | "isSemver" => Call::costs(left.size().traversal()),
        "_==_" if left.ty == right.ty && matches!(left.ty, Type::Opaque(_)) => Call::costs(match &left.ty {
            Type::Opaque("kubernetes.NamedFormat") => scaled(FORMAT_NAME, TRAVERSAL),
            Type::Opaque("kubernetes.URL") => match right.estimate.size {
                Some(size) => size.traversal(),
                None => 1,
            },
            _ => 1,
        }),
        "_==_" | "_!=_" => Call::costs(scaled(smaller, TRAVERSAL)),
        "_<_" | "_<=_" | "_>_" | "_>=_" if is_text(&left.ty) && is_text(&right.ty) => {
            let unknown = left.ty == Type::Dyn || right.ty == Type::Dyn;
            Call::costs(scaled(smaller, TRAVERSAL).max(u64::from(unknown)))
        }
        "@in" if !matches!(right.ty, Type::Map(..)) => Call::costs(right.size().max),
        "_+_" => added(left, right)?,
        "sets.contains" | "sets.intersects" => Call::costs(left.size().times(right.size()).max.saturating_add(1)),
        "sets.equivalent" => {
            let pairs = left.size().times(right.size());
            Call::costs(scaled(pairs.max, 2.0).saturating_add(1))
        }
        _ => return None,
    })
}

fn added(left: &Operand, right: &Operand) -> Option<Call> {
    let together = left.size().plus(right.size());
    let known = match &left.ty {
        Type::Dyn => &right.ty,
        known => known,
    };
    match known {
        Type::String | Type::Bytes | Type::Dyn => Some(Call {
            cost: together.traversal().max(1),
            result: Some(together),
        }),
        Type::List(_) => Some(Call {
            cost: 1,
            result: Some(together),
        }),
        other => Some(Call {
            cost: 1,
            result: size_of_type(other),
        }),
    }
}

/// What looking for a regular expression in a text costs; an empty text costs as much as one character.
fn searched(text: Size, pattern: Size) -> u64 {
    let text = scaled(text.max.saturating_add(1), TRAVERSAL);
    text.saturating_mul(scaled(pattern.max, REGEX))
}

/// What comparing addresses of 4 to 16 bytes costs, and parsing the other one where it is a text.
fn contained(function: &str, other: &Operand) -> u64 {
    let address = Size { min: 4, max: 16 };
    let mut cost = address.plus(address).traversal();
    if function == "containsCIDR" {
        cost += address.traversal() + 1;
    }
    match other.ty {
        Type::String | Type::Dyn => cost.saturating_add(other.size().traversal()),
        _ => cost,
    }
}

/// The size of a text after all occurrences of another have been replaced.
fn replaced(text: Size, from: Size, to: Size) -> Size {
    let (mut count, mut kept) = (Size::exactly(0), Size::exactly(0));
    // The longest result. An empty text is found around every character.
    if from.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if to.max <= from.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if from.max <= to.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / from.max as f64).ceil() as u64;
    }
    count.times(to).plus(kept)
}

/// A call that makes a list of this size.
fn list_made(factor: f64, size: Size) -> Call {
    Call {
        cost: scaled(size.max, factor).saturating_add(1 + MAKE_LIST),
        result: Some(size),
    }
}
