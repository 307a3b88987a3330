//! Calls that are more than calls: they bind variables or look at the shape of their argument.

use crate::ast::{Expr, Fold, FoldKind, Node};
use crate::parser::call;

type Problem = (usize, String);

/// A call without a target.
pub fn global(at: usize, name: &str, mut arguments: Vec<Expr>) -> Result<Expr, Problem> {
    match (name, arguments.len()) {
        ("has", 1) => match arguments.remove(0).node {
            Node::Select {
                operand,
                field,
                optional: false,
            } => Ok(Expr::new(at, Node::Has { operand, field })),
            _ => Err((at, "invalid argument to has() macro".to_owned())),
        },
        _ => Ok(call(at, name, arguments)),
    }
}

/// A call on a target: `target.name(arguments)`.
pub fn member(at: usize, target: Expr, name: &str, mut arguments: Vec<Expr>) -> Result<Expr, Problem> {
    let is_cel = matches!(&target.node, Node::Ident(ident) if ident == "cel");
    match (name, arguments.len()) {
        ("bind", 3) if is_cel => {
            let (body, value) = (arguments.remove(2), arguments.remove(1));
            let name = variable(&arguments[0])?;
            let (value, body) = (value.into(), body.into());
            Ok(Expr::new(at, Node::Bind { name, value, body }))
        }
        ("optMap" | "optFlatMap", 2) => {
            let body = arguments.remove(1).into();
            let flat = name == "optFlatMap";
            let name = variable(&arguments[0])?;
            let target = target.into();
            Ok(Expr::new(
                at,
                Node::OptionalMap {
                    target,
                    name,
                    body,
                    flat,
                },
            ))
        }
        _ => match fold(name, arguments.len()) {
            Some((kind, variables, has_condition)) => {
                let body = arguments.pop();
                let condition = if has_condition { arguments.pop() } else { None };
                let first = variable(&arguments[0])?;
                let second = if variables == 2 {
                    Some(variable(&arguments[1])?)
                } else {
                    None
                };
                let Some(body) = body else {
                    return Err((at, format!("{name}() needs a body")));
                };
                let fold = Fold {
                    kind,
                    range: target,
                    first,
                    second,
                    condition,
                    body,
                };
                Ok(Expr::new(at, Node::Fold(fold.into())))
            }
            None => {
                let (function, target) = namespaced(target, name);
                Ok(Expr::new(
                    at,
                    Node::Call {
                        function,
                        target: target.map(Box::new),
                        arguments,
                    },
                ))
            }
        },
    }
}

/// The macro of a name and a number of arguments, with how many variables it binds and whether it has a condition.
fn fold(name: &str, arguments: usize) -> Option<(FoldKind, usize, bool)> {
    Some(match (name, arguments) {
        ("all", 2) => (FoldKind::All, 1, false),
        ("exists", 2) => (FoldKind::Exists, 1, false),
        ("exists_one" | "existsOne", 2) => (FoldKind::ExistsOne, 1, false),
        ("map", 2) => (FoldKind::Map, 1, false),
        ("map", 3) => (FoldKind::Map, 1, true),
        ("filter", 2) => (FoldKind::Filter, 1, false),
        ("all", 3) => (FoldKind::All, 2, false),
        ("exists", 3) => (FoldKind::Exists, 2, false),
        ("exists_one" | "existsOne", 3) => (FoldKind::ExistsOne, 2, false),
        ("transformList", 3) => (FoldKind::TransformList, 2, false),
        ("transformList", 4) => (FoldKind::TransformList, 2, true),
        ("transformMap", 3) => (FoldKind::TransformMap, 2, false),
        ("transformMap", 4) => (FoldKind::TransformMap, 2, true),
        ("transformMapEntry", 3) => (FoldKind::TransformMapEntry, 2, false),
        ("transformMapEntry", 4) => (FoldKind::TransformMapEntry, 2, true),
        _ => return None,
    })
}

fn variable(expr: &Expr) -> Result<String, Problem> {
    match &expr.node {
        Node::Ident(name) => Ok(name.clone()),
        _ => Err((expr.at, "argument must be a simple name".to_owned())),
    }
}

/// Functions in a namespace look like members: `math.greatest(…)`, `optional.of(…)`.
fn namespaced(target: Expr, name: &str) -> (String, Option<Expr>) {
    const NAMESPACES: &[&str] = &["base64", "format", "ip", "math", "optional", "sets", "strings", "lists"];
    match &target.node {
        Node::Ident(space) if NAMESPACES.contains(&space.as_str()) => {
            let full = format!("{space}.{name}");
            match crate::functions::is_known(&full) {
                true => (full, None),
                false => (name.to_owned(), Some(target)),
            }
        }
        _ => (name.to_owned(), Some(target)),
    }
}
