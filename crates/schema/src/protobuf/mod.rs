//! Values to protobuf messages and back, for every type of the table.

pub mod envelope;

mod decode;
mod encode;
mod wire;

pub use decode::{decode_object, decode_protobuf};
pub use encode::{encode_object, encode_protobuf, watch_event};

/// Why a message could not be written or read. Kept small, because it passes through every level of recursion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    #[error(
        "object *{go_name} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message"
    )]
    JsonOnly { go_name: Box<str> },
    #[error("no protobuf message is known for {api_version} {kind}")]
    UnknownKind { api_version: Box<str>, kind: Box<str> },
    /// A value does not fit its type; it was not normalised.
    #[error("{0}")]
    Unfit(Box<str>),
    #[error("protobuf: the message ends early")]
    Truncated,
    #[error("protobuf: {0}")]
    Malformed(&'static str),
    #[error("protobuf: messages nest deeper than {0}")]
    TooDeep(usize),
    #[error("protobuf: {0}")]
    Content(Box<str>),
    #[error("the bytes do not begin with the protobuf envelope's prefix")]
    NoEnvelope,
}
