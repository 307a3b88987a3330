//! What a run found, as text, as JSON and as docs/differential.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use regex::Regex;
use serde_json::{Value, json};

use super::compare::{Difference, compare};
use super::play::{Answer, STORED, Title};
use crate::tools;

/// How many lines of one difference are shown as text.
const SHOWN: usize = 12;

/// A difference that is known, with the reason why it stays.
pub struct Known {
    kind: String,
    pattern: Regex,
    reason: String,
}

/// A case to which the servers answered differently.
pub struct Differing {
    pub title: Title,
    pub differences: Vec<Difference>,
    /// The places of the known differences that it is made of; empty when any part of it is not known.
    known: Vec<usize>,
}

#[derive(Default)]
struct Count {
    cases: usize,
    known: usize,
    open: usize,
    unknown: usize,
}

impl Count {
    fn equal(&self) -> usize {
        self.cases - self.known - self.open - self.unknown
    }
}

pub struct Report {
    known: Vec<Known>,
    /// Cases that are known to differ, and should not.
    open: BTreeSet<Title>,
    counts: BTreeMap<String, Count>,
    pub differing: Vec<Differing>,
}

/// Lines of `kind<TAB>pattern<TAB>reason`. A pattern is matched with `case | difference`.
pub fn read_known(text: &str) -> Result<Vec<Known>> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let parts: Vec<&str> = line.split('\t').collect();
            let [kind, pattern, reason] = parts.as_slice() else {
                anyhow::bail!("{line:?} is not a kind, a pattern and a reason");
            };
            Ok(Known {
                kind: (*kind).to_owned(),
                pattern: Regex::new(pattern).with_context(|| line.to_owned())?,
                reason: (*reason).to_owned(),
            })
        })
        .collect()
}

/// Lines of `kind<TAB>case`.
pub fn read_open(text: &str) -> BTreeSet<Title> {
    let lines = text.lines().filter_map(|line| line.split_once('\t'));
    let titles = lines.map(|(kind, case)| Title {
        kind: kind.to_owned(),
        case: case.to_owned(),
    });
    titles.collect()
}

impl Report {
    pub fn new(
        known: Vec<Known>,
        open: BTreeSet<Title>,
        upstream: &[(Title, Answer)],
        karve: &[(Title, Answer)],
    ) -> Result<Self> {
        ensure!(
            upstream.len() == karve.len(),
            "the servers were asked differently often"
        );
        let mut report = Self {
            known,
            open,
            counts: BTreeMap::new(),
            differing: Vec::new(),
        };
        for ((title, theirs), (_, ours)) in upstream.iter().zip(karve) {
            // An object that even upstream refuses makes no cases.
            let stored = title.case != STORED || theirs.code == 201;
            ensure!(
                stored,
                "upstream does not store the object of {}: {}",
                title.kind,
                theirs.body
            );
            report.add(title, compare(theirs, ours));
        }
        Ok(report)
    }

    fn add(&mut self, title: &Title, differences: Vec<Difference>) {
        let count = self.counts.entry(title.kind.clone()).or_default();
        count.cases += 1;
        if differences.is_empty() {
            return;
        }
        let known: Option<Vec<usize>> = differences
            .iter()
            .map(|difference| {
                let text = format!("{} | {difference}", title.case);
                self.known
                    .iter()
                    .position(|known| (known.kind == "*" || known.kind == title.kind) && known.pattern.is_match(&text))
            })
            .collect();
        match known {
            Some(_) => count.known += 1,
            None if self.open.contains(title) => count.open += 1,
            None => count.unknown += 1,
        }
        self.differing.push(Differing {
            title: title.clone(),
            differences,
            known: known.unwrap_or_default(),
        });
    }

    fn total(&self) -> Count {
        self.counts.values().fold(Count::default(), |sum, count| Count {
            cases: sum.cases + count.cases,
            known: sum.known + count.known,
            open: sum.open + count.open,
            unknown: sum.unknown + count.unknown,
        })
    }

    /// Differences that nobody knew of.
    pub fn unknown(&self) -> usize {
        self.total().unknown
    }

    /// Known differences that no case shows any more; only a run of all cases can tell.
    pub fn outdated(&self) -> Vec<String> {
        (0..self.known.len())
            .filter(|place| !self.differing.iter().any(|case| case.known.contains(place)))
            .map(|place| format!("{}: {}", self.known[place].kind, self.known[place].pattern))
            .collect()
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        let new = |case: &&Differing| case.known.is_empty() && !self.open.contains(&case.title);
        for case in self.differing.iter().filter(new) {
            let _ = writeln!(text, "{}: {}", case.title.kind, case.title.case);
            for difference in case.differences.iter().take(SHOWN) {
                let _ = writeln!(text, "  {difference}");
            }
            if case.differences.len() > SHOWN {
                let _ = writeln!(text, "  … and {} more", case.differences.len() - SHOWN);
            }
        }
        let _ = writeln!(
            text,
            "{:<36}{:>7}{:>7}{:>7}{:>7}{:>7}",
            "kind", "cases", "equal", "known", "open", "new"
        );
        for (kind, count) in self.counts.iter().map(|(kind, count)| (kind.as_str(), count)) {
            row(&mut text, kind, count);
        }
        row(&mut text, "all", &self.total());
        text
    }

    pub fn json(&self) -> Value {
        let total = self.total();
        let differences: Vec<Value> = self
            .differing
            .iter()
            .map(|case| {
                let lines: Vec<String> = case.differences.iter().map(ToString::to_string).collect();
                let known = !case.known.is_empty();
                json!({"kind": case.title.kind, "case": case.title.case, "known": known, "lines": lines})
            })
            .collect();
        let kinds: Vec<Value> = self
            .counts
            .iter()
            .map(|(kind, count)| {
                json!({
                    "kind": kind, "cases": count.cases, "known": count.known, "open": count.open,
                    "new": count.unknown,
                })
            })
            .collect();
        json!({
            "cases": total.cases, "known": total.known, "open": total.open, "new": total.unknown,
            "kinds": kinds, "differences": differences,
        })
    }

    /// The differences that have no reason to stay, as they are committed.
    pub fn open(&self) -> String {
        let unexplained = self.differing.iter().filter(|case| case.known.is_empty());
        let lines = unexplained.map(|case| format!("{}\t{}\n", case.title.kind, case.title.case));
        lines.collect()
    }

    /// The page that is committed.
    pub fn page(&self) -> Result<String> {
        let total = self.total();
        let mut page = format!(
            "# Beside upstream's API server\n\nWritten by `cargo xtask differential --record` on {} at {}: {} requests to both \
             servers, {} answers equal, {} different in ways that stay, {} in ways that are open. Compared are code, reason, message, causes, \
             warnings and the resulting object; identifiers, times, chosen addresses and ports, and structs that are shown \
             inside of messages are not.\n\n| kind | cases | equal | known | open |\n|---|---|---|---|---|\n",
            tools::today(),
            tools::commit()?,
            total.cases,
            total.equal(),
            total.known,
            total.open + total.unknown,
        );
        for (kind, count) in &self.counts {
            let (equal, open) = (count.equal(), count.open + count.unknown);
            let Count { cases, known, .. } = count;
            let _ = writeln!(page, "| {kind} | {cases} | {equal} | {known} | {open} |");
        }
        page += "\nThe open cases are the lines of `interop/differential/open.tsv`.\n";
        page += "\n## Known differences\n\n| kind | cases | reason |\n|---|---|---|\n";
        for (place, known) in self.known.iter().enumerate() {
            let cases = self.differing.iter().filter(|case| case.known.contains(&place)).count();
            let kind = known.kind.replace('*', "any");
            let _ = writeln!(page, "| {kind} | {cases} | {} |", known.reason);
        }
        Ok(page)
    }
}

fn row(text: &mut String, kind: &str, count: &Count) {
    let equal = count.equal();
    let _ = writeln!(
        text,
        "{kind:<36}{:>7}{equal:>7}{:>7}{:>7}{:>7}",
        count.cases, count.known, count.open, count.unknown
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(value: i64) -> Vec<(Title, Answer)> {
        let title = Title {
            kind: "Thing".to_owned(),
            case: "create".to_owned(),
        };
        let body = json!({"size": value, "extra": value});
        let answer = Answer {
            code: 200,
            warnings: Vec::new(),
            body,
        };
        vec![(title, answer)]
    }

    #[test]
    fn a_difference_is_known_when_all_of_it_is() {
        let run = |known: &str| {
            let known = read_known(known).unwrap();
            Report::new(known, BTreeSet::new(), &answers(1), &answers(2)).unwrap()
        };
        assert_eq!(run("").unknown(), 1);
        assert_eq!(run("Thing\t\\.size\tThey are ours.").unknown(), 1);
        assert_eq!(
            run("Thing\t\\.size\tThey are ours.\n*\t\\.extra\tSo is this.").unknown(),
            0
        );
        assert_eq!(
            run("Thing\tcreate\tAll.\nOther\tcreate\tNone.").outdated(),
            ["Other: create"]
        );
        assert!(read_known("Thing\tcreate").is_err());
        let open = read_open("Thing\tcreate\n");
        let report = Report::new(Vec::new(), open, &answers(1), &answers(2)).unwrap();
        assert_eq!((report.unknown(), report.open().as_str()), (0, "Thing\tcreate\n"));
    }
}
