//! JSON in and out: reading guided by the schema, writing in the order clients expect, splicing in the revision.

mod decode;
mod indent;
mod leaf;
mod members;
mod normalize;
mod path;
mod reader;
mod splice;
mod stored;
mod untyped;
mod write;

pub use decode::{Decoded, decode_json};
pub use indent::indent_json;
pub use normalize::normalize;
pub use reader::{MAX_DEPTH, parse_json};
pub use splice::{splice_resource_version, write_list_item, write_with_resource_version};
pub use stored::forget_empty_lists;
pub use untyped::decode_untyped;
pub use write::{encode_json, write_json};

pub(crate) use leaf::{Leaf, LeafError, decode_leaf, from_f64, zero};
pub(crate) use members::Members;
pub(crate) use reader::text;

/// Why bytes could not be made an object of the wanted type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not JSON. Where upstream reads an object it puts `couldn't get version/kind; json parse error: `
    /// before this text.
    #[error("{0}")]
    Syntax(String),
    /// A value has the wrong type or does not parse as what it should be.
    #[error("{0}")]
    Type(String),
    /// The bytes are not YAML that JSON could express.
    #[error("{0}")]
    Yaml(String),
}
