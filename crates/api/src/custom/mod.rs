//! Custom resources: what a CustomResourceDefinition says, and what it makes of objects.
//!
//! Start with [`Definition`], the parsed form of one definition, and [`Version`], all that is needed to serve one of its
//! versions. A version's schema is a [`Structural`]: it prunes ([`prune`]), fills in defaults ([`defaults`]) and
//! validates ([`validate`]) objects. [`names`](naming) decides which names a definition gets and what its conditions
//! say.
//!
//! Like everything in this crate, nothing here does IO.

mod columns;
mod defaults;
mod definition;
mod format;
mod jsonpath;
mod metadata;
pub mod naming;
mod ownership;
mod prune;
mod schema_rules;
mod source;
mod structural;
mod validate;

#[cfg(test)]
mod tests;

pub use columns::Printed;
pub use definition::{Conversion, Definition, ScalePaths, Version, WITH_STATUS, WITHOUT_STATUS, compare_versions};
pub(crate) use format::is_known as is_known_format;
pub use jsonpath::SimplePath;
pub(crate) use schema_rules::below;
pub use schema_rules::{expensive_rules, validate_definition_schema};
pub use source::{Compiled, SchemaSource};
pub use structural::{Additional, Basic, Structural};

/// What keeps a definition until the objects of its kind are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
