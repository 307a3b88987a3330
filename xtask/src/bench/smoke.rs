//! A minute of benchmarks of our side alone, held against recorded figures: a tenfold loss is a failure.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::figures::{Figures, Side, is_rate};
use super::load::Outcome;
use super::sides::{Cluster, Parts};
use super::{Bench, BenchArgs};
use crate::tools::{is_root, root, skip};

/// How many times worse than recorded is too much. Anything less may be the machine's.
const TOLERATED: f64 = 10.0;

/// What one number of a load is called.
struct Number {
    measure: &'static str,
    unit: &'static str,
    from: From,
}

enum From {
    /// What the load printed under this name.
    Load(&'static str),
    /// The server's time per operation.
    Cpu,
    /// The server's memory at its highest.
    Peak,
}

/// A part of a cluster, a load of it, and what is looked at.
type Row = (Parts, &'static str, &'static [Number]);

const fn number(measure: &'static str, unit: &'static str, from: From) -> Number {
    Number { measure, unit, from }
}

const ROWS: &[Row] = &[
    (
        Parts::Server,
        "create --clients 1 --seconds 2 --prefix one",
        &[number("create by one client", "/s", From::Load("rate"))],
    ),
    (
        Parts::Server,
        "create --clients 64 --to 10000 --prefix many",
        &[
            number("create by 64 clients", "/s", From::Load("rate")),
            number("server CPU per create", "µs", From::Cpu),
        ],
    ),
    (
        Parts::Server,
        "get --clients 64 --seconds 2",
        &[
            number("GET on 64 connections", "/s", From::Load("rate")),
            number("server CPU per GET", "µs", From::Cpu),
        ],
    ),
    (
        Parts::Server,
        "list --times 5",
        &[
            number("LIST of over 10,000 objects", "ms", From::Load("p50_ms")),
            number("peak memory with over 10,000 objects", "MB", From::Peak),
        ],
    ),
    (
        Parts::Server,
        "watches --watchers 1000 --connections 10 --rate 300 --seconds 3",
        &[number("delivery to 1,000 watches, p99", "ms", From::Load("p99_ms"))],
    ),
    (
        Parts::ControlPlane,
        "schedule --nodes 500 --pods 1000",
        &[number("schedule 1,000 pods on 500 nodes", "/s", From::Load("rate"))],
    ),
    (
        Parts::ControlPlane,
        "hollow --nodes 100 --pods-per-node 2 --churn 10 --seconds 6",
        &[
            number("pod to Ready on hollow nodes", "ms", From::Load("ready_p50_ms")),
            number("heartbeat p99 of hollow nodes", "ms", From::Load("heartbeat_p99_ms")),
        ],
    ),
    (
        Parts::Node,
        "endpoints --services 100 --changes 50",
        &[number(
            "endpoint change to connections, median",
            "ms",
            From::Load("p50_ms"),
        )],
    ),
];

/// The step of `cargo xtask test`.
pub fn run_quick() -> Result<()> {
    let args = BenchArgs::default();
    run(&Bench::new(&args)?)
}

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let mut figures = Figures::default();
    let mut server = Cluster::start(Side::Ours, Parts::Server, &bench.setup)?;
    for (parts, load, numbers) in ROWS {
        if *parts == Parts::Node && !is_root() {
            skip("smoke benchmarks of a node need root")?;
            continue;
        }
        let outcome = match parts {
            // What is listed was created before.
            Parts::Server => last_stage(bench, &mut server, load)?,
            // Nodes of one load would be given the pods of another.
            Parts::ControlPlane | Parts::Node => {
                let begun = Instant::now();
                let mut cluster = Cluster::start(Side::Ours, *parts, &bench.setup)?;
                let took = begun.elapsed().as_secs_f64() * 1e3;
                figures.add("start of a cluster", "ms", Side::Ours, took);
                last_stage(bench, &mut cluster, load)?
            }
        };
        for number in *numbers {
            figures.add(number.measure, number.unit, Side::Ours, value(number, &outcome)?);
        }
    }
    match bench.args.record {
        true => record(&figures),
        false => judge(&figures, &recorded()?),
    }
}

/// Watches and hollow nodes have two stages, of which the second is measured.
fn last_stage(bench: &Bench<'_>, cluster: &mut Cluster, load: &str) -> Result<Outcome> {
    let mut running = bench.begin(cluster, load)?;
    if load.starts_with("watches") || load.starts_with("hollow") {
        running.next(cluster)?;
    }
    running.next(cluster)
}

fn value(number: &Number, outcome: &Outcome) -> Result<f64> {
    match number.from {
        From::Load(name) => outcome.number(name),
        From::Cpu => outcome.cpu_each(),
        From::Peak => Ok(outcome.after.peak_mb),
    }
}

fn file() -> PathBuf {
    root().join("bench/smoke.tsv")
}

fn record(figures: &Figures) -> Result<()> {
    let mut text = "# What `cargo xtask bench smoke --record` measured; a tenth of it fails the tests.\n".to_owned();
    for (measure, unit) in figures.measures() {
        let value = figures.median(measure, Side::Ours).unwrap_or_default();
        let _ = writeln!(text, "{measure}\t{unit}\t{value:.2}");
    }
    fs::write(file(), text).with_context(|| format!("cannot write {}", file().display()))
}

fn recorded() -> Result<HashMap<String, f64>> {
    let text = fs::read_to_string(file()).with_context(|| format!("cannot read {}", file().display()))?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields[..] {
                [measure, _, value] => Ok((measure.to_owned(), value.parse()?)),
                _ => bail!("{} has the line {line:?}", file().display()),
            }
        })
        .collect()
}

fn judge(figures: &Figures, recorded: &HashMap<String, f64>) -> Result<()> {
    let mut losses = Vec::new();
    for (measure, unit) in figures.measures() {
        let value = figures.median(measure, Side::Ours).unwrap_or_default();
        let before = *recorded
            .get(*measure)
            .with_context(|| format!("nothing is recorded for {measure:?}: `cargo xtask bench smoke --record`"))?;
        if is_lost(unit, value, before) {
            losses.push(format!("{measure}: {value:.2} {unit}, recorded {before:.2}"));
        }
    }
    if !losses.is_empty() {
        bail!("ten times worse than recorded: {}", losses.join("; "));
    }
    println!(
        "{} figures, none ten times worse than recorded",
        figures.measures().len()
    );
    Ok(())
}

fn is_lost(unit: &str, value: f64, before: f64) -> bool {
    match is_rate(unit) {
        true => value * TOLERATED < before,
        false => value > before * TOLERATED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_worse_is_a_loss() {
        assert!(is_lost("/s", 99.0, 1000.0));
        assert!(!is_lost("/s", 101.0, 1000.0));
        assert!(is_lost("ms", 101.0, 10.0));
        assert!(!is_lost("ms", 99.0, 10.0));
    }

    #[test]
    fn a_figure_is_recorded_for_each_that_is_looked_at() {
        let recorded = recorded().unwrap();
        for number in ROWS.iter().flat_map(|(_, _, numbers)| *numbers) {
            assert!(recorded.contains_key(number.measure), "{}", number.measure);
        }
    }
}
