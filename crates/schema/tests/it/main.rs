//! What the engine does, as documentation: each test states one rule, with the input and the reviewed output.

mod decoding;
mod defaults;
mod generate;
mod oracle;
mod patching;
mod properties;
mod protobuf;
mod table;

use schema::{TypeRef, Value};

/// The type of `apiVersion` and `kind`, which must exist.
fn kind(api_version: &str, kind: &str) -> TypeRef<'static> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    match schema::builtin().kind(group, version, kind) {
        Some(ty) => ty,
        None => panic!("no kind {kind} in {api_version}"),
    }
}

/// A value from the YAML that tests are written in.
fn yaml(text: &str) -> Value {
    schema::parse_yaml(text.as_bytes()).unwrap()
}

/// One line of JSON, as clients would see it.
fn json(value: &Value) -> String {
    String::from_utf8(schema::encode_json(value)).unwrap()
}
