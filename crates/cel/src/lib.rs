//! The Common Expression Language as Kubernetes uses it: policies, match conditions and rules in custom resources.
//!
//! Start with [`Program::compile`], which parses and checks an expression against an [`Environment`] of variables, and
//! [`Program::evaluate`], which runs it under a [`Budget`]. `functions/` is the library, one table of signatures; the
//! checker and the evaluator both read it. What an expression may cost is counted while it runs, so that no expression
//! of a user holds a server up.
//!
//! This crate does no IO and knows no kind; it must never depend on any crate of Karve but `schema`.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod ast;
mod check;
mod cost;
mod error;
mod estimate;
mod eval;
mod functions;
#[doc(hidden)]
pub mod fuzzing;
mod lexer;
mod macros;
mod parser;
pub mod rules;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub use check::Environment;
pub use cost::{Budget, MATCH_CONDITIONS_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET};
pub use error::EvalError;
pub use estimate::{Sizes, Step};
pub use eval::Activation;
pub use functions::authorizer::{Authorize, Check, Outcome};
pub use functions::semver::is_version;
pub use parser::RESERVED;
pub use types::Type;
pub use value::{Key, Value};

use ast::Expr;

/// The longest expression that is accepted, in characters.
const MAX_EXPRESSION_CHARS: usize = 100_000;

/// What is wrong with an expression, as cel-go prints it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render())]
pub struct CompileError {
    expression: String,
    /// Offsets in characters and what is wrong there.
    problems: Vec<(usize, String)>,
}

/// An expression that has been parsed and checked.
#[derive(Debug)]
pub struct Program {
    expr: Expr,
    result: Type,
}

impl Program {
    pub fn compile(source: &str, environment: &Environment) -> Result<Program, CompileError> {
        let failed = |problems| CompileError {
            expression: source.to_owned(),
            problems,
        };
        if source.chars().count() > MAX_EXPRESSION_CHARS {
            let why = format!(
                "expression code point size exceeds limit: size: {}, limit {MAX_EXPRESSION_CHARS}",
                source.len()
            );
            return Err(failed(vec![(0, why)]));
        }
        let expr = parser::parse(source).map_err(failed)?;
        let result = check::check(&expr, environment).map_err(failed)?;
        Ok(Program { expr, result })
    }

    /// The type that the expression has.
    pub fn result_type(&self) -> &Type {
        &self.result
    }

    /// Whether a variable is mentioned anywhere.
    pub fn mentions(&self, name: &str) -> bool {
        self.expr.mentions(name)
    }

    /// Whether a field of a variable is mentioned anywhere.
    pub fn selects(&self, name: &str, field: &str) -> bool {
        self.expr.selects(name, field)
    }

    /// What the expression may cost at most, in the environment that it was compiled in.
    pub fn max_cost(&self, environment: &Environment, sizes: &dyn Sizes) -> u64 {
        estimate::max_cost(&self.expr, environment, sizes)
    }

    /// Runs the expression; what it costs is taken from the budget.
    pub fn evaluate(&self, activation: &dyn Activation, budget: &mut Budget) -> Result<Value, EvalError> {
        eval::evaluate(&self.expr, activation, budget)
    }
}

impl CompileError {
    fn render(&self) -> String {
        let shown: Vec<String> = self
            .problems
            .iter()
            .map(|(at, why)| self.render_one(*at, why))
            .collect();
        shown.join("\n")
    }

    fn render_one(&self, at: usize, why: &str) -> String {
        let mut line_start = 0;
        let mut line = 1;
        for (index, character) in self.expression.chars().enumerate().take(at) {
            if character == '\n' {
                line_start = index + 1;
                line += 1;
            }
        }
        let text: String = self
            .expression
            .chars()
            .skip(line_start)
            .take_while(|c| *c != '\n')
            .collect();
        let column = at - line_start;
        format!(
            "ERROR: <input>:{line}:{}: {why}\n | {text}\n | {}^",
            // Where there is nothing there is no first place either.
            if self.expression.is_empty() { 0 } else { column + 1 },
            ".".repeat(column)
        )
    }
}
