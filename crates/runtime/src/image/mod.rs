//! Images: what a container's root is made of.
//!
//! `reference` reads names, `archive` reads what is imported, `registry` fetches what is pulled, `unpacker` is the
//! process in which `layer` unpacks it and `stream` undoes its compression, `store` and `records` keep it, `builtin` adds
//! the one image that needs no import. `skeleton` lies below all of them; `lookup` finds files in a stack of layers
//! without mounting it. `limits` has every bound that images from outside are held to.

pub mod archive;
pub mod builtin;
pub mod config;
mod digest;
pub mod layer;
pub mod limits;
mod lookup;
pub mod manifest;
mod records;
pub mod reference;
pub mod registry;
mod room;
mod skeleton;
mod store;
pub mod stream;
pub mod unpacker;
mod work;

pub use config::RunConfig;
pub use lookup::read_file;
pub use records::Image;
pub use skeleton::NAME as SKELETON;
pub use store::{ImageError, ImageStore};
pub use unpacker::Launcher;
