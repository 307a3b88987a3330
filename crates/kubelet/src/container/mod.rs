//! What the runtime is told to run: container and sandbox configurations made from pods.

pub mod labels;
