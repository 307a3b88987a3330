//! Ten thousand watches while objects change.

use anyhow::Result;

use super::Bench;
use super::figures::{Figures, Side};
use super::sides::{Cluster, Parts};

const LOAD: &str = "watches --watchers 10000 --connections 100 --rate 1000 --seconds 10";

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let figures = bench.alternate(|side, figures| measure(bench, side, figures))?;
    bench.publish(
        "watches",
        "Watches",
        &figures,
        "10,000 watches of one ConfigMap each, as HTTP/2 streams on 100 connections; 1,000 changes a second for ten\n\
         seconds by 32 clients. Each delivery is timed from when its change was due, so that a server that cannot keep up is\n\
         seen in it. The server has one core, the load generator the other. Memory per watch is PSS with all watches open.",
    )
}

fn measure(bench: &Bench<'_>, side: Side, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::Server, &bench.setup)?;
    let mut load = bench.begin(&cluster, LOAD)?;
    let opened = load.next(&mut cluster)?;
    let outcome = load.next(&mut cluster)?;
    figures.add("delivery to 10,000 watches, p99", "ms", side, outcome.number("p99_ms")?);
    figures.add(
        "delivery to 10,000 watches, median",
        "ms",
        side,
        outcome.number("p50_ms")?,
    );
    figures.add("changes, of 1,000 wanted", "/s", side, outcome.number("rate")?);
    figures.add("changes that were not delivered", "", side, outcome.number("lost")?);
    figures.add("server CPU per change and delivery", "µs", side, outcome.cpu_each()?);
    let kilobytes = (opened.after.pss_mb - opened.before.pss_mb) * 1e3 / 10_000.0;
    figures.add("memory per watch", "kB", side, kilobytes);
    figures.state("server's core in use, 10,000 watches", "%", side, outcome.server_busy);
    figures.state("load's core in use, 10,000 watches", "%", side, outcome.load_busy);
    figures.add("peak memory with 10,000 watches", "MB", side, outcome.after.peak_mb);
    Ok(())
}
