//! The specs of e2e.test and what their names say about them.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::tools;

#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub name: String,
    /// Without "sig-".
    pub sig: String,
    /// What a cluster must be set up with, by `[Feature:…]`.
    pub features: Vec<String>,
    /// Of storage specs: the volumes they are about, by `[Driver: …]`.
    pub driver: Option<String>,
    pub slow: bool,
    pub serial: bool,
    pub disruptive: bool,
    pub alpha: bool,
    pub conformance: bool,
}

impl Spec {
    /// None for names that belong to no SIG.
    pub fn parse(name: &str) -> Option<Self> {
        let tags: Vec<&str> = tags(name);
        let sig = tags.iter().find_map(|tag| tag.strip_prefix("sig-"))?.to_owned();
        let features = tags.iter().filter_map(|tag| tag.strip_prefix("Feature:"));
        let driver = tags.iter().find_map(|tag| tag.strip_prefix("Driver:"));
        let has = |wanted: &str| tags.contains(&wanted);
        Some(Self {
            sig,
            features: features.map(str::to_owned).collect(),
            driver: driver.map(|driver| driver.trim().to_owned()),
            slow: has("Slow"),
            serial: has("Serial"),
            disruptive: has("Disruptive"),
            alpha: has("Alpha"),
            conformance: has("Conformance"),
            name: name.to_owned(),
        })
    }

    /// Whether no other spec may run beside it.
    pub fn is_alone(&self) -> bool {
        self.serial || self.disruptive
    }
}

/// What stands in brackets.
fn tags(name: &str) -> Vec<&str> {
    let parts = name.split('[').skip(1);
    parts
        .filter_map(|part| part.split_once(']'))
        .map(|(tag, _)| tag)
        .collect()
}

/// All specs that are not conformance tests, as the program lists them.
pub fn list(e2e: &Path) -> Result<Vec<Spec>> {
    let text = tools::output(Command::new(e2e).arg("--list-tests"))?;
    let specs = parse_list(&text);
    ensure!(!specs.is_empty(), "{} lists no specs", e2e.display());
    Ok(specs)
}

/// Lines are "<file>:<line>: <name>".
fn parse_list(text: &str) -> Vec<Spec> {
    let names = text
        .lines()
        .filter_map(|line| line.find("[sig-").map(|start| &line[start..]));
    let specs = names.filter_map(|name| Spec::parse(name.trim_end()));
    specs.filter(|spec| !spec.conformance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_a_spec_needs() {
        let spec = Spec::parse(
            "[sig-storage] In-tree Volumes [Driver: local] [LocalVolumeType: dir] works [Feature:Foo] [Slow] [Serial]",
        )
        .unwrap();
        assert_eq!((spec.sig.as_str(), spec.driver.as_deref()), ("storage", Some("local")));
        assert_eq!(spec.features, ["Foo"]);
        assert!(spec.slow && spec.is_alone() && !spec.alpha);
        assert_eq!(Spec::parse("a name without any tag"), None);
    }

    #[test]
    fn conformance_tests_are_left_to_their_own_command() {
        let listed = parse_list(
            "The following spec names can be used:\n    a/b.go:1: [sig-node] one [Conformance]\n    a/c.go:2: [sig-node] two\n",
        );
        let names: Vec<&str> = listed.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names, ["[sig-node] two"]);
    }
}
