//! Helpers for tests: objects from YAML, plans as text.

use client::Object;
use std::sync::Arc;

use api::Value;
use bytes::Bytes;
use client::when::Moment;

/// All tests happen at noon.
pub fn noon() -> Moment {
    Moment::parse("2026-01-01T12:00:00Z").unwrap()
}

/// The objects of a YAML stream, as a projection.
pub fn objects<T: Object>(yaml: &str) -> Vec<Arc<T>> {
    values(yaml)
        .into_iter()
        .map(|value| Arc::new(T::decode(&Bytes::from(value.to_string())).unwrap()))
        .collect()
}

pub fn object<T: Object>(yaml: &str) -> Arc<T> {
    objects(yaml).remove(0)
}

pub fn values(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("\n---").filter(|text| !text.trim().is_empty());
    documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
}
