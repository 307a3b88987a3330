//! Upstream's conformance tests as a table: `interop/conformance.tsv`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tools::root;

/// What a test needs to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// A control plane; its pods stay Pending.
    ControlPlane,
    /// A Ready Node object besides.
    NodeObject,
    /// Pods that become Ready, whatever is in them.
    PodStatus,
    /// Real containers.
    Containers,
}

#[derive(Clone, Debug)]
pub struct Test {
    /// Its place in the suite's own list.
    pub index: usize,
    pub group: String,
    pub tier: Tier,
    /// Nodes that it needs.
    pub nodes: usize,
    /// What it took upstream, when that is long.
    pub seconds: u64,
    /// Without the closing "[Conformance]".
    pub name: String,
}

impl Test {
    /// The name that the suite itself knows it by.
    pub fn full_name(&self) -> String {
        format!("{} [Conformance]", self.name)
    }
}

pub struct Group {
    pub id: String,
    pub about: String,
}

/// All tests, in the order of the suite's list.
pub fn tests() -> Result<Vec<Test>> {
    rows(&root().join("interop/conformance.tsv"), parse_test)
}

pub fn groups() -> Result<Vec<Group>> {
    rows(&root().join("interop/conformance-groups.tsv"), |cells| {
        let [id, about] = cells else {
            bail!("two columns were expected");
        };
        Ok(Group {
            id: (*id).to_owned(),
            about: (*about).to_owned(),
        })
    })
}

fn rows<T>(path: &Path, parse: impl Fn(&[&str]) -> Result<T>) -> Result<Vec<T>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let cells: Vec<&str> = line.split('\t').collect();
            parse(&cells).with_context(|| format!("{}:{}", path.display(), number + 1))
        })
        .collect()
}

fn parse_test(cells: &[&str]) -> Result<Test> {
    let [index, group, tier, nodes, seconds, name] = cells else {
        bail!("six columns were expected");
    };
    Ok(Test {
        index: index.parse()?,
        group: (*group).to_owned(),
        tier: match *tier {
            "CP0" => Tier::ControlPlane,
            "CP1" => Tier::NodeObject,
            "FAKE" => Tier::PodStatus,
            "NODE" => Tier::Containers,
            other => bail!("there is no tier {other:?}"),
        },
        nodes: nodes.parse()?,
        seconds: if *seconds == "-" { 0 } else { seconds.parse()? },
        name: (*name).to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_table_holds_every_test_once_and_every_group() {
        let tests = tests().unwrap();
        assert_eq!(tests.len(), 446);
        assert!(tests.iter().enumerate().all(|(place, test)| place == test.index));
        let names: HashSet<&str> = tests.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names.len(), tests.len());
        let known: HashSet<String> = groups().unwrap().into_iter().map(|group| group.id).collect();
        let used: HashSet<String> = tests.into_iter().map(|test| test.group).collect();
        assert_eq!(known, used);
    }
}
