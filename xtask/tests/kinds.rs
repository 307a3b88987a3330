//! Keeps a kind in its one file: whatever is true of a kind stands in `api/src/kinds`, as part of its row or its rules.
//!
//! Looks through the crates that treat all kinds alike for the names of kinds and for their rows. What is about certain
//! kinds by nature is listed with the reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates below which every kind is like every other, and where kinds are described.
const CRATES: &[&str] = &["schema", "api", "registry", "apiserver"];
const KINDS: &str = "api/src/kinds/";

/// Files and folders that are about certain kinds, and why.
const ABOUT_CERTAIN_KINDS: &[(&str, &str)] = &[
    (
        "api/src/convert",
        "versions that are stored but no longer served have no row",
    ),
    ("api/src/metadata.rs", "upstream bans one kind from owning anything"),
    (
        "api/src/pod_spec/",
        "fields of a pod that are named like a resource, or refer to one",
    ),
    ("api/src/quota", "what is counted of pods, claims and Services"),
    (
        "api/src/warnings/files.rs",
        "volumes are made of ConfigMaps and Secrets",
    ),
    ("registry/src/allocate/", "gives Services their addresses and ports"),
    ("registry/src/definitions.rs", "follows CustomResourceDefinitions"),
    (
        "registry/src/lookup.rs",
        "a Namespace is in itself; where API servers are is in their Endpoints",
    ),
    ("apiserver/src/aggregation/", "the table of APIServices"),
    (
        "apiserver/src/aggregator/",
        "follows APIServices and what stands behind them",
    ),
    (
        "apiserver/src/bootstrap.rs",
        "the objects that every cluster begins with",
    ),
    (
        "apiserver/src/component_status.rs",
        "what the server finds of components, which is not stored",
    ),
    ("apiserver/src/connect", "pods, nodes and Services can be connected to"),
    (
        "apiserver/src/device_admin.rs",
        "an admission plugin about claims of devices",
    ),
    ("apiserver/src/escalation.rs", "an admission plugin about roles"),
    ("apiserver/src/fairness/", "follows FlowSchemas and priority levels"),
    (
        "apiserver/src/gate/deleted_nodes.rs",
        "keeps in a ConfigMap which Nodes were deleted",
    ),
    ("apiserver/src/gate/follow.rs", "what the authorizers must know of"),
    ("apiserver/src/node_blocks.rs", "an admission plugin about Nodes"),
    (
        "apiserver/src/openapi/custom.rs",
        "borrows the schema of metadata from a kind that has it",
    ),
    ("apiserver/src/resolve.rs", "a Namespace is in itself"),
    (
        "apiserver/src/resource_metrics/",
        "what nodes and pods use, measured and not stored",
    ),
    (
        "apiserver/src/reviews.rs",
        "resources that are answered and not stored, each in its own way",
    ),
    ("apiserver/src/subresource/", "bindings, evictions and tokens"),
];

#[test]
fn what_is_true_of_a_kind_stands_in_its_file() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let names = names_of_kinds(&crates.join(KINDS));
    assert!(names.contains("Pod") && names.contains("pods"), "the rows are found");
    let mut found = Vec::new();
    let mut needed = BTreeSet::new();
    for file in CRATES.iter().flat_map(|name| sources(&crates.join(name).join("src"))) {
        let shown = file
            .strip_prefix(&crates)
            .expect("below crates")
            .to_string_lossy()
            .into_owned();
        if shown.starts_with(KINDS) {
            continue;
        }
        let mentioned = mentions(&file, &names);
        if mentioned.is_empty() {
            continue;
        }
        match ABOUT_CERTAIN_KINDS.iter().find(|(path, _)| shown.starts_with(path)) {
            Some((path, _)) => drop(needed.insert(*path)),
            None => found.extend(mentioned.into_iter().map(|mention| format!("{shown}{mention}"))),
        }
    }
    let advice = "make it a field of the row or a method of the kind's Rules, with a default for all others";
    assert!(found.is_empty(), "these know a kind by name: {found:#?}; {advice}");
    for (path, _) in ABOUT_CERTAIN_KINDS {
        assert!(
            needed.contains(path),
            "{path} knows no kind any more: remove it from the list"
        );
    }
}

/// The kinds and plural names of all rows.
fn names_of_kinds(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in sources(folder) {
        let text = fs::read_to_string(file).expect("a source file can be read");
        for start in ["Resource::namespaced(", "Resource::cluster("] {
            for (at, _) in text.match_indices(start) {
                let mut literals = text[at..].split('"').skip(1).step_by(2).skip(2);
                names.extend(literals.next().map(str::to_owned));
                names.extend(literals.next().map(str::to_owned));
            }
        }
    }
    names
}

/// The Rust files below a folder that are not tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("a folder can be read").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The lines of a file that have a kind's name as a text or use its row.
fn mentions(file: &Path, names: &BTreeSet<String>) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a source file can be read");
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        // Unit tests are at the end of a file.
        if line == "#[cfg(test)]" {
            break;
        }
        if line.trim_start().starts_with("//") {
            continue;
        }
        let literals = line.split('"').skip(1).step_by(2);
        let mut named = literals
            .filter(|literal| names.contains(*literal))
            .map(|literal| format!("{literal:?}"));
        let row = || {
            line.split_once("kinds::")
                .filter(|(_, rest)| is_row(rest))
                .map(|_| "a row".to_owned())
        };
        if let Some(mention) = named.next().or_else(row) {
            found.push(format!(":{}: {mention}", number + 1));
        }
    }
    found
}

/// Whether a path goes on with a kind's file; functions over all kinds are everybody's.
fn is_row(rest: &str) -> bool {
    let name = rest
        .split(|character: char| !character.is_alphanumeric() && character != '_')
        .next();
    name.is_some_and(|name| rest[name.len()..].starts_with("::") && !name.is_empty())
}
