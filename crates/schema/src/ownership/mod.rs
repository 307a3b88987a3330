//! Who owns which field: server-side apply and the tracking of plain writes.
//!
//! Start with [`track`], which every create, update and patch goes through, and [`apply`]. Both take the kind as
//! [`Versions`] and work on sets of paths ([`Set`]) that `walk` finds in objects. Built-in and custom kinds differ only in
//! where a [`Node`] comes from.

mod apply;
mod check;
mod filter;
mod managed;
mod node;
mod set;
mod track;
mod walk;

#[cfg(test)]
mod tests;

pub use apply::{ApplyError, Conflict, apply};
pub use filter::Filter;
pub use managed::{Manager, Operation, is_reset, read, write};
pub use node::{Node, Scalar, Tree};
pub use set::{Element, Entry, FieldsError, Set};
pub use track::{Versions, Writer, track};
pub use walk::{Comparison, compare, fields_of, merge, remove};

/// Fields that nobody owns.
pub(crate) const NEVER_OWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "clusterName"],
    &["metadata", "creationTimestamp"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
];
