//! Running other programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default()
}

/// Where builds and reports go.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// What is downloaded or built once for all checkouts.
pub fn cache_dir() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/karve");
    std::env::var_os("KARVE_CACHE").map_or_else(home, PathBuf::from)
}

/// The commit that is checked out.
pub fn commit() -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(root()).args(["rev-parse", "--short", "HEAD"]);
    Ok(output(&mut command)?.trim().to_owned())
}

/// The date in UTC.
pub fn today() -> String {
    let date = time::UtcDateTime::now().date();
    format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day())
}

/// The time in UTC, as objects write it.
pub fn now() -> String {
    let now = time::UtcDateTime::now();
    let (hour, minute, second, micro) = now.time().as_hms_micro();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{micro:06}Z", today())
}

/// Runs a command to its end and fails when it does.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("cannot run {shown}"))?;
    ensure!(status.success(), "{shown} failed with {status}");
    Ok(())
}

/// Runs a command and returns what it printed; its errors go to the terminal.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {shown}"))?;
    ensure!(output.status.success(), "{shown} failed with {}", output.status);
    String::from_utf8(output.stdout).with_context(|| format!("{shown} printed something that is not text"))
}

/// The end of a log, each line no longer than a terminal can show well; empty when it cannot be read.
pub fn last_lines(log: &Path, count: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines: Vec<String> = text
        .lines()
        .rev()
        .take(count)
        .map(|line| line.chars().take(400).collect())
        .collect();
    lines.reverse();
    lines.join("\n")
}

/// Says loudly what is not tested, or fails when everything must be.
pub fn skip(what: &str) -> Result<()> {
    println!("SKIPPED: {what}");
    let required = std::env::var("KARVE_REQUIRE_ALL").is_ok_and(|value| value == "1");
    ensure!(!required, "{what}, and KARVE_REQUIRE_ALL is set");
    Ok(())
}

/// The cargo that runs this, in the repository's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
