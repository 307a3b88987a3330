//! What stored pods cost in memory.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::figures::{Figures, Side};
use super::sides::{Cluster, Parts};
use crate::signals;

/// Upstream is given no more: it takes a minute for so many.
const UPSTREAM_PODS: usize = 20_000;
/// What memory is given to settle after the writes.
const SETTLE: Duration = Duration::from_secs(5);

const ALL: &str = "all pods, on our side alone";
const ALL_FACTOR: &str = "memory ÷ stored bytes, all pods";

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let mut figures = bench.alternate(|side, figures| measure(bench, side, figures))?;
    for measure in [ALL, ALL_FACTOR] {
        figures.leave_out(measure, Side::Upstream, "not run: filling it takes minutes");
    }
    bench.publish(
        "memory",
        "Memory of stored pods",
        &figures,
        "Pods as a Deployment makes them (owner, probe, variables, token volume, managedFields), created by 64 clients in an API\n\
         server alone. Stored bytes are those of the objects as JSON. Memory is PSS of the server and its store five seconds after\n\
         the writes, less that before them, so that recent history and what the allocator keeps are part of it.",
    )
}

fn measure(bench: &Bench<'_>, side: Side, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::Server, &bench.setup)?;
    signals::sleep(Duration::from_secs(2))?;
    let empty = cluster.usage()?.pss_mb;
    let first = bench.args.pods.min(UPSTREAM_PODS);
    let mut bytes = fill(bench, &mut cluster, 0, first)?;
    figures.state("pods on both sides", "", side, first as f64);
    figures.state("bytes of a pod as JSON", "B", side, bytes / first as f64);
    let grown = settled(&mut cluster)? - empty;
    figures.add("memory ÷ stored bytes", "×", side, grown * 1e6 / bytes);
    if side == Side::Upstream {
        return Ok(());
    }
    bytes += fill(bench, &mut cluster, first, bench.args.pods)?;
    figures.state(ALL, "", side, bench.args.pods as f64);
    let grown = settled(&mut cluster)? - empty;
    figures.add(ALL_FACTOR, "×", side, grown * 1e6 / bytes);
    Ok(())
}

/// How many bytes the new pods have.
fn fill(bench: &Bench<'_>, cluster: &mut Cluster, from: usize, to: usize) -> Result<f64> {
    if from == to {
        return Ok(0.0);
    }
    let outcome = bench.load(cluster, &format!("create --pods --prefix pod --from {from} --to {to}"))?;
    println!("   {:.0} pods/s", outcome.number("rate")?);
    outcome.number("bytes")
}

fn settled(cluster: &mut Cluster) -> Result<f64> {
    signals::sleep(SETTLE)?;
    Ok(cluster.usage()?.pss_mb)
}
