//! Every crate denies `unwrap`, `expect` and `panic!` outside of its tests, where clippy checks it.

use std::fs;
use std::path::{Path, PathBuf};

/// What stands in every crate root. Where a panic is impossible, the function has `#[expect]` with the reason.
const DENIAL: &str = "#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]";

/// Programs beside `crates`.
const PROGRAMS: &[&str] = &["bench", "hostile", "vm", "xtask"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the workspace")
        .to_owned()
}

/// The `lib.rs` and `main.rs` of all crates.
fn crate_roots(workspace: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace.join("crates")).expect("crates can be listed");
    let crates = entries.map(|entry| entry.expect("an entry can be read").path());
    let programs = PROGRAMS.iter().map(|program| workspace.join(program));
    let mut roots: Vec<PathBuf> = crates
        .chain(programs)
        .flat_map(|directory| ["src/lib.rs", "src/main.rs"].map(|root| directory.join(root)))
        .filter(|root| root.is_file())
        .collect();
    roots.sort();
    roots
}

/// A line of its own: one in a comment denies nothing.
fn denies_panics(root: &str) -> bool {
    root.lines().any(|line| line == DENIAL)
}

#[test]
fn every_crate_denies_panics_outside_of_tests() {
    let workspace = workspace();
    let roots = crate_roots(&workspace);
    assert!(roots.len() > 25, "only {} crate roots were found", roots.len());
    let missing: Vec<_> = roots
        .iter()
        .filter(|root| !denies_panics(&fs::read_to_string(root).expect("a crate root can be read")))
        .map(|root| root.strip_prefix(&workspace).unwrap_or(root).display().to_string())
        .collect();
    assert!(missing.is_empty(), "add {DENIAL} to {}", missing.join(", "));
}

#[test]
fn a_root_without_the_whole_attribute_is_found() {
    assert!(denies_panics(&format!("//! A crate.\n\n{DENIAL}\n\nmod a;\n")));
    assert!(!denies_panics("//! A crate.\n\nmod a;\n"));
    assert!(!denies_panics(&format!("// {DENIAL}\n")));
    assert!(!denies_panics("#![cfg_attr(not(test), deny(clippy::unwrap_used))]\n"));
}
