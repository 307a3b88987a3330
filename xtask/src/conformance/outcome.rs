//! What became of a test.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Passed,
    Failed,
    /// The test itself found that it does not apply.
    Skipped,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which test it is of, by its place in the list that was run.
    pub index: usize,
    pub state: State,
    pub seconds: f64,
    /// Why it did not pass.
    pub message: String,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// What Ginkgo's JSON report says about the tests. One that it does not mention, or that it skipped without a reason,
/// was not reached before the time was up.
pub fn from_report(report: &Path, names: &[String]) -> Result<Vec<Outcome>> {
    let text = std::fs::read(report).with_context(|| format!("cannot read {}", report.display()))?;
    let suites: Vec<SuiteReport> =
        serde_json::from_slice(&text).with_context(|| format!("{} is not a report", report.display()))?;
    let specs = suites.iter().flat_map(|suite| &suite.spec_reports);
    let by_name: HashMap<String, &SpecReport> = specs.map(|spec| (spec.name(), spec)).collect();
    let outcomes = names.iter().enumerate();
    Ok(outcomes
        .map(|(index, name)| outcome(index, by_name.get(name).copied()))
        .collect())
}

fn outcome(index: usize, spec: Option<&SpecReport>) -> Outcome {
    let Some(spec) = spec else {
        return not_reached(index);
    };
    let message = spec.failure.as_ref().map(|failure| failure.message.clone());
    let (state, message) = match (spec.state.as_str(), message) {
        ("passed", _) => (State::Passed, String::new()),
        ("skipped", Some(message)) => (State::Skipped, message),
        ("skipped", None) => return not_reached(index),
        (state, message) => (State::Failed, message.unwrap_or_else(|| state.to_owned())),
    };
    Outcome {
        index,
        state,
        seconds: spec.run_time as f64 / 1e9,
        message,
    }
}

pub fn not_reached(index: usize) -> Outcome {
    Outcome {
        index,
        state: State::Failed,
        seconds: 0.0,
        message: "not reached before the group's time was up".to_owned(),
    }
}

/// The part of Ginkgo's report that is used here.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SuiteReport {
    #[serde(default)]
    spec_reports: Vec<SpecReport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    state: String,
    /// In nanoseconds.
    run_time: u64,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

impl SpecReport {
    fn name(&self) -> String {
        let containers = self.container_hierarchy_texts.iter().flatten();
        let mut words: Vec<&str> = containers.map(String::as_str).collect();
        words.push(&self.leaf_node_text);
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_became_of_each_test() {
        let names = ["one", "two", "three", "four"].map(str::to_owned);
        let spec = |name: &str, state: &str, rest: &str| {
            format!(
                r#"{{"ContainerHierarchyTexts":null,"LeafNodeText":"{name}","State":"{state}","RunTime":1500000000{rest}}}"#,
            )
        };
        let report = format!(
            r#"[{{"SpecReports":[{},{},{}]}}]"#,
            spec(&names[0], "passed", ""),
            spec(&names[1], "timedout", r#","Failure":{"Message":"too slow"}"#),
            spec(&names[2], "skipped", ""),
        );
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), report).unwrap();
        let shown: Vec<String> = from_report(file.path(), &names)
            .unwrap()
            .iter()
            .map(|outcome| format!("{} {} {}", outcome.state, outcome.seconds, outcome.message))
            .collect();
        assert_eq!(
            shown,
            [
                "passed 1.5 ",
                "failed 1.5 too slow",
                "failed 0 not reached before the group's time was up",
                "failed 0 not reached before the group's time was up",
            ]
        );
    }
}
