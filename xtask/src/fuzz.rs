//! `cargo xtask fuzz`: libFuzzer on every reader of bytes from outside; without a nightly compiler, mutated inputs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::signals;
use crate::tools::{cargo, is_on_path, output, root, run as run_command, target_dir};

#[derive(Args)]
pub struct FuzzArgs {
    /// How long each target is run
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where the mutated inputs begin if there is no nightly compiler
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these targets
    names: Vec<String>,
}

/// What makes libFuzzer see which code an input reached and what it was compared with.
const COVERAGE: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// What one input may take; the longest that is tried.
const LIMITS: &[&str] = &["-timeout=10", "-rss_limit_mb=2048", "-max_len=65536"];

pub fn run(args: &FuzzArgs) -> Result<()> {
    let known = targets()?;
    if let Some(name) = args.names.iter().find(|name| !known.contains(name)) {
        bail!("there is no target {name:?}; there are {}", known.join(", "));
    }
    let wanted = |name: &&String| args.names.is_empty() || args.names.contains(name);
    let names: Vec<&String> = known.iter().filter(wanted).collect();
    let Some(host) = nightly_host() else {
        println!("there is no nightly compiler, so nothing guides the inputs: `rustup toolchain install nightly`");
        return run_command(
            cargo()
                .args(["run", "--quiet", "--package", "fuzzing", "--", "run"])
                .args([args.seed.to_string(), args.seconds.to_string()])
                .args(names),
        );
    };
    let programs = build(&host)?;
    let corpus = dir("corpus")?;
    run_command(
        cargo()
            .args(["run", "--quiet", "--package", "fuzzing", "--", "seeds"])
            .arg(&corpus),
    )?;
    let found = dir("found")?;
    let mut failed = Vec::new();
    for name in names {
        signals::check()?;
        println!("-- {name}");
        let mut command = Command::new(programs.join(name));
        command.arg(corpus.join(name)).args(LIMITS);
        command.arg(format!("-dict={}", corpus.join("dictionary").display()));
        command.arg(format!("-artifact_prefix={}/{name}-", found.display()));
        command.arg(format!("-max_total_time={}", args.seconds));
        command.args(["-verbosity=0", "-print_final_stats=1"]);
        if run_command(&mut command).is_err() {
            failed.push(name.as_str());
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("failed: {}; the inputs are in {}", failed.join(", "), found.display()),
    }
}

/// The names of libFuzzer's programs, sorted.
fn targets() -> Result<Vec<String>> {
    let dir = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort_unstable();
    Ok(names)
}

/// What the nightly compiler compiles for, if there is one.
fn nightly_host() -> Option<String> {
    if !is_on_path("rustup") && !is_on_path("rustc") {
        return None;
    }
    let told = Command::new("rustc").args(["+nightly", "-vV"]).output().ok()?;
    let text = String::from_utf8(told.stdout).ok().filter(|_| told.status.success())?;
    Some(text.lines().find_map(|line| line.strip_prefix("host: "))?.to_owned())
}

/// Builds libFuzzer's programs; returns where they are.
fn build(host: &str) -> Result<PathBuf> {
    let target = target_dir().join("fuzz");
    // The readers are fuzzed with the very dependencies that Karve has.
    fs::copy(root().join("Cargo.lock"), root().join("fuzz/Cargo.lock")).context("cannot copy Cargo.lock")?;
    let mut command = Command::new("cargo");
    command.current_dir(root().join("fuzz"));
    command.args(["+nightly", "build", "--release", "--target", host, "--target-dir"]);
    command.arg(&target).env("RUSTFLAGS", COVERAGE.join(" "));
    // How Karve itself is built is of no concern here.
    for variable in [
        "CARGO",
        "CARGO_BUILD_TARGET",
        "CARGO_INCREMENTAL",
        "RUSTC",
        "RUSTUP_TOOLCHAIN",
    ] {
        command.env_remove(variable);
    }
    output(&mut command)?;
    Ok(target.join(host).join("release"))
}

fn dir(name: &str) -> Result<PathBuf> {
    let dir = target_dir().join("fuzz").join(name);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}
