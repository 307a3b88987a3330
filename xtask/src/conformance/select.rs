//! Which tests to run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::table::{Test, Tier};
use crate::tools::root;

#[derive(Args, Clone, Debug, Default)]
pub struct Selection {
    /// Only tests of these groups
    #[arg(long, value_delimiter = ',')]
    pub group: Vec<String>,
    /// Only tests whose name contains this text
    #[arg(long)]
    pub focus: Vec<String>,
    /// Only the tests whose names stand in this file, one on a line
    #[arg(long, conflicts_with = "quick")]
    pub list: Option<PathBuf>,
    /// Only the tests of interop/quick.txt
    #[arg(long)]
    pub quick: bool,
    /// Only tests that need no node
    #[arg(long)]
    pub control_plane: bool,
}

pub fn quick_list() -> PathBuf {
    root().join("interop/quick.txt")
}

impl Selection {
    pub fn apply(&self, tests: &[Test]) -> Result<Vec<Test>> {
        for group in &self.group {
            ensure!(
                tests.iter().any(|test| test.group == *group),
                "there is no group {group:?}; interop/conformance-groups.tsv lists them"
            );
        }
        let list = self.list.clone().or_else(|| self.quick.then(quick_list));
        let names = list.as_deref().map(|path| read_list(path, tests)).transpose()?;
        let chosen: Vec<Test> = tests
            .iter()
            .filter(|test| self.group.is_empty() || self.group.contains(&test.group))
            .filter(|test| self.focus.is_empty() || self.focus.iter().any(|text| test.name.contains(text)))
            .filter(|test| names.as_ref().is_none_or(|names| names.contains(&test.name)))
            .filter(|test| !self.control_plane || test.tier == Tier::ControlPlane)
            .cloned()
            .collect();
        ensure!(!chosen.is_empty(), "no test matches");
        Ok(chosen)
    }
}

/// Names, one on a line; lines that begin with # are comments.
pub fn read_list(path: &Path, tests: &[Test]) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().map(str::trim);
    let names: Vec<String> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    for name in &names {
        if !tests.iter().any(|test| test.name == *name) {
            bail!("{}: there is no test {name:?}", path.display());
        }
    }
    Ok(names)
}

/// A regular expression that matches the tests of these names. Ginkgo puts the file in front of a test's text and
/// labels behind it, so it is not anchored, and a test whose name begins with another's is run as well.
pub fn focus(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| escape(name)).collect();
    names.join("|")
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::table;

    #[test]
    fn names_are_matched_literally() {
        assert_eq!(
            escape("[sig-node] Pods should *not* run (a.b) [Slow]"),
            r"\[sig-node\] Pods should \*not\* run \(a\.b\) \[Slow\]"
        );
    }

    #[test]
    fn conditions_narrow_each_other() {
        let tests = table::tests().unwrap();
        let select = |group: &str, focus: &str, control_plane| {
            Selection {
                group: vec![group.to_owned()],
                focus: vec![focus.to_owned()],
                control_plane,
                ..Selection::default()
            }
            .apply(&tests)
            .map(|chosen| chosen.len())
        };
        assert_eq!(select("G14", "", false).unwrap(), 10);
        assert_eq!(select("G14", "", true).unwrap(), 7);
        assert_eq!(select("G14", "OIDC", false).unwrap(), 1);
        assert_eq!(select("G14", "OIDC", true).unwrap_err().to_string(), "no test matches");
        assert!(select("G99", "", false).is_err());
    }

    #[test]
    fn the_quick_list_names_existing_tests_of_every_group() {
        let tests = table::tests().unwrap();
        let quick = Selection {
            quick: true,
            ..Selection::default()
        };
        let chosen = quick.apply(&tests).unwrap();
        let bare = |group: &&Test| !chosen.iter().any(|test| test.group == group.group);
        assert!(tests.iter().find(bare).is_none());
    }
}
