//! As many pods as the load needs.

pub mod horizontal;
