//! Tokens to expressions.

use crate::ast::{Expr, Node};
use crate::lexer::{Placed, Token, tokens};
use crate::{Value, macros};

/// How deeply brackets may nest.
const MAX_DEPTH: usize = 64;

/// How many levels of expressions there may be, so that walking over them never needs much of a stack.
const MAX_LEVELS: usize = 200;

type Problem = (usize, String);

/// Operators by how tightly they bind, loosest first, with the function each is.
const LEVELS: &[&[(&str, &str)]] = &[
    &[
        ("<", "_<_"),
        ("<=", "_<=_"),
        (">", "_>_"),
        (">=", "_>=_"),
        ("==", "_==_"),
        ("!=", "_!=_"),
    ],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

/// Words that cannot be names of variables.
pub const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub fn parse(source: &str) -> Result<Expr, Vec<Problem>> {
    let tokens = tokens(source).map_err(|problem| vec![problem])?;
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
    };
    let parsed = parser.expression().and_then(|expr| parser.expect_end().map(|()| expr));
    parsed.map_err(|problem| vec![problem])
}

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn token(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn place(&self) -> usize {
        self.tokens[self.at].1
    }

    fn advance(&mut self) -> Token {
        let token = self.token().clone();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = matches!(self.token(), Token::Mark(found) if *found == mark);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, mark: &str) -> Result<(), Problem> {
        match self.eat(mark) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("expecting '{mark}'"))),
        }
    }

    fn expect_end(&self) -> Result<(), Problem> {
        match self.token() {
            Token::End => Ok(()),
            // Without this one token all would be well, and that is how upstream's parser says it.
            _ if matches!(self.tokens.get(self.at + 1), Some((Token::End, _))) => Err((
                self.place(),
                format!("Syntax error: extraneous input '{}' expecting <EOF>", self.shown()),
            )),
            _ => Err(self.unexpected("expecting <EOF>")),
        }
    }

    fn unexpected(&self, wanted: &str) -> Problem {
        (
            self.place(),
            format!("Syntax error: mismatched input '{}' {wanted}", self.shown()),
        )
    }

    fn shown(&self) -> String {
        match self.token() {
            Token::Ident(name) | Token::Quoted(name) => name.clone(),
            Token::Int(value) => value.to_string(),
            Token::Uint(value) => format!("{value}u"),
            Token::Double(value) => value.to_string(),
            Token::Text(text) => format!("{text:?}"),
            Token::Bytes(_) => "b\"\"".to_owned(),
            Token::Mark(mark) => (*mark).to_owned(),
            Token::End => "<EOF>".to_owned(),
        }
    }

    fn expression(&mut self) -> Result<Expr, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((
                self.place(),
                format!("expression recursion limit exceeded: {MAX_DEPTH}"),
            ));
        }
        let condition = self.or()?;
        let at = self.place();
        let parsed = match self.eat("?") {
            false => condition,
            true => {
                let yes = self.or()?;
                self.expect(":")?;
                let no = self.expression()?;
                Expr::new(at, Node::Conditional(condition.into(), yes.into(), no.into()))
            }
        };
        self.depth -= 1;
        limited(parsed)
    }

    fn or(&mut self) -> Result<Expr, Problem> {
        let mut terms = vec![(0, self.and()?)];
        loop {
            let at = self.place();
            if !self.eat("||") {
                return limited(balanced(terms, Node::Or));
            }
            terms.push((at, self.and()?));
        }
    }

    fn and(&mut self) -> Result<Expr, Problem> {
        let mut terms = vec![(0, self.binary(0)?)];
        loop {
            let at = self.place();
            if !self.eat("&&") {
                return limited(balanced(terms, Node::And));
            }
            terms.push((at, self.binary(0)?));
        }
    }

    fn binary(&mut self, level: usize) -> Result<Expr, Problem> {
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        let mut left = self.binary(level + 1)?;
        loop {
            let at = self.place();
            let function = match self.token() {
                Token::Mark(mark) => operators.iter().find(|(text, _)| text == mark).map(|(_, name)| *name),
                Token::Ident(name) if level == 0 && name == "in" => Some("@in"),
                _ => None,
            };
            let Some(function) = function else {
                return Ok(left);
            };
            self.advance();
            let right = self.binary(level + 1)?;
            left = limited(call(at, function, vec![left, right]))?;
        }
    }

    fn unary(&mut self) -> Result<Expr, Problem> {
        let at = self.place();
        if self.eat("!") {
            return Ok(call(at, "!_", vec![self.nested_unary()?]));
        }
        if self.eat("-") {
            return Ok(match self.token().clone() {
                Token::Int(value) => {
                    self.advance();
                    let literal = Expr::new(at, Node::Literal(Value::Int(value.wrapping_neg())));
                    self.members(literal)?
                }
                Token::Double(value) => {
                    self.advance();
                    let literal = Expr::new(at, Node::Literal(Value::Double(-value)));
                    self.members(literal)?
                }
                _ => call(at, "-_", vec![self.nested_unary()?]),
            });
        }
        let primary = self.primary()?;
        self.members(primary)
    }

    fn nested_unary(&mut self) -> Result<Expr, Problem> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err((
                self.place(),
                format!("expression recursion limit exceeded: {MAX_DEPTH}"),
            ));
        }
        let operand = self.unary();
        self.depth -= 1;
        operand
    }

    /// What follows a primary expression: selections, calls, indexes.
    fn members(&mut self, mut operand: Expr) -> Result<Expr, Problem> {
        loop {
            let at = self.place();
            if self.eat(".") {
                let optional = self.eat("?");
                let field = self.field_name()?;
                if !optional && *self.token() == Token::Mark("(") {
                    let paren = self.place();
                    let arguments = self.arguments()?;
                    operand = macros::member(paren, operand, &field, arguments)?;
                } else if !optional && *self.token() == Token::Mark("{") {
                    operand = self.structure(operand, Some(field))?;
                } else {
                    let operand_box = operand.into();
                    operand = Expr::new(
                        at,
                        Node::Select {
                            operand: operand_box,
                            field,
                            optional,
                        },
                    );
                }
            } else if self.eat("[") {
                let optional = self.eat("?");
                let index = self.expression()?;
                self.expect("]")?;
                let function = if optional { "_[?_]" } else { "_[_]" };
                operand = call(at, function, vec![operand, index]);
            } else {
                return Ok(operand);
            }
            operand = limited(operand)?;
        }
    }

    fn field_name(&mut self) -> Result<String, Problem> {
        match self.advance() {
            Token::Ident(name) | Token::Quoted(name) => Ok(name),
            _ => {
                self.at -= usize::from(*self.token() != Token::End);
                Err(self.unexpected("expecting IDENTIFIER"))
            }
        }
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, Problem> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.eat(")") {
            if !arguments.is_empty() {
                self.expect(",")?;
            }
            arguments.push(self.expression()?);
        }
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Expr, Problem> {
        let at = self.place();
        let literal = |value| Ok(Expr::new(at, Node::Literal(value)));
        match self.advance() {
            Token::Int(value) if value == i64::MIN => Err((at, "invalid int literal".to_owned())),
            Token::Int(value) => literal(Value::Int(value)),
            Token::Uint(value) => literal(Value::Uint(value)),
            Token::Double(value) => literal(Value::Double(value)),
            Token::Text(text) => literal(Value::String(text)),
            Token::Bytes(bytes) => literal(Value::Bytes(bytes)),
            Token::Mark("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Mark("[") => self.list(at),
            Token::Mark("{") => self.map(at),
            Token::Mark(".") => {
                let Token::Ident(name) = self.advance() else {
                    return Err((at, "Syntax error: no viable alternative at input '.'".to_owned()));
                };
                self.named(at, name)
            }
            Token::Ident(name) => self.named(at, name),
            _ => {
                self.at = self
                    .tokens
                    .iter()
                    .position(|(_, place)| *place == at)
                    .unwrap_or(self.at);
                let wanted = "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
                Err(self.unexpected(wanted))
            }
        }
    }

    fn named(&mut self, at: usize, name: String) -> Result<Expr, Problem> {
        match name.as_str() {
            "true" => return Ok(Expr::new(at, Node::Literal(Value::Bool(true)))),
            "false" => return Ok(Expr::new(at, Node::Literal(Value::Bool(false)))),
            "null" => return Ok(Expr::new(at, Node::Literal(Value::Null))),
            reserved if RESERVED.contains(&reserved) => {
                return Err((at, format!("reserved identifier: {reserved}")));
            }
            _ => {}
        }
        match self.token() {
            Token::Mark("(") => {
                let arguments = self.arguments()?;
                macros::global(at, &name, arguments)
            }
            Token::Mark("{") => self.structure(Expr::new(at, Node::Ident(name)), None),
            _ => Ok(Expr::new(at, Node::Ident(name))),
        }
    }

    fn list(&mut self, at: usize) -> Result<Expr, Problem> {
        let mut items = Vec::new();
        while !self.eat("]") {
            if !items.is_empty() {
                self.expect(",")?;
                if self.eat("]") {
                    break;
                }
            }
            let optional = self.eat("?");
            items.push((self.expression()?, optional));
        }
        Ok(Expr::new(at, Node::List(items)))
    }

    fn map(&mut self, at: usize) -> Result<Expr, Problem> {
        let mut entries = Vec::new();
        while !self.eat("}") {
            if !entries.is_empty() {
                self.expect(",")?;
                if self.eat("}") {
                    break;
                }
            }
            let optional = self.eat("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?, optional));
        }
        Ok(Expr::new(at, Node::Map(entries)))
    }

    /// `Type.name{field: value}`.
    fn structure(&mut self, operand: Expr, last: Option<String>) -> Result<Expr, Problem> {
        let at = self.place();
        let mut name = type_name(&operand).ok_or_else(|| self.unexpected("expecting <EOF>"))?;
        if let Some(last) = last {
            name = format!("{name}.{last}");
        }
        self.expect("{")?;
        let mut fields: Vec<(String, Expr, bool)> = Vec::new();
        while !self.eat("}") {
            if !fields.is_empty() {
                self.expect(",")?;
                if self.eat("}") {
                    break;
                }
            }
            let optional = self.eat("?");
            let field = self.field_name()?;
            self.expect(":")?;
            fields.push((field, self.expression()?, optional));
        }
        Ok(Expr::new(at, Node::Struct { name, fields }))
    }
}

fn limited(expr: Expr) -> Result<Expr, Problem> {
    match expr.depth <= MAX_LEVELS {
        true => Ok(expr),
        false => Err((expr.at, format!("expression recursion limit exceeded: {MAX_LEVELS}"))),
    }
}

/// Joins terms, each with the place of the operator before it, to a tree that is as flat as it can be.
fn balanced(mut terms: Vec<(usize, Expr)>, join: fn(Box<Expr>, Box<Expr>) -> Node) -> Expr {
    if terms.len() == 1 {
        return terms.remove(0).1;
    }
    let right = terms.split_off(terms.len() / 2);
    let at = right[0].0;
    let (left, right) = (balanced(terms, join), balanced(right, join));
    Expr::new(at, join(left.into(), right.into()))
}

fn type_name(expr: &Expr) -> Option<String> {
    match &expr.node {
        Node::Ident(name) => Some(name.clone()),
        Node::Select {
            operand,
            field,
            optional: false,
        } => Some(format!("{}.{field}", type_name(operand)?)),
        _ => None,
    }
}

pub fn call(at: usize, function: &str, arguments: Vec<Expr>) -> Expr {
    let function = function.to_owned();
    Expr::new(
        at,
        Node::Call {
            function,
            target: None,
            arguments,
        },
    )
}
