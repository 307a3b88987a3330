//! The schema of one version as its definition states it, packed, and what is made of it when it is first needed.
//!
//! Most definitions of a cluster are never used in most of their versions, and a schema in memory is some ten times as
//! large as its text.

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use cel::rules::Validator;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Structural, ownership};
use crate::Value;

/// The schema of one version.
#[derive(Clone, Debug)]
pub struct SchemaSource {
    packed: Box<[u8]>,
    compiled: OnceLock<Arc<Compiled>>,
}

/// What objects are held to.
#[derive(Debug)]
pub struct Compiled {
    pub schema: Structural,
    /// The schema's rules in CEL.
    pub expressions: Option<Validator>,
    /// How its fields are owned.
    pub ownership: schema::ownership::Tree,
}

impl SchemaSource {
    pub fn new(schema: &Value) -> SchemaSource {
        SchemaSource {
            packed: pack(schema.to_string().as_bytes()),
            compiled: OnceLock::new(),
        }
    }

    /// The schema as the definition states it; null where it states none.
    pub fn schema(&self) -> Value {
        let mut text = Vec::new();
        // What was packed here can be unpacked and is JSON.
        let unpacked = DeflateDecoder::new(&*self.packed).read_to_end(&mut text);
        unpacked
            .ok()
            .and_then(|_| serde_json::from_slice(&text).ok())
            .unwrap_or_default()
    }

    pub fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| {
            let stated = self.schema();
            let schema = Structural::parse(&stated);
            Arc::new(Compiled {
                // A definition whose rules do not compile is not stored.
                expressions: Validator::compile(&stated).ok().flatten(),
                ownership: ownership::of_object(&schema),
                schema,
            })
        })
    }

    /// Whether it has been used.
    pub fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }
}

/// Writing to memory does not fail.
fn pack(text: &[u8]) -> Box<[u8]> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(text).and_then(|()| encoder.finish());
    written.unwrap_or_default().into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_kept_as_it_is_stated_and_compiled_when_it_is_used() {
        let stated =
            json!({"type": "object", "properties": {"a": {"type": "string", "description": "ä".repeat(1000)}}});
        let source = SchemaSource::new(&stated);
        assert!(source.packed.len() < 200, "{}", source.packed.len());
        assert_eq!(source.schema(), stated);
        assert!(!source.is_compiled());
        assert!(source.compiled().schema.properties.contains_key("a"));
        assert!(source.is_compiled());
        assert_eq!(SchemaSource::new(&Value::Null).schema(), Value::Null);
    }
}
