//! Values to protobuf messages and back, for every type of the table.

pub mod envelope;

mod decode;
mod encode;
mod wire;

pub use decode::{decode_object, decode_protobuf};
pub use encode::{encode_object, encode_protobuf, watch_event};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error(
        "object *{go_name} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
    )]
    JsonOnly { go_name: String },
    #[error("no protobuf message is known for {api_version} {kind}")]
    UnknownKind { api_version: String, kind: String },
    /// The value does not fit its type; it was not normalised.
    #[error("{type_name}.{field}: {found} cannot be written as {wanted}")]
    Unfit {
        type_name: String,
        field: String,
        found: &'static str,
        wanted: String,
    },
    #[error("protobuf: the message ends early")]
    Truncated,
    #[error("protobuf: {0}")]
    Malformed(&'static str),
    #[error("protobuf: messages nest deeper than {0}")]
    TooDeep(usize),
    #[error("protobuf: {0}")]
    Content(String),
    #[error("the bytes do not begin with the protobuf envelope's prefix")]
    NoEnvelope,
}
