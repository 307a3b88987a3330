//! `cargo xtask differential`: the same requests to upstream's API server and to ours, and what differs in the answers.
//!
//! The cases are data in `interop/differential/` ([`cases`], with [`change`] for the changes that make up most of them);
//! [`vary`] makes those that can be made from an object alone; [`play`] puts them to one of the [`servers`]; [`compare`]
//! blanks and compares, [`report`] knows which differences are known.

pub mod cases;
mod change;
mod compare;
mod play;
mod report;
pub mod servers;
mod vary;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};

use crate::cluster::workdir::WorkDir;
use crate::{dist, tools};
use cases::Kind;
use report::Report;

#[derive(Args)]
pub struct DifferentialArgs {
    /// The binary to compare; built when it is not given
    #[arg(long)]
    karve: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value = "text")]
    output: Output,
    /// Write the results to docs/differential.md and the open cases to interop/differential/open.tsv
    #[arg(long, conflicts_with = "kinds")]
    record: bool,
    /// Only the cases of these kinds
    kinds: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub fn run(args: &DifferentialArgs) -> Result<()> {
    let dir = tools::root().join("interop/differential");
    let known = report::read_known(&fs::read_to_string(dir.join("known.tsv"))?)?;
    let kinds = select(cases::read(&dir)?, &args.kinds)?;
    let binary = match &args.karve {
        Some(path) => std::path::absolute(path)?,
        None => dist::release()?,
    };
    let (upstream, karve) = in_a_network(|| answers(&binary, &kinds))?;
    let open = report::read_open(&fs::read_to_string(dir.join("open.tsv"))?);
    let report = Report::new(known, open, &upstream, &karve)?;
    match args.output {
        Output::Text => print!("{}", report.text()),
        Output::Json => println!("{:#}", report.json()),
    }
    if args.record {
        fs::write(tools::root().join("docs/differential.md"), report.page()?)?;
        fs::write(dir.join("open.tsv"), report.open())?;
        return Ok(());
    }
    ensure!(report.unknown() == 0, "{} answers differ", report.unknown());
    let outdated = report.outdated();
    if args.kinds.is_empty() && !outdated.is_empty() {
        bail!(
            "no case shows these known differences any more: {}",
            outdated.join("; ")
        );
    }
    Ok(())
}

/// All cases, as a step of the tests.
pub fn run_all() -> Result<()> {
    if !tools::is_root() {
        return tools::skip("the differential run: it needs root");
    }
    run(&DifferentialArgs {
        karve: None,
        output: Output::Text,
        record: false,
        kinds: Vec::new(),
    })
}

/// Kinds that make what others need are always played.
fn select(kinds: Vec<Kind>, names: &[String]) -> Result<Vec<Kind>> {
    for name in names {
        ensure!(
            kinds.iter().any(|kind| kind.name == *name),
            "there are no cases of {name}"
        );
    }
    let wanted = |kind: &Kind| names.is_empty() || kind.name == "Setup" || names.contains(&kind.name);
    Ok(kinds.into_iter().filter(wanted).collect())
}

/// Runs on a thread of its own, for only that thread leaves the machine's network.
pub fn in_a_network<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| servers::leave_network().and_then(|()| work()));
        thread.join().unwrap_or_else(|_| bail!("the run panicked"))
    })
}

type Answers = Vec<(play::Title, play::Answer)>;

fn answers(binary: &Path, kinds: &[Kind]) -> Result<(Answers, Answers)> {
    let dir = WorkDir::create()?;
    servers::prepare(dir.path(), "")?;
    let karve =
        servers::karve(binary, dir.path()).with_context(|| tools::last_lines(&dir.path().join("karve.log"), 10))?;
    let upstream = servers::upstream(dir.path(), "")
        .with_context(|| tools::last_lines(&dir.path().join("kube-apiserver.log"), 10))?;
    thread::scope(|scope| {
        let ours = scope.spawn(|| play::play(&karve, kinds).context("karve"));
        let theirs = play::play(&upstream, kinds).context("upstream");
        let ours = ours.join().unwrap_or_else(|_| bail!("the run panicked"));
        Ok((theirs?, ours?))
    })
}
