//! The labels of a stored object, read without the rest of it. They are the same in all versions.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;

pub type Labels<'a> = HashMap<Cow<'a, str>, Cow<'a, str>>;

#[derive(Deserialize)]
struct Labelled<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
}

#[derive(Default, Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default)]
    labels: Labels<'a>,
}

/// None when the bytes are no object.
pub fn labels_of(object: &[u8]) -> Option<Labels<'_>> {
    let object: Labelled<'_> = serde_json::from_slice(object).ok()?;
    Some(object.metadata.labels)
}
