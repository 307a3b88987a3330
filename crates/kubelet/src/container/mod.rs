//! What the runtime is told to run: container and sandbox configurations made from pods.

pub mod config;
pub mod dns;
pub mod env;
pub mod env_file;
pub mod expand;
pub mod fields;
pub mod labels;
pub mod resources;
pub mod sandbox;
pub mod security;
pub mod services;
