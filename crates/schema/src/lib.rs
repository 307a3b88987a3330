//! The API as data: one table of facts about every built-in type, and the engine over it.
//!
//! Start with [`builtin`], which gives the [`Schema`], and [`Schema::kind`], which gives a [`TypeRef`]. Everything
//! else takes one: [`decode_json`], [`decode_yaml`] and [`decode_protobuf`] read objects into normalised [`Value`]s,
//! [`encode_json`] and [`encode_protobuf`] write them, [`strategic_merge_patch`], [`merge_patch`] and [`json_patch`]
//! change them; [`ownership`] tells who set which field of them. No kind has code of its own here; a new type is lines in `facts/`.
//!
//! This crate does no IO and depends on no other crate of Karve.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod defaults;
mod go;
mod json;
mod model;
pub mod ownership;
mod patch;
mod protobuf;
pub mod quantity;
mod table;
pub mod time;
mod view;
mod yaml;

pub use defaults::apply_table_defaults;
pub use go::{format_duration, parse_duration, value_text as go_text};
pub use json::{
    DecodeError, Decoded, MAX_DEPTH, decode_json, decode_untyped, encode_json, forget_empty_lists, indent_json,
    normalize, parse_json, splice_resource_version, write_json, write_list_item, write_with_resource_version,
};
pub use model::{Field, ListType, PatchStrategy, RawKind, Schema, SchemaAlternative, Shape, Type};
pub use patch::{MAX_JSON_PATCH_OPERATIONS, PatchError, json_patch, merge_patch, strategic_merge_patch};
pub use protobuf::{
    ProtobufError, decode_object, decode_protobuf, encode_object, encode_protobuf, envelope, watch_event,
};
pub use table::builtin;
pub use view::{FieldRef, ShapeRef, TypeRef, View};
pub use yaml::{decode_untyped_yaml, decode_yaml, duplicate_yaml_key, parse_yaml};

/// A decoded object. Its maps are sorted by key.
pub use serde_json::Value;
