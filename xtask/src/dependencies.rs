//! What the dependencies are held to: licences, sources, duplicates and crates that are not wanted, as deny.toml says.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::tools::{cache_dir, cargo, run};

/// The version of cargo-deny whose answers CI goes by.
const VERSION: &str = "0.20.2";

/// Advisories are left out: their database is on the internet and changes without a change here.
const CHECKS: &[&str] = &["licenses", "bans", "sources"];

/// Runs `cargo deny` over the workspace. Without a network it works once everything is in cargo's own cache.
pub fn check() -> Result<()> {
    let program = cargo_deny()?;
    // The sources for other systems too, which a build leaves out and the graph of dependencies is made from.
    run(cargo().args(["fetch", "--locked"]))?;
    let mut command = std::process::Command::new(program);
    command
        .current_dir(crate::tools::root())
        .args(["--offline", "--locked", "--workspace", "check"])
        .args(CHECKS);
    run(&mut command)
}

/// The program in the cache, which is built first when it is not there.
fn cargo_deny() -> Result<PathBuf> {
    let dir = cache_dir().join("tools").join(format!("cargo-deny-{VERSION}"));
    let program = dir.join("bin/cargo-deny");
    if program.exists() {
        return Ok(program);
    }
    let target = tempfile::Builder::new()
        .prefix("cargo-deny-")
        .tempdir()
        .context("cannot make a temporary directory")?;
    // It runs for a second: what optimizing it takes is never won back.
    run(cargo()
        .args(["install", "--locked", "--debug", "cargo-deny"])
        .args(["--version", &format!("={VERSION}")])
        .arg("--root")
        .arg(&dir)
        .env("CARGO_TARGET_DIR", target.path())
        .env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
    Ok(program)
}
