//! The static binary. It is also the built-in image, so it must run where there is no C library.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::tools::{self, cargo, run, target_dir};

/// Builds the release binary into `target/dist/karve`.
pub fn release() -> Result<PathBuf> {
    build(&["karve"])?;
    place("karve")
}

/// Builds the load generator of benchmarks into `target/dist/load`.
pub fn load_generator() -> Result<PathBuf> {
    build(&["load"])?;
    place("load")
}

/// Builds any program of the workspace into `target/dist`.
pub fn program(package: &str) -> Result<PathBuf> {
    build(&[package])?;
    place(package)
}

/// Builds the release binary and another program at once, so that what they share is compiled once.
pub fn release_and(package: &str) -> Result<(PathBuf, PathBuf)> {
    build(&["karve", package])?;
    Ok((place("karve")?, place(package)?))
}

fn build(packages: &[&str]) -> Result<()> {
    let host = host_target()?;
    let mut command = cargo();
    command.args(["build", "--release", "--target", &host]);
    for package in packages {
        command.args(["--package", package]);
    }
    run(command.env("RUSTFLAGS", rustflags(&host)))
}

/// Without a C library beside it; packing relocations and folding equal functions makes it 2.8 MB smaller.
fn rustflags(host: &str) -> String {
    let mut flags = "-C target-feature=+crt-static -C link-arg=-Wl,-z,pack-relative-relocs".to_owned();
    // Only the linker that Rust brings along folds functions, and it is the default only here.
    if host == "x86_64-unknown-linux-gnu" {
        flags += " -C link-arg=-Wl,--icf=all";
    }
    flags
}

/// Puts a program that was built where it is not in the way of the next build.
fn place(program: &str) -> Result<PathBuf> {
    let built = target_dir().join(host_target()?).join("release").join(program);
    let dist = target_dir().join("dist");
    fs::create_dir_all(&dist)?;
    let placed = dist.join(program);
    let staged = dist.join(format!("{program}.new"));
    fs::copy(&built, &staged).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&staged, &placed)?;
    Ok(placed)
}

/// Builds the binary and becomes a cluster.
pub fn up(arguments: &[String]) -> Result<()> {
    let binary = release()?;
    let failed = Command::new(&binary).arg("up").args(arguments).exec();
    Err(failed).with_context(|| format!("cannot run {}", binary.display()))
}

pub fn megabytes(path: &Path) -> Result<f64> {
    Ok(fs::metadata(path)?.len() as f64 / 1e6)
}

fn host_target() -> Result<String> {
    let version = tools::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .context("rustc does not say which host it is for")
}
