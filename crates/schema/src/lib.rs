//! The API as data.

pub use serde_json::Value;
