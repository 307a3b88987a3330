//! The real peers of `interop/`, built on demand.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::tools::{output, root};

/// What the end-to-end tests start.
const NEEDED: &[&str] = &["kubectl"];

/// Builds upstream's programs unless they are in the cache, and returns their paths in the same order.
pub fn build(names: &[String]) -> Result<Vec<PathBuf>> {
    let mut command = Command::new(root().join("interop/build.sh"));
    match names.is_empty() {
        true => command.args(NEEDED),
        false => command.args(names),
    };
    Ok(output(&mut command)?.lines().map(PathBuf::from).collect())
}
