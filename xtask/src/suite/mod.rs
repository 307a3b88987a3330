//! `cargo xtask suite`: the specs of upstream's e2e.test that are not conformance tests, ours beside upstream's.
//!
//! [`specs`] reads their list from the program itself, [`select`] chooses, the runner is conformance's, and [`record`]
//! keeps what became of each, for our components and for upstream's on the same machine.

mod record;
mod select;
mod specs;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::conformance::ginkgo::Suite;
use crate::conformance::outcome::{Outcome, State};
use crate::conformance::preflight;
use crate::conformance::subject::{Subject, SubjectArgs};
use crate::{peers, tools};
use record::{Record, Side};
use select::Selection;
use specs::Spec;

/// So many specs are one run of Ginkgo, so that an interrupted run loses little.
const BATCH: usize = 60;

/// Images that the specs start and that can be made here.
const IMAGES: &[&str] = &[
    "pause",
    "busybox",
    "agnhost",
    "nonewprivs",
    "kitten",
    "etcd",
    "sample-apiserver",
];

#[derive(Args)]
pub struct SuiteArgs {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    subject: SubjectArgs,
    /// Specs at once; Serial and Disruptive ones always run one by one
    #[arg(long, default_value_t = 4)]
    procs: usize,
    /// How long each batch of 60 specs may take
    #[arg(long, default_value_t = 40)]
    timeout_minutes: u64,
    /// Print the chosen specs and run nothing
    #[arg(long)]
    list: bool,
    /// Write the results to docs/suite.tsv and docs/suite.md
    #[arg(long)]
    record: bool,
}

pub fn run(args: &SuiteArgs) -> Result<()> {
    let programs = peers::build(&["ginkgo".to_owned(), "e2e.test".to_owned()])?;
    let [ginkgo, e2e] = programs.as_slice() else {
        bail!("build.sh did not name two programs");
    };
    let all = specs::list(e2e)?;
    let mut record = Record::read()?;
    let chosen = args.selection.apply(&all, &record)?;
    if args.list {
        chosen.iter().for_each(|spec| println!("{}", spec.name));
        println!("{} of {} specs", chosen.len(), all.len());
        return Ok(());
    }
    let out = tools::target_dir().join("suite");
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let subject = Subject::start(&args.subject, args.subject.nodes, IMAGES, &out)?;
    let cluster = subject.kubectl()?;
    preflight::check(&cluster, args.subject.nodes).context("the cluster is not fit to be tested")?;
    let mut suite = Suite {
        ginkgo: ginkgo.clone(),
        e2e: e2e.clone(),
        cluster,
        nodes: true,
        procs: args.procs,
        out,
    };
    let side = if args.subject.upstream {
        Side::Upstream
    } else {
        Side::Ours
    };
    let known = record.clone();
    let mut lost = Vec::new();
    for (label, batch) in batches(&chosen) {
        suite.procs = if batch[0].is_alone() { 1 } else { args.procs };
        let names: Vec<String> = batch.iter().map(|spec| spec.name.clone()).collect();
        let outcomes = suite.run(&label, &names, Duration::from_secs(60 * args.timeout_minutes))?;
        tell(&batch, &outcomes);
        lost.extend(regressions(&batch, &outcomes, &known, side));
        record.update(&batch, &outcomes, side)?;
        if args.record {
            record.write(&all)?;
        }
    }
    drop(subject);
    println!("{}", record::summary(&chosen, &record));
    lost.iter().for_each(|name| println!("REGRESSION: {name}"));
    match lost.len() {
        0 => Ok(()),
        count => bail!("{count} specs no longer pass"),
    }
}

/// The specs in runs of their own: by SIG, those that must be alone apart from the others.
fn batches(chosen: &[Spec]) -> Vec<(String, Vec<Spec>)> {
    let mut sorted = chosen.to_vec();
    sorted.sort_by(|a, b| (a.is_alone(), &a.sig, &a.name).cmp(&(b.is_alone(), &b.sig, &b.name)));
    let groups = sorted.chunk_by(|a, b| (a.is_alone(), &a.sig) == (b.is_alone(), &b.sig));
    let batches = groups.flat_map(|group| {
        group.chunks(BATCH).enumerate().map(|(number, batch)| {
            let alone = if batch[0].is_alone() { "-serial" } else { "" };
            (format!("{}{alone}-{}", batch[0].sig, number + 1), batch.to_vec())
        })
    });
    batches.collect()
}

fn tell(batch: &[Spec], outcomes: &[Outcome]) {
    for outcome in outcomes.iter().filter(|outcome| outcome.state == State::Failed) {
        let message: Vec<&str> = outcome.message.lines().take(3).collect();
        println!("failed {}\n    {}", batch[outcome.index].name, message.join("\n    "));
    }
}

/// What the record says passes, and did not.
fn regressions(batch: &[Spec], outcomes: &[Outcome], known: &Record, side: Side) -> Vec<String> {
    let failed = outcomes.iter().filter(|outcome| outcome.state == State::Failed);
    let names = failed.map(|outcome| batch[outcome.index].name.clone());
    names
        .filter(|name| known.state(name, side) == Some(State::Passed))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_that_must_be_alone_have_runs_of_their_own() {
        let specs: Vec<Spec> = [
            "[sig-node] b [Serial]",
            "[sig-node] a",
            "[sig-apps] c [Disruptive]",
            "[sig-apps] d",
        ]
        .map(|name| Spec::parse(name).unwrap())
        .into();
        let runs: Vec<(String, usize)> = batches(&specs)
            .into_iter()
            .map(|(label, batch)| (label, batch.len()))
            .collect();
        let expected = ["apps-1", "node-1", "apps-serial-1", "node-serial-1"].map(|label| (label.to_owned(), 1));
        assert_eq!(runs, expected);
    }
}
