//! The committed table of results, `docs/conformance.md`: what passes, since when, and why the rest does not.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::outcome::{Outcome, State};
use super::table::{self, Group, Test};
use crate::tools::{self, root};

/// How much of a message becomes a cause.
const CAUSE_LENGTH: usize = 160;

/// The last known results by the test's index.
#[derive(Default)]
pub struct Record {
    entries: BTreeMap<usize, Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    state: State,
    date: String,
    commit: String,
    /// In backquotes when it is the test's message; otherwise somebody wrote it, and it stays while the test fails.
    cause: String,
}

/// When and on what a run was.
struct Stamp {
    date: String,
    commit: String,
}

/// A run that is written down group by group, so that an interrupted one is not lost.
pub struct Notes {
    record: Record,
    tests: Vec<Test>,
    groups: Vec<Group>,
    stamp: Stamp,
}

impl Notes {
    pub fn begin(tests: &[Test]) -> Result<Self> {
        Ok(Self {
            record: Record::read()?,
            tests: tests.to_vec(),
            groups: table::groups()?,
            stamp: Stamp {
                date: tools::today(),
                commit: tools::commit()?,
            },
        })
    }

    pub fn add(&mut self, outcomes: &[Outcome]) -> Result<()> {
        self.record.update(outcomes, &self.stamp);
        self.record.write(&self.tests, &self.groups)
    }
}

fn path() -> PathBuf {
    root().join("docs/conformance.md")
}

impl Record {
    pub fn read() -> Result<Self> {
        match path().exists() {
            true => Ok(Self::parse(&fs::read_to_string(path())?)),
            false => Ok(Self::default()),
        }
    }

    fn write(&self, tests: &[Test], groups: &[Group]) -> Result<()> {
        fs::create_dir_all(root().join("docs"))?;
        fs::write(path(), self.render(tests, groups)).with_context(|| format!("cannot write {}", path().display()))
    }

    pub fn passed(&self, index: usize) -> bool {
        self.entries
            .get(&index)
            .is_some_and(|entry| entry.state == State::Passed)
    }

    fn update(&mut self, outcomes: &[Outcome], stamp: &Stamp) {
        for outcome in outcomes {
            let before = self.entries.get(&outcome.index);
            let written = before.filter(|entry| entry.state != State::Passed && is_written(&entry.cause));
            let cause = match (outcome.state, written) {
                (State::Passed, _) => String::new(),
                (_, Some(entry)) => entry.cause.clone(),
                (_, None) => cause(&outcome.message),
            };
            let entry = Entry {
                state: outcome.state,
                date: stamp.date.clone(),
                commit: stamp.commit.clone(),
                cause,
            };
            self.entries.insert(outcome.index, entry);
        }
    }

    fn parse(text: &str) -> Self {
        let entries = text.lines().filter_map(parse_row).collect();
        Self { entries }
    }

    fn render(&self, tests: &[Test], groups: &[Group]) -> String {
        let passed = self.count(tests, State::Passed);
        let mut text = format!(
            "# Conformance

**{passed}/{}** of upstream's conformance tests (Kubernetes v1.36) pass.

`cargo xtask conformance --record` runs them and writes this page; a cause in backquotes is the test's own message, any
other was written by hand and stays until the test passes. Without a state, a test has not been run.

| group | what its tests need | passed | failed | skipped | not run | tests |
|---|---|--:|--:|--:|--:|--:|
",
            tests.len()
        );
        for group in groups {
            let own: Vec<Test> = tests.iter().filter(|test| test.group == group.id).cloned().collect();
            let counts = [State::Passed, State::Failed, State::Skipped].map(|state| self.count(&own, state));
            let [passed, failed, skipped] = counts;
            let not_run = own.len() - passed - failed - skipped;
            let _ = writeln!(
                text,
                "| {} | {} | {passed} | {failed} | {skipped} | {not_run} | {} |",
                group.id,
                group.about,
                own.len()
            );
        }
        for group in groups {
            let _ = write!(
                text,
                "\n## {} {}\n\n| # | state | date | commit | test | cause |\n|--:|---|---|---|---|---|\n",
                group.id, group.about
            );
            let own = tests.iter().filter(|test| test.group == group.id);
            own.for_each(|test| text += &self.render_row(test));
        }
        text
    }

    fn count(&self, tests: &[Test], state: State) -> usize {
        let entries = tests.iter().filter_map(|test| self.entries.get(&test.index));
        entries.filter(|entry| entry.state == state).count()
    }

    fn render_row(&self, test: &Test) -> String {
        let name = escape(&test.name);
        match self.entries.get(&test.index) {
            Some(Entry {
                state,
                date,
                commit,
                cause,
            }) => {
                format!(
                    "| {} | {state} | {date} | {commit} | {name} | {} |\n",
                    test.index,
                    escape(cause)
                )
            }
            None => format!("| {} | | | | {name} | |\n", test.index),
        }
    }
}

fn parse_row(line: &str) -> Option<(usize, Entry)> {
    let line = line.replace("\\|", "\u{1}");
    let cells: Vec<String> = line.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect();
    let [_, index, state, date, commit, _, cause, _] = cells.as_slice() else {
        return None;
    };
    let state = match state.as_str() {
        "passed" => State::Passed,
        "failed" => State::Failed,
        "skipped" => State::Skipped,
        _ => return None,
    };
    let entry = Entry {
        state,
        date: date.clone(),
        commit: commit.clone(),
        cause: cause.clone(),
    };
    Some((index.parse().ok()?, entry))
}

/// As a cell of a table.
pub fn escape(cell: &str) -> String {
    cell.replace('|', "\\|")
}

fn is_written(cause: &str) -> bool {
    !cause.is_empty() && !cause.starts_with('`')
}

/// The start of a message, on one line.
pub fn cause(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    let line = words.join(" ").replace('`', "'");
    let short: String = line.chars().take(CAUSE_LENGTH).collect();
    let more = if short.len() < line.len() { "…" } else { "" };
    format!("`{short}{more}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::select::{quick_list, read_list};
    use crate::conformance::table;

    fn run(record: &mut Record, index: usize, state: State, message: &str) {
        let outcome = Outcome {
            index,
            state,
            seconds: 1.0,
            message: message.to_owned(),
        };
        let stamp = Stamp {
            date: "2026-01-02".to_owned(),
            commit: "abc".to_owned(),
        };
        record.update(&[outcome], &stamp);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let (tests, groups) = (table::tests().unwrap(), table::groups().unwrap());
        let mut record = Record::default();
        run(&mut record, 3, State::Passed, "");
        run(&mut record, 4, State::Failed, "expected a | b\n  but got `c`");
        let text = record.render(&tests, &groups);
        assert!(text.contains("**1/446**"));
        assert_eq!(Record::parse(&text).entries, record.entries);
        assert_eq!(record.entries[&4].cause, "`expected a | b but got 'c'`");
    }

    #[test]
    fn a_cause_written_by_hand_stays_until_the_test_passes() {
        let mut record = Record::default();
        run(&mut record, 4, State::Failed, "long message");
        record.entries.get_mut(&4).unwrap().cause = "no webhooks yet".to_owned();
        run(&mut record, 4, State::Failed, "other message");
        assert_eq!(record.entries[&4].cause, "no webhooks yet");
        run(&mut record, 4, State::Passed, "");
        run(&mut record, 4, State::Failed, "other message");
        assert_eq!(record.entries[&4].cause, "`other message`");
    }

    #[test]
    fn the_quick_tests_are_recorded_as_passing() {
        let (tests, record) = (table::tests().unwrap(), Record::read().unwrap());
        for name in read_list(&quick_list(), &tests).unwrap() {
            let test = tests.iter().find(|test| test.name == name).unwrap();
            assert!(record.passed(test.index), "{name} does not pass; it is no quick test");
        }
    }
}
