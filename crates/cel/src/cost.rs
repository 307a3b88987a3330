//! What expressions cost while they run, in upstream's units.

use crate::{EvalError, Value};

/// What one expression may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// What all expressions of one policy, or of one custom resource, may cost together.
pub const RUNTIME_BUDGET: u64 = 10_000_000;

/// What the match conditions of one webhook or policy may cost together.
pub const MATCH_CONDITIONS_BUDGET: u64 = RUNTIME_BUDGET / 4;

/// Looking at a variable or a field, and any function that has no price of its own.
pub const STEP: u64 = 1;
pub const MAKE_LIST: u64 = 10;
pub const MAKE_MAP: u64 = 30;
pub const MAKE_STRUCT: u64 = 40;
/// What a macro spends on each item beside its body.
pub const ITERATION: u64 = 3;

/// What is left to spend. One expression may spend only a part of it.
#[derive(Clone, Debug)]
pub struct Budget {
    left: u64,
    call_left: u64,
    per_call: u64,
}

impl Budget {
    pub fn new(total: u64, per_call: u64) -> Budget {
        Budget {
            left: total,
            call_left: per_call,
            per_call,
        }
    }

    /// A new expression begins.
    pub fn begin_call(&mut self) {
        self.call_left = self.per_call;
    }

    pub fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        let left = self.left.checked_sub(cost);
        let call_left = self.call_left.checked_sub(cost);
        match (left, call_left) {
            (Some(left), Some(call_left)) => {
                self.left = left;
                self.call_left = call_left;
                Ok(())
            }
            (None, _) => {
                self.left = 0;
                Err(EvalError::OutOfBudget)
            }
            (_, None) => {
                self.left = self.left.saturating_sub(self.call_left);
                self.call_left = 0;
                Err(EvalError::TooExpensive)
            }
        }
    }
}

/// What walking over a text costs: a tenth of its length, rounded up.
pub fn traversal(length: usize) -> u64 {
    (length as u64).div_ceil(10)
}

/// How much there is of a value: characters, bytes or items.
pub fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(entries) | Value::Struct(_, entries) => entries.len(),
        _ => 1,
    }
}
