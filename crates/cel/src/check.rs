//! The checker: every name is known, every function fits its arguments.

use std::collections::{BTreeMap, HashMap};

use crate::Type;
use crate::ast::{Expr, Fold, FoldKind, Node};
use crate::functions;
use crate::types::Bindings;

/// The variables that an expression may use, with their types, and the types it may make.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, Type>,
    /// Whether `Object{…}` and `JSONPatch{…}` can be written.
    structs: bool,
}

impl Environment {
    pub fn with(mut self, name: &str, ty: Type) -> Environment {
        self.variables.insert(name.to_owned(), ty);
        self
    }

    /// Lets expressions make objects, as mutating policies do.
    pub fn with_structs(mut self) -> Environment {
        self.structs = true;
        self
    }
}

pub fn check(expr: &Expr, environment: &Environment) -> Result<Type, Vec<(usize, String)>> {
    let mut checker = Checker {
        environment,
        problems: Vec::new(),
        facts: None,
    };
    let ty = checker.type_of(expr, None);
    match checker.problems.is_empty() {
        true => Ok(ty),
        false => Err(checker.problems),
    }
}

/// The types of all parts of an expression. Parts are told apart by where they are in memory, so that the expression
/// must stay where it is.
#[derive(Debug, Default)]
pub struct Facts {
    types: HashMap<*const Expr, Type>,
}

impl Facts {
    pub fn of(expr: &Expr, environment: &Environment) -> Facts {
        let mut checker = Checker {
            environment,
            problems: Vec::new(),
            facts: Some(Facts::default()),
        };
        checker.type_of(expr, None);
        checker.facts.unwrap_or_default()
    }

    pub fn type_of(&self, expr: &Expr) -> Type {
        self.types.get(&std::ptr::from_ref(expr)).cloned().unwrap_or(Type::Dyn)
    }
}

struct Checker<'a> {
    environment: &'a Environment,
    problems: Vec<(usize, String)>,
    /// What was found out, where somebody asks for it.
    facts: Option<Facts>,
}

/// Variables that macros bind, innermost first.
struct Scope<'a> {
    name: &'a str,
    ty: Type,
    outer: Option<&'a Scope<'a>>,
}

impl Checker<'_> {
    fn problem(&mut self, at: usize, why: String) -> Type {
        self.problems.push((at, why));
        Type::Dyn
    }

    fn type_of(&mut self, expr: &Expr, scope: Option<&Scope>) -> Type {
        let ty = self.infer(expr, scope);
        if let Some(facts) = &mut self.facts {
            facts.types.insert(expr, ty.clone());
        }
        ty
    }

    fn infer(&mut self, expr: &Expr, scope: Option<&Scope>) -> Type {
        match &expr.node {
            Node::Literal(value) => value.type_of(),
            Node::Ident(name) => self.ident(expr.at, name, scope),
            Node::Select {
                operand,
                field,
                optional,
            } => {
                if let Some(ty) = self.dotted(operand, field, scope) {
                    return ty;
                }
                let of = self.type_of(operand, scope);
                let ty = self.select(expr.at, of, field);
                match (optional, &ty) {
                    (true, Type::Optional(_)) | (false, _) => ty,
                    (true, _) => Type::Optional(Box::new(ty)),
                }
            }
            Node::Has { operand, field } => {
                let of = self.type_of(operand, scope);
                self.select(expr.at, of, field);
                Type::Bool
            }
            Node::Call {
                function,
                target,
                arguments,
            } => self.call(expr.at, function, target.as_deref(), arguments, scope),
            Node::And(left, right) => self.logic(expr.at, "_&&_", left, right, scope),
            Node::Or(left, right) => self.logic(expr.at, "_||_", left, right, scope),
            Node::Conditional(condition, yes, no) => {
                let (condition, yes, no) = (
                    self.type_of(condition, scope),
                    self.type_of(yes, scope),
                    self.type_of(no, scope),
                );
                if !Type::Bool.accepts(&condition, &mut Bindings::new()) {
                    let why = format!("found no matching overload for '_?_:_' applied to '({condition}, {yes}, {no})'");
                    return self.problem(expr.at, why);
                }
                yes.join(&no)
            }
            Node::List(items) => {
                let types: Vec<Type> = items.iter().map(|(item, _)| self.type_of(item, scope)).collect();
                Type::list(join_all(types))
            }
            Node::Map(entries) => {
                let keys: Vec<Type> = entries.iter().map(|(key, _, _)| self.type_of(key, scope)).collect();
                let values: Vec<Type> = entries.iter().map(|(_, value, _)| self.type_of(value, scope)).collect();
                Type::map(join_all(keys), join_all(values))
            }
            Node::Struct { name, fields } => {
                for (_, value, _) in fields {
                    self.type_of(value, scope);
                }
                let known = self.environment.structs
                    && (name == "JSONPatch" || name == "Object" || name.starts_with("Object."));
                match known {
                    true => Type::Dyn,
                    false => self.problem(expr.at, format!("undeclared reference to '{name}' (in container '')")),
                }
            }
            Node::Fold(fold) => self.fold(fold, scope),
            Node::Bind { name, value, body } => {
                let ty = self.type_of(value, scope);
                let inner = Scope { name, ty, outer: scope };
                self.type_of(body, Some(&inner))
            }
            Node::OptionalMap {
                target,
                name,
                body,
                flat,
            } => {
                let ty = match self.type_of(target, scope) {
                    Type::Optional(of) => *of,
                    _ => Type::Dyn,
                };
                let inner = Scope { name, ty, outer: scope };
                let result = self.type_of(body, Some(&inner));
                match flat {
                    true => result,
                    false => Type::Optional(Box::new(result)),
                }
            }
        }
    }

    fn ident(&mut self, at: usize, name: &str, mut scope: Option<&Scope>) -> Type {
        while let Some(inner) = scope {
            if inner.name == name {
                return inner.ty.clone();
            }
            scope = inner.outer;
        }
        if let Some(ty) = self.environment.variables.get(name) {
            return ty.clone();
        }
        match functions::is_type_name(name) {
            true => Type::Type,
            false => self.problem(at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    /// A variable whose name has a dot in it: `authorizer.requestResource`.
    fn dotted(&self, operand: &Expr, field: &str, scope: Option<&Scope>) -> Option<Type> {
        let Node::Ident(name) = &operand.node else { return None };
        let is_bound = std::iter::successors(scope, |scope| scope.outer).any(|scope| scope.name == name);
        match is_bound {
            true => None,
            false => self.environment.variables.get(&format!("{name}.{field}")).cloned(),
        }
    }

    fn select(&mut self, at: usize, of: Type, field: &str) -> Type {
        match of {
            Type::Dyn => Type::Dyn,
            Type::Map(_, value) => *value,
            Type::Optional(of) => match self.select(at, *of, field) {
                already @ Type::Optional(_) => already,
                ty => Type::Optional(Box::new(ty)),
            },
            Type::Object(object) => match object.fields.get(field) {
                Some(ty) => ty.clone(),
                None => self.problem(at, format!("undefined field '{field}'")),
            },
            other => self.problem(at, format!("type '{other}' does not support field selection")),
        }
    }

    fn logic(&mut self, at: usize, name: &str, left: &Expr, right: &Expr, scope: Option<&Scope>) -> Type {
        let (left, right) = (self.type_of(left, scope), self.type_of(right, scope));
        for side in [&left, &right] {
            if !Type::Bool.accepts(side, &mut Bindings::new()) {
                let why = format!("found no matching overload for '{name}' applied to '({left}, {right})'");
                return self.problem(at, why);
            }
        }
        Type::Bool
    }

    fn call(
        &mut self,
        at: usize,
        function: &str,
        target: Option<&Expr>,
        arguments: &[Expr],
        scope: Option<&Scope>,
    ) -> Type {
        let mut given: Vec<Type> = target.iter().map(|target| self.type_of(target, scope)).collect();
        given.extend(arguments.iter().map(|argument| self.type_of(argument, scope)));
        let overloads = functions::named(function);
        if overloads.is_empty() {
            return self.problem(at, format!("undeclared reference to '{function}' (in container '')"));
        }
        let mut results: Vec<Type> = Vec::new();
        for overload in overloads
            .iter()
            .filter(|overload| overload.is_member == target.is_some())
        {
            let mut bindings = Bindings::new();
            let fits = overload.parameters.len() == given.len()
                && overload
                    .parameters
                    .iter()
                    .zip(&given)
                    .all(|(wanted, given)| wanted.accepts(given, &mut bindings));
            if fits {
                results.push(overload.result.resolve(&bindings));
            }
        }
        if results.is_empty() {
            let shown: Vec<String> = given.iter().map(Type::to_string).collect();
            let shown = match (target, shown.split_first()) {
                (Some(_), Some((first, rest))) => format!("{first}.({})", rest.join(", ")),
                _ => format!("({})", shown.join(", ")),
            };
            return self.problem(
                at,
                format!("found no matching overload for '{function}' applied to '{shown}'"),
            );
        }
        join_all(results)
    }

    fn fold(&mut self, fold: &Fold, scope: Option<&Scope>) -> Type {
        let (first, second) = match (self.type_of(&fold.range, scope), &fold.second) {
            (Type::List(of), None) => (*of, Type::Dyn),
            (Type::List(of), Some(_)) => (Type::Int, *of),
            (Type::Map(key, value), _) => (*key, *value),
            (Type::Object(_), _) => (Type::String, Type::Dyn),
            (Type::Dyn, _) => (Type::Dyn, Type::Dyn),
            (other, _) => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.problem(fold.range.at, why);
                (Type::Dyn, Type::Dyn)
            }
        };
        let outer = Scope {
            name: &fold.first,
            ty: first.clone(),
            outer: scope,
        };
        let inner = Scope {
            name: fold.second.as_deref().unwrap_or(&fold.first),
            ty: if fold.second.is_some() { second } else { first.clone() },
            outer: Some(&outer),
        };
        if let Some(condition) = &fold.condition {
            self.type_of(condition, Some(&inner));
        }
        let body = self.type_of(&fold.body, Some(&inner));
        match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne | FoldKind::Filter => {
                if !Type::Bool.accepts(&body, &mut Bindings::new()) {
                    self.problem(fold.body.at, format!("expected type 'bool' but found '{body}'"));
                }
                match fold.kind {
                    FoldKind::Filter => Type::list(first),
                    _ => Type::Bool,
                }
            }
            FoldKind::Map | FoldKind::TransformList => Type::list(body),
            FoldKind::TransformMap => Type::map(first, body),
            FoldKind::TransformMapEntry => body,
        }
    }
}

fn join_all(types: Vec<Type>) -> Type {
    let joined = types.into_iter().reduce(|one, other| one.join(&other));
    joined.unwrap_or(Type::Dyn)
}
