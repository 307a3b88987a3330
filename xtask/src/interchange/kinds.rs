//! Which kinds of workload our controllers carry: what they do not know yet is left out of cells, and said.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// A kind of the workload and the controller that carries it.
const KINDS: &[(&str, &str)] = &[
    ("StatefulSet", "statefulset"),
    ("DaemonSet", "daemonset"),
    ("Job", "job"),
];

pub type Kinds = BTreeSet<&'static str>;

pub fn all() -> Kinds {
    KINDS.iter().map(|(kind, _)| *kind).collect()
}

/// Those that our controller manager has a controller for.
pub fn ours(karve: &Path) -> Result<Kinds> {
    let dir = tempfile::tempdir()?;
    let config = dir.path().join("config");
    std::fs::write(&config, CONFIG)?;
    // Asked for a controller that does not exist, it names those that do.
    let answer = Command::new(karve)
        .args(["kube-controller-manager", "--controllers", "none-such", "--kubeconfig"])
        .arg(&config)
        .arg("--data-dir")
        .arg(dir.path())
        .output()
        .with_context(|| format!("cannot run {}", karve.display()))?;
    let told = String::from_utf8_lossy(&answer.stderr).into_owned();
    let names = told.split_once("there are ").map(|(_, names)| names);
    let names = names.with_context(|| format!("the controllers were not named: {told}"))?;
    Ok(carried_by(names))
}

fn carried_by(names: &str) -> Kinds {
    let known: BTreeSet<&str> = names.split(',').map(str::trim).collect();
    let carried = KINDS.iter().filter(|(_, controller)| known.contains(controller));
    carried.map(|(kind, _)| *kind).collect()
}

const CONFIG: &str = "apiVersion: v1
kind: Config
current-context: none
clusters: [{ name: none, cluster: { server: 'https://127.0.0.1:1' } }]
contexts: [{ name: none, context: { cluster: none, user: none } }]
users: [{ name: none, user: { token: none } }]
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_their_controllers() {
        let carried = carried_by("deployment, job, statefulset-like");
        assert_eq!(carried.into_iter().collect::<Vec<_>>(), ["Job"]);
    }
}
