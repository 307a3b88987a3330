//! Keeps ARCHITECTURE.md true where a program can tell: the files of its walks and tables exist.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names in backquotes that are paths of source files.
fn source_files(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted
        .filter(|name| name.contains("/src/") && name.ends_with(".rs"))
        .collect()
}

#[test]
fn files_that_the_architecture_names_exist() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md can be read");
    let (_, walks) = text.split_once("## Three walks").expect("there are three walks");
    let (walks, _) = walks.split_once("\n## ").expect("something follows the walks");
    assert!(source_files(walks).len() > 40, "the walks name their files");
    let missing: Vec<&str> = source_files(&text)
        .into_iter()
        .filter(|name| !root().join("crates").join(name).is_file() && !root().join(name).is_file())
        .collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md names files that are not there: {missing:#?}"
    );
}

#[test]
fn only_paths_of_source_files_are_looked_for() {
    let text = "`a/src/b.rs` and `c::d`, `lib.rs`\n`x/src/y/mod.rs`";
    assert_eq!(source_files(text), ["a/src/b.rs", "x/src/y/mod.rs"]);
}
