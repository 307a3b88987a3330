//! The committed results: `docs/suite.tsv` for every spec that was run, `docs/suite.md` for reading.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::specs::Spec;
use crate::conformance::outcome::{Outcome, State};
use crate::conformance::record::{cause, escape};
use crate::tools::{self, root};

/// Whose components a spec was run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Upstream,
}

/// The last known results by the spec's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    rows: BTreeMap<String, Row>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    ours: Option<Entry>,
    upstream: Option<Entry>,
    /// Why ours fails: the spec's message in backquotes, or what somebody wrote.
    cause: String,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    state: State,
    date: String,
    commit: String,
}

fn path(name: &str) -> PathBuf {
    root().join("docs").join(name)
}

impl Record {
    pub fn read() -> Result<Self> {
        let path = path("suite.tsv");
        match path.exists() {
            true => Ok(Self::parse(
                &fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?,
            )),
            false => Ok(Self::default()),
        }
    }

    pub fn write(&self, specs: &[Spec]) -> Result<()> {
        for (name, text) in [("suite.tsv", self.table()), ("suite.md", self.page(specs))] {
            fs::write(path(name), text).with_context(|| format!("cannot write {}", path(name).display()))?;
        }
        Ok(())
    }

    pub fn state(&self, name: &str, side: Side) -> Option<State> {
        let row = self.rows.get(name)?;
        let entry = match side {
            Side::Ours => &row.ours,
            Side::Upstream => &row.upstream,
        };
        entry.as_ref().map(|entry| entry.state)
    }

    pub fn update(&mut self, batch: &[Spec], outcomes: &[Outcome], side: Side) -> Result<()> {
        let (date, commit) = (tools::today(), tools::commit()?);
        for outcome in outcomes {
            let row = self.rows.entry(batch[outcome.index].name.clone()).or_default();
            let entry = Entry {
                state: outcome.state,
                date: date.clone(),
                commit: commit.clone(),
            };
            match side {
                Side::Upstream => row.upstream = Some(entry),
                Side::Ours => {
                    row.ours = Some(entry);
                    match outcome.state {
                        State::Failed if row.cause.is_empty() || row.cause.starts_with('`') => {
                            row.cause = cause(&outcome.message);
                        }
                        State::Failed => {}
                        _ => row.cause.clear(),
                    }
                }
            }
        }
        Ok(())
    }

    fn parse(text: &str) -> Self {
        let rows = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            let [name, ours, upstream, cause] = cells.as_slice() else {
                return None;
            };
            let row = Row {
                ours: parse_entry(ours),
                upstream: parse_entry(upstream),
                cause: (*cause).to_owned(),
            };
            Some(((*name).to_owned(), row))
        });
        Self { rows: rows.collect() }
    }

    fn table(&self) -> String {
        let mut text = "# spec\tours (state date commit)\tupstream\twhy ours fails\n".to_owned();
        for (name, row) in &self.rows {
            let _ = writeln!(
                text,
                "{name}\t{}\t{}\t{}",
                shown(&row.ours),
                shown(&row.upstream),
                row.cause
            );
        }
        text
    }

    fn page(&self, specs: &[Spec]) -> String {
        let mut text = format!(
            "# Upstream's whole suite

The specs of upstream's e2e.test (Kubernetes v1.36) that are not conformance tests, on our components and on upstream's
own, on the same machine with images made there. `cargo xtask suite --record` runs them on ours, with `--upstream` on
upstream's, and writes this page and docs/suite.tsv. A spec that neither side was asked is not counted.

{}
## Open: passed by upstream here, not by ours

| spec | why |
|---|---|
",
            summary(specs, self)
        );
        for (name, row) in self.rows.iter().filter(|(_, row)| row.is_open()) {
            let _ = writeln!(text, "| {} | {} |", escape(name), escape(&row.cause));
        }
        text += "\n## Failed by ours, not run or not passed by upstream here\n\n| spec | why |\n|---|---|\n";
        let failed = self.rows.iter().filter(|(_, row)| row.fails() && !row.is_open());
        for (name, row) in failed {
            let _ = writeln!(text, "| {} | {} |", escape(name), escape(&row.cause));
        }
        text
    }
}

impl Row {
    fn fails(&self) -> bool {
        self.ours.as_ref().is_some_and(|entry| entry.state == State::Failed)
    }

    fn is_open(&self) -> bool {
        let passes = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.state == State::Passed);
        passes(&self.upstream) && self.ours.is_some() && !passes(&self.ours)
    }
}

/// Counts by SIG of those specs that are recorded.
pub fn summary(specs: &[Spec], record: &Record) -> String {
    let mut sigs: BTreeMap<&str, [usize; 7]> = BTreeMap::new();
    for spec in specs {
        let Some(row) = record.rows.get(&spec.name) else {
            continue;
        };
        let counts = sigs.entry(&spec.sig).or_default();
        for (offset, entry) in [(0, &row.ours), (3, &row.upstream)] {
            let Some(entry) = entry else { continue };
            counts[offset + entry.state as usize] += 1;
        }
        counts[6] += usize::from(row.is_open());
    }
    let mut text = "| SIG | ours passed | failed | skipped | upstream passed | failed | skipped | open |\n|---|--:|--:|--:|--:|--:|--:|--:|\n".to_owned();
    for (sig, counts) in sigs {
        let cells = counts.map(|count| count.to_string());
        let _ = writeln!(text, "| {sig} | {} |", cells.join(" | "));
    }
    text
}

fn shown(entry: &Option<Entry>) -> String {
    match entry {
        Some(Entry { state, date, commit }) => format!("{state} {date} {commit}"),
        None => "-".to_owned(),
    }
}

fn parse_entry(cell: &str) -> Option<Entry> {
    let mut words = cell.split(' ');
    let state = match words.next()? {
        "passed" => State::Passed,
        "failed" => State::Failed,
        "skipped" => State::Skipped,
        _ => return None,
    };
    Some(Entry {
        state,
        date: words.next()?.to_owned(),
        commit: words.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(state: State) -> Option<Entry> {
        Some(Entry {
            state,
            date: "2026-01-02".to_owned(),
            commit: "abc".to_owned(),
        })
    }

    fn record(rows: [(&str, State, State); 3]) -> Record {
        let rows = rows.map(|(name, ours, upstream)| {
            let row = Row {
                ours: entry(ours),
                upstream: entry(upstream),
                cause: String::new(),
            };
            (name.to_owned(), row)
        });
        Record { rows: rows.into() }
    }

    #[test]
    fn what_is_written_is_read_again() {
        use State::{Failed, Passed, Skipped};
        let record = record([
            ("[sig-node] a", Passed, Passed),
            ("[sig-node] b", Failed, Passed),
            ("[sig-node] c", Skipped, Failed),
        ]);
        assert_eq!(Record::parse(&record.table()), record);
    }

    #[test]
    fn a_spec_is_open_when_upstream_alone_passes_it() {
        use State::{Failed, Passed};
        let record = record([
            ("[sig-node] a", Passed, Passed),
            ("[sig-node] b", Failed, Passed),
            ("[sig-node] c", Failed, Failed),
        ]);
        let specs: Vec<Spec> = record.rows.keys().filter_map(|name| Spec::parse(name)).collect();
        assert!(summary(&specs, &record).contains("| node | 1 | 2 | 0 | 2 | 1 | 0 | 1 |"));
        let page = record.page(&specs);
        let (open, rest) = page.split_once("## Failed by ours").unwrap();
        assert!(
            open.contains("[sig-node] b") && !open.contains("[sig-node] c"),
            "{open}"
        );
        assert!(rest.contains("[sig-node] c"), "{rest}");
    }
}
