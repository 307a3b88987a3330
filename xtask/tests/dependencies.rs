//! Keeps the direction of dependencies between crates as ARCHITECTURE.md lists them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The crates in the order of the table in ARCHITECTURE.md.
fn order(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let rows = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn a_crate_depends_only_on_crates_above_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is inside the repository");
    let order = order(root);
    let place: HashMap<&str, usize> = order.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo metadata runs");
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for package in metadata["packages"].as_array().expect("there are packages") {
        let name = package["name"].as_str().unwrap_or_default();
        // They may use everything, and nothing uses them.
        if matches!(name, "xtask" | "fuzzing" | "simulation") {
            continue;
        }
        // The load generator must know nothing of what it measures, nor attackers of what they attack.
        let above_all = &0;
        let own = match name {
            "load" | "hostile" | "vm-init" => Some(above_all),
            _ => place.get(name).inspect(|_| seen += 1),
        };
        let Some(own) = own else {
            wrong.push(format!("{name} is missing from ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let is_development = dependency["kind"] == "dev";
            let dependency = dependency["name"].as_str().unwrap_or_default();
            if !is_development && place.get(dependency).is_some_and(|other| other >= own) {
                wrong.push(format!("{name} depends on {dependency}, which stands below it"));
            }
        }
    }
    assert_eq!(seen, order.len(), "every crate of the table exists");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
