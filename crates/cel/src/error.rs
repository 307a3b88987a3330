//! Why an expression has no value.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// What the expression itself did wrong.
    #[error("{0}")]
    Failed(String),
    /// This one expression costs more than one may.
    #[error("operation cancelled: actual cost limit exceeded")]
    TooExpensive,
    /// All expressions together cost more than they may.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    OutOfBudget,
}

/// The failure of the expression itself, in the words that users see.
pub fn failed(why: impl Into<String>) -> EvalError {
    EvalError::Failed(why.into())
}
