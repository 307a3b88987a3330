//! One file per kind, and the table of all of them.

use crate::Resource;

/// Every served built-in resource, by group and plural name.
pub fn all() -> &'static [&'static Resource] {
    &[]
}

/// The resource that is served under this group, version and plural name.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    all()
        .iter()
        .copied()
        .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

/// The resource of this group, version and kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    all()
        .iter()
        .copied()
        .find(|resource| resource.group == group && resource.version == version && resource.kind == kind)
}
