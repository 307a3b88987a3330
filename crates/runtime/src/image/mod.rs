//! Images: what a container's root is made of.
//!
//! `reference` reads names, `archive` reads what is imported, `registry` fetches what is pulled, `layer` unpacks it, `store` and `records` keep it, `builtin` adds the
//! one image that needs no import. `skeleton` lies below all of them; `lookup` finds files in a stack of layers without mounting it.

pub mod archive;
pub mod builtin;
pub mod config;
mod digest;
pub mod layer;
mod lookup;
pub mod manifest;
mod records;
pub mod reference;
pub mod registry;
mod skeleton;
mod store;

pub use config::{ImageConfig, RunConfig};
pub use lookup::read_file;
pub use records::Image;
pub use skeleton::NAME as SKELETON;
pub use store::{ImageError, ImageStore};
