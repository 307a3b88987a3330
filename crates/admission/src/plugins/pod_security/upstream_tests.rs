//! Upstream's own standards as the judge: what they find in upstream's fixtures, and in variants of them that try ways
//! around a standard, Karve finds in the same words.

use std::path::{Path, PathBuf};
use std::process::Command;

use api::Value;
use serde::Deserialize;
use std::collections::BTreeMap;

use super::checks;
use super::standard::{Level, Standard};

#[derive(Deserialize)]
struct Judged {
    file: String,
    pod: Value,
    forbidden: BTreeMap<String, String>,
}

/// Differences that are shown when there are many.
const SHOWN: usize = 12;

#[test]
fn the_standards_find_what_upstream_finds() {
    let Some(judged) = judged_by_upstream() else { return };
    assert!(judged.len() > 1000, "only {} pods were judged", judged.len());
    let mut differences = Vec::new();
    for row in &judged {
        for standard in standards() {
            let ours = checks::violations(standard, &row.pod).join(", ");
            let theirs = row.forbidden.get(&standard.to_string()).map_or("", String::as_str);
            if ours != theirs {
                differences.push(format!(
                    "{} {standard}\n  upstream: {theirs}\n  Karve:    {ours}",
                    row.file
                ));
            }
        }
    }
    let shown = differences.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{shown}", differences.len());
}

fn standards() -> impl Iterator<Item = Standard> {
    let minors = || std::iter::once(None).chain((0..=36).map(Some));
    [Level::Baseline, Level::Restricted]
        .into_iter()
        .flat_map(move |level| minors().map(move |minor| Standard { level, minor }))
}

/// `None`, after saying so, when upstream's program has not been built.
fn judged_by_upstream() -> Option<Vec<Judged>> {
    let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop");
    let printed = |command: &mut Command| {
        let output = command.current_dir(&interop).output().ok()?;
        String::from_utf8(output.stdout).ok()
    };
    let programs = printed(Command::new("./build.sh").arg("--path"))?;
    let program = PathBuf::from(programs.trim()).join("pod-security");
    let fixtures = printed(Command::new("go").args(["list", "-m", "-f", "{{.Dir}}", "k8s.io/pod-security-admission"]));
    let (true, Some(fixtures)) = (program.exists(), fixtures) else {
        let message = "SKIPPED: the pod security standards are not compared; run interop/build.sh pod-security first";
        assert!(std::env::var_os("KARVE_REQUIRE_ALL").is_none(), "{message}");
        eprintln!("{message}");
        return None;
    };
    let lines = printed(Command::new(program).arg(Path::new(fixtures.trim()).join("test/testdata")))?;
    Some(lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}
