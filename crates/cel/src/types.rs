//! Types of expressions, and whether a value of one may stand where another is wanted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// Known only when the expression runs.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Type,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Optional(Box<Type>),
    /// A type of the library that has no fields: `kubernetes.Quantity`, `net.IP`, …
    Opaque(&'static str),
    /// A type with known fields.
    Object(Arc<ObjectType>),
    /// A type parameter of a function.
    Parameter(char),
}

#[derive(Debug, PartialEq)]
pub struct ObjectType {
    pub name: String,
    pub fields: BTreeMap<String, Type>,
}

/// What type parameters stand for in one call.
pub type Bindings = BTreeMap<char, Type>;

impl Type {
    pub fn list(of: Type) -> Type {
        Type::List(Box::new(of))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Box::new(key), Box::new(value))
    }

    pub fn object(name: &str, fields: impl IntoIterator<Item = (&'static str, Type)>) -> Type {
        let fields = fields.into_iter().map(|(field, ty)| (field.to_owned(), ty)).collect();
        let name = name.to_owned();
        Type::Object(Arc::new(ObjectType { name, fields }))
    }

    pub fn object_of(name: &str, fields: BTreeMap<String, Type>) -> Type {
        let name = name.to_owned();
        Type::Object(Arc::new(ObjectType { name, fields }))
    }

    /// An object's type with one field more, or of another type; others stay as they are.
    pub fn with_field(&self, field: &str, ty: Type) -> Type {
        match self {
            Type::Object(object) => {
                let mut fields = object.fields.clone();
                fields.insert(field.to_owned(), ty);
                Type::object_of(&object.name, fields)
            }
            other => other.clone(),
        }
    }

    /// Reads `list(A)`, `map(string, int)`, `optional(A)`, `quantity`, … as signatures write them.
    pub fn parse(text: &str) -> Type {
        let text = text.trim();
        if let Some(inner) = text.strip_suffix(')')
            && let Some((outer, inner)) = inner.split_once('(')
        {
            return match (outer, split(inner).as_slice()) {
                ("list", [of]) => Type::list(Type::parse(of)),
                ("optional", [of]) => Type::Optional(Box::new(Type::parse(of))),
                ("map", [key, value]) => Type::map(Type::parse(key), Type::parse(value)),
                _ => Type::Dyn,
            };
        }
        match text {
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "timestamp" => Type::Timestamp,
            "duration" => Type::Duration,
            "type" => Type::Type,
            "A" | "B" => Type::Parameter(if text == "A" { 'A' } else { 'B' }),
            other => OPAQUE
                .iter()
                .find(|(short, _)| *short == other)
                .map_or(Type::Dyn, |(_, name)| Type::Opaque(name)),
        }
    }

    /// Whether a value of the type `given` may stand where this type is wanted; learns what parameters stand for.
    pub fn accepts(&self, given: &Type, bindings: &mut Bindings) -> bool {
        match (self, given) {
            (Type::Parameter(name), given) => match bindings.get(name).cloned() {
                None => {
                    bindings.insert(*name, given.clone());
                    true
                }
                Some(Type::Dyn) => true,
                Some(bound) => {
                    bound.accepts(given, &mut Bindings::new()) || given.accepts(&bound, &mut Bindings::new())
                }
            },
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::List(wanted), Type::List(given)) | (Type::Optional(wanted), Type::Optional(given)) => {
                wanted.accepts(given, bindings)
            }
            (Type::Map(key, value), Type::Map(given_key, given_value)) => {
                key.accepts(given_key, bindings) && value.accepts(given_value, bindings)
            }
            (Type::Map(key, _), Type::Object(_)) => key.accepts(&Type::String, bindings),
            // Whatever may be absent may be null.
            (Type::Object(_) | Type::Timestamp | Type::Duration | Type::Optional(_) | Type::Opaque(_), Type::Null) => {
                true
            }
            (wanted, given) => wanted == given,
        }
    }

    /// The type with parameters replaced by what they stand for.
    pub fn resolve(&self, bindings: &Bindings) -> Type {
        match self {
            Type::Parameter(name) => bindings.get(name).cloned().unwrap_or(Type::Dyn),
            Type::List(of) => Type::list(of.resolve(bindings)),
            Type::Optional(of) => Type::Optional(Box::new(of.resolve(bindings))),
            Type::Map(key, value) => Type::map(key.resolve(bindings), value.resolve(bindings)),
            other => other.clone(),
        }
    }

    /// The common type of two branches.
    pub fn join(&self, other: &Type) -> Type {
        match (self, other) {
            (one, other) if one == other => one.clone(),
            (Type::Null, object) | (object, Type::Null) => object.clone(),
            _ => Type::Dyn,
        }
    }
}

/// Types of the library by the names that signatures use.
pub const OPAQUE: &[(&str, &str)] = &[
    ("authorizer", "kubernetes.authorization.Authorizer"),
    ("path_check", "kubernetes.authorization.PathCheck"),
    ("group_check", "kubernetes.authorization.GroupCheck"),
    ("resource_check", "kubernetes.authorization.ResourceCheck"),
    ("decision", "kubernetes.authorization.Decision"),
    ("cidr", "net.CIDR"),
    ("format", "kubernetes.NamedFormat"),
    ("ip", "net.IP"),
    ("quantity", "kubernetes.Quantity"),
    ("semver", "kubernetes.Semver"),
    ("url", "kubernetes.URL"),
];

/// Splits at commas that stand outside of brackets.
pub fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => formatter.write_str("dyn"),
            Type::Null => formatter.write_str("null"),
            Type::Bool => formatter.write_str("bool"),
            Type::Int => formatter.write_str("int"),
            Type::Uint => formatter.write_str("uint"),
            Type::Double => formatter.write_str("double"),
            Type::String => formatter.write_str("string"),
            Type::Bytes => formatter.write_str("bytes"),
            Type::Timestamp => formatter.write_str("timestamp"),
            Type::Duration => formatter.write_str("duration"),
            Type::Type => formatter.write_str("type"),
            Type::List(of) => write!(formatter, "list({of})"),
            Type::Map(key, value) => write!(formatter, "map({key}, {value})"),
            Type::Optional(of) => write!(formatter, "optional_type({of})"),
            Type::Opaque(name) => formatter.write_str(name),
            Type::Object(object) => formatter.write_str(&object.name),
            Type::Parameter(name) => write!(formatter, "{name}"),
        }
    }
}
