//! The three ways to patch: by example with knowledge of lists, by example without it, and by operations.

mod json_patch;
mod list;
mod merge;
mod strategic;

pub use json_patch::{MAX_JSON_PATCH_OPERATIONS, json_patch};
pub use merge::merge_patch;
pub use strategic::strategic_merge_patch;

/// Why a patch could not be applied. The messages are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not well formed; clients see 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch has more operations than are allowed; clients see 413.
    #[error("{0}")]
    TooLarge(String),
    /// The patch is well formed but does not fit the object; clients see 422.
    #[error("{0}")]
    DoesNotApply(String),
    /// The patch is at odds with the object's type; upstream answers 500.
    #[error("{0}")]
    Unexpected(String),
}
