//! The library: one table of signatures with what each does and costs. The checker reads the types, the evaluator picks
//! by the values it has.

pub mod authorizer;
pub mod convert;
mod core;
mod format;
mod lists;
mod net;
mod number;
mod optional;
mod quantity;
pub mod semver;
mod strings;
pub mod time;
pub mod url;

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::cost::{self, STEP};
use crate::error::failed;
use crate::types::{Bindings, split};
use crate::{Budget, EvalError, Type, Value};

/// What a function does with its target, if it has one, and its arguments.
pub type Run = fn(&[Value]) -> Result<Value, EvalError>;

/// One way to call a function: `string.contains(string): bool`, `size(list(A)): int`.
pub struct Row(pub &'static str, pub Price, pub Run);

/// What a call costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Price {
    /// One step.
    Step,
    /// A tenth of the length of all texts and bytes, and one for each item of lists.
    Walk,
    /// The first length times the second: searching in lists, and regular expressions.
    Product,
    /// A question to the authorizer.
    Authorize,
}

pub struct Overload {
    pub is_member: bool,
    pub parameters: Vec<Type>,
    pub result: Type,
    price: Price,
    run: Run,
}

/// What asking the authorizer costs.
const AUTHORIZE_COST: u64 = 350_000;

const TABLES: &[&[Row]] = &[
    authorizer::TABLE,
    core::TABLE,
    convert::TABLE,
    format::TABLE,
    lists::TABLE,
    net::TABLE,
    number::TABLE,
    optional::TABLE,
    quantity::TABLE,
    semver::TABLE,
    strings::TABLE,
    time::TABLE,
    url::TABLE,
];

const TYPE_NAMES: &[(&str, &str)] = &[
    ("bool", "bool"),
    ("bytes", "bytes"),
    ("double", "double"),
    ("dyn", "dyn"),
    ("int", "int"),
    ("list", "list"),
    ("map", "map"),
    ("null_type", "null_type"),
    ("string", "string"),
    ("type", "type"),
    ("uint", "uint"),
    ("optional_type", "optional_type"),
];

pub fn is_type_name(name: &str) -> bool {
    TYPE_NAMES.iter().any(|(known, _)| *known == name)
}

pub fn full_type_name(name: &str) -> &'static str {
    TYPE_NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map_or("", |(_, full)| full)
}

pub fn is_known(name: &str) -> bool {
    !named(name).is_empty()
}

/// All ways to call a function.
pub fn named(name: &str) -> &'static [Overload] {
    static ALL: OnceLock<HashMap<&'static str, Vec<Overload>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all: HashMap<&'static str, Vec<Overload>> = HashMap::new();
        for row in TABLES.iter().flat_map(|table| table.iter()) {
            let (name, overload) = Overload::parse(row);
            all.entry(name).or_default().push(overload);
        }
        all
    });
    all.get(name).map_or(&[], Vec::as_slice)
}

/// Calls the overload that fits the values; the target comes first.
pub fn call(name: &str, is_member: bool, values: &[Value], budget: &mut Budget) -> Result<Value, EvalError> {
    let types: Vec<Type> = values.iter().map(Value::type_of).collect();
    let fits = |overload: &&Overload| {
        let mut bindings = Bindings::new();
        overload.is_member == is_member
            && overload.parameters.len() == types.len()
            && overload
                .parameters
                .iter()
                .zip(&types)
                .all(|(wanted, given)| fits_exactly(wanted, given, &mut bindings))
    };
    let overload = named(name)
        .iter()
        .find(fits)
        .ok_or_else(|| failed("no such overload"))?;
    budget.spend(overload.price.cost_of(values))?;
    (overload.run)(values)
}

/// At run time a parameter stands for anything: values of different types can be compared.
fn fits_exactly(wanted: &Type, given: &Type, bindings: &mut Bindings) -> bool {
    match wanted {
        Type::Parameter(_) | Type::Dyn => true,
        wanted => {
            wanted.accepts(given, bindings) && *given != Type::Dyn && (*given != Type::Null || *wanted == Type::Null)
        }
    }
}

impl Overload {
    fn parse(row: &Row) -> (&'static str, Overload) {
        let Row(signature, price, run) = row;
        let (call, result) = signature.rsplit_once(": ").unwrap_or((signature, "dyn"));
        let call = call.strip_suffix(')').unwrap_or(call);
        let (head, arguments) = outer_bracket(call);
        let mut parameters: Vec<Type> = split(arguments).into_iter().map(Type::parse).collect();
        let (is_member, name) = match head.strip_prefix('<').and_then(|rest| rest.split_once(">.")) {
            Some((target, name)) => {
                parameters.insert(0, Type::parse(target));
                (true, name)
            }
            None => (false, head),
        };
        let overload = Overload {
            is_member,
            parameters,
            result: Type::parse(result),
            price: *price,
            run: *run,
        };
        (name, overload)
    }
}

/// Splits `<list(A)>.f(list(A), int` into what is called and its arguments.
fn outer_bracket(call: &'static str) -> (&'static str, &'static str) {
    let from = call.find('>').filter(|_| call.starts_with('<')).unwrap_or(0);
    match call[from..].find('(') {
        Some(at) => (&call[..from + at], &call[from + at + 1..]),
        None => (call, ""),
    }
}

impl Price {
    fn cost_of(self, values: &[Value]) -> u64 {
        let length = |value: &Value| match value {
            Value::String(_) | Value::Bytes(_) => cost::traversal(cost::size(value)),
            Value::List(_) | Value::Map(_) => cost::size(value) as u64,
            _ => 0,
        };
        match self {
            Price::Step => STEP,
            Price::Walk => STEP + values.iter().map(length).sum::<u64>(),
            Price::Product => {
                let second = values.get(1).map_or(1, length);
                STEP + values.first().map_or(1, length).saturating_mul(second.max(1))
            }
            Price::Authorize => AUTHORIZE_COST,
        }
    }
}
