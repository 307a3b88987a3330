//! Expressions after parsing. Macros have become nodes of their own.

use crate::Value;

#[derive(Clone, Debug)]
pub struct Expr {
    /// Where it stands in the source, in characters; for calls and selections where the operator stands.
    pub at: usize,
    pub node: Node,
    /// How many levels of expressions there are, this one included.
    pub depth: usize,
}

#[derive(Clone, Debug)]
pub enum Node {
    Literal(Value),
    Ident(String),
    /// `operand.field`, or `operand.?field`.
    Select {
        operand: Box<Expr>,
        field: String,
        optional: bool,
    },
    /// `has(operand.field)`.
    Has {
        operand: Box<Expr>,
        field: String,
    },
    Call {
        function: String,
        target: Option<Box<Expr>>,
        arguments: Vec<Expr>,
    },
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Conditional(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Items, with whether each is `?optional`.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    Struct {
        name: String,
        fields: Vec<(String, Expr, bool)>,
    },
    Fold(Box<Fold>),
    /// `cel.bind(name, value, body)`.
    Bind {
        name: String,
        value: Box<Expr>,
        body: Box<Expr>,
    },
    /// `target.optMap(name, body)`, or `optFlatMap`.
    OptionalMap {
        target: Box<Expr>,
        name: String,
        body: Box<Expr>,
        flat: bool,
    },
}

/// A macro over the items of a list or the keys of a map.
#[derive(Clone, Debug)]
pub struct Fold {
    pub kind: FoldKind,
    pub range: Expr,
    pub first: String,
    /// The value beside the key or index, in comprehensions with two variables.
    pub second: Option<String>,
    /// Of `map(x, condition, body)` and the `transform` macros.
    pub condition: Option<Expr>,
    pub body: Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoldKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
}

impl Expr {
    pub fn new(at: usize, node: Node) -> Expr {
        let mut expr = Expr { at, node, depth: 1 };
        expr.depth += expr.children().into_iter().map(|child| child.depth).max().unwrap_or(0);
        expr
    }

    /// Whether an identifier is used anywhere below.
    pub fn mentions(&self, name: &str) -> bool {
        if let Node::Ident(found) = &self.node {
            return found == name;
        }
        self.children().into_iter().any(|child| child.mentions(name))
    }

    /// Whether `operand.field`, `operand.?field` or `has(operand.field)` is written anywhere below.
    pub fn selects(&self, name: &str, wanted: &str) -> bool {
        if let Node::Select { operand, field, .. } | Node::Has { operand, field } = &self.node
            && field == wanted
            && matches!(&operand.node, Node::Ident(found) if found == name)
        {
            return true;
        }
        self.children().into_iter().any(|child| child.selects(name, wanted))
    }

    fn children(&self) -> Vec<&Expr> {
        match &self.node {
            Node::Literal(_) | Node::Ident(_) => Vec::new(),
            Node::Select { operand, .. } | Node::Has { operand, .. } => vec![operand],
            Node::Call { target, arguments, .. } => target.iter().map(Box::as_ref).chain(arguments).collect(),
            Node::And(left, right) | Node::Or(left, right) => vec![left, right],
            Node::Conditional(condition, yes, no) => vec![condition, yes, no],
            Node::List(items) => items.iter().map(|(item, _)| item).collect(),
            Node::Map(entries) => entries.iter().flat_map(|(key, value, _)| [key, value]).collect(),
            Node::Struct { fields, .. } => fields.iter().map(|(_, value, _)| value).collect(),
            Node::Fold(fold) => [&fold.range, &fold.body].into_iter().chain(&fold.condition).collect(),
            Node::Bind { value, body, .. } => vec![value, body],
            Node::OptionalMap { target, body, .. } => vec![target, body],
        }
    }
}
