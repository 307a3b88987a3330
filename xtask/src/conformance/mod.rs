//! `cargo xtask conformance`: upstream's conformance suite against a cluster of our own.
//!
//! [`table`] knows the tests, [`select`] chooses, [`ginkgo`] runs them group by group, [`outcome`] says what became of
//! each, [`record`] compares with what is committed.

mod doubt;
pub mod ginkgo;
pub mod outcome;
pub mod preflight;
mod progress;
pub mod record;
mod select;
pub mod subject;
mod summary;
mod table;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{peers, tools};
use ginkgo::Suite;
use outcome::{Outcome, State};
use record::{Notes, Record};
use select::Selection;
use subject::{Subject, SubjectArgs};
use table::{Test, Tier};

#[derive(Args)]
pub struct ConformanceArgs {
    #[command(flatten)]
    pub selection: Selection,
    /// Tests at once
    #[arg(long, default_value_t = 4)]
    pub procs: usize,
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// How long each group may take [default: by its tests]
    #[arg(long)]
    pub timeout_minutes: Option<u64>,
    /// Write the results to docs/conformance.md
    #[arg(long, conflicts_with = "upstream")]
    pub record: bool,
}

/// The step of `cargo xtask test`: what passes in a short time.
pub fn run_quick() -> Result<()> {
    if !tools::is_root() {
        tools::skip("conformance tests with containers need root")?;
        return Ok(());
    }
    run(&ConformanceArgs {
        selection: Selection {
            quick: true,
            ..Selection::default()
        },
        procs: 4,
        subject: SubjectArgs::default(),
        timeout_minutes: None,
        record: false,
    })
}

pub fn run(args: &ConformanceArgs) -> Result<()> {
    let tests = table::tests()?;
    let (chosen, left_out): (Vec<Test>, Vec<Test>) = args
        .selection
        .apply(&tests)?
        .into_iter()
        .partition(|test| test.nodes <= args.subject.nodes);
    left_out
        .iter()
        .for_each(|test| println!("not run, for it needs --nodes {}: {}", test.nodes, test.name));
    // Tests that need no node pass sooner on a cluster without one.
    let nodes = match chosen.iter().any(|test| test.tier != Tier::ControlPlane) {
        true => args.subject.nodes,
        false => 0,
    };
    let out = tools::target_dir().join("conformance");
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let programs = peers::build(&["ginkgo".to_owned(), "e2e.test".to_owned()])?;
    let [ginkgo, e2e] = programs.as_slice() else {
        bail!("build.sh did not name two programs");
    };
    let subject = Subject::start(&args.subject, nodes, &subject::images(&chosen), &out)?;
    let cluster = subject.kubectl()?;
    if nodes > 0 {
        preflight::check(&cluster, nodes).context("the cluster is not fit to be tested")?;
    }
    let suite = Suite {
        ginkgo: ginkgo.clone(),
        e2e: e2e.clone(),
        cluster,
        nodes: nodes > 0,
        procs: args.procs,
        out: out.clone(),
    };
    let committed = Record::read()?;
    let mut notes = args.record.then(|| Notes::begin(&tests)).transpose()?;
    let outcomes = run_groups(&suite, &chosen, args.timeout_minutes, &committed, &mut notes)?;
    drop(subject);
    fs::write(out.join("junit.xml"), summary::junit(&tests, &outcomes))?;
    print!("{}", summary::by_group(&tests, &outcomes));
    println!("logs, reports and junit.xml are in {}", out.display());
    match args.subject.upstream {
        true => Ok(()),
        false => conclude(&committed, &tests, &outcomes),
    }
}

fn run_groups(
    suite: &Suite,
    chosen: &[Test],
    timeout_minutes: Option<u64>,
    committed: &Record,
    notes: &mut Option<Notes>,
) -> Result<Vec<Outcome>> {
    let mut groups: Vec<&str> = chosen.iter().map(|test| test.group.as_str()).collect();
    groups.sort_unstable();
    groups.dedup();
    // A short list is one run: every run begins with the suite's own start of some seconds.
    let runs: Vec<(&str, Vec<Test>)> = match chosen.len() <= SINGLE_RUN {
        true => vec![("all", chosen.to_vec())],
        false => groups.iter().map(|group| (*group, of_group(chosen, group))).collect(),
    };
    let mut outcomes = Vec::new();
    for (label, own) in runs {
        let names: Vec<String> = own.iter().map(Test::full_name).collect();
        let mut ended = suite.run(label, &names, timeout(&own, suite.procs, timeout_minutes))?;
        ended
            .iter_mut()
            .for_each(|outcome| outcome.index = own[outcome.index].index);
        doubt::apply(&mut ended, committed);
        if let Some(notes) = notes {
            notes.add(&ended)?;
        }
        outcomes.extend(ended);
    }
    Ok(outcomes)
}

fn of_group(tests: &[Test], group: &str) -> Vec<Test> {
    tests.iter().filter(|test| test.group == group).cloned().collect()
}

/// Up to so many tests are run at once whatever their groups.
const SINGLE_RUN: usize = 80;

/// A failing test usually waits five minutes for something; a few of them must not cost the others their turn.
fn timeout(tests: &[Test], procs: usize, minutes: Option<u64>) -> Duration {
    let slow: u64 = tests.iter().map(|test| 60 + 2 * test.seconds).sum();
    let by_tests = Duration::from_secs(600 + slow / procs.max(1) as u64);
    minutes.map_or(by_tests, |minutes| Duration::from_secs(60 * minutes))
}

/// Names what changed, and fails when something that passed does so no longer.
fn conclude(committed: &Record, tests: &[Test], outcomes: &[Outcome]) -> Result<()> {
    for outcome in outcomes.iter().filter(|outcome| outcome.state != State::Passed) {
        let message: Vec<&str> = outcome.message.lines().take(3).collect();
        println!(
            "{} {}\n    {}",
            outcome.state,
            tests[outcome.index].name,
            message.join("\n    ")
        );
    }
    let (passed, rest): (Vec<&Outcome>, Vec<&Outcome>) =
        outcomes.iter().partition(|outcome| outcome.state == State::Passed);
    let news = passed.iter().filter(|outcome| !committed.passed(outcome.index));
    news.for_each(|outcome| println!("newly passes: {}", tests[outcome.index].name));
    let lost: Vec<&str> = rest
        .iter()
        .filter(|outcome| committed.passed(outcome.index))
        .map(|outcome| tests[outcome.index].name.as_str())
        .collect();
    lost.iter().for_each(|name| println!("REGRESSION: {name}"));
    if !lost.is_empty() {
        bail!("{} tests no longer pass: {}", lost.len(), lost.join("; "));
    }
    Ok(())
}
