//! A large LIST, and what the stored objects cost in memory.

use std::time::Duration;

use anyhow::Result;

use super::Bench;
use super::figures::{Figures, Side};
use super::sides::{Cluster, Parts};
use crate::signals;

/// As JSON they are 34 MB, about the size of pods.
const FILL: &str = "create --clients 64 --to 8000 --size 4096";
/// What memory is given to settle after the writes.
const SETTLE: Duration = Duration::from_secs(5);

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let figures = bench.alternate(|side, figures| measure(bench, side, figures))?;
    bench.publish(
        "lists",
        "Lists and memory",
        &figures,
        "8,000 ConfigMaps of 4 KiB in an API server on one core, listed five times by a client on the other, HTTP/1.1,\n\
         not compressed. Memory is PSS of the server and its store five seconds after the writes, less that before them; growth is the\n\
         peak of the resident memory while listing, less that before.",
    )
}

fn measure(bench: &Bench<'_>, side: Side, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::Server, &bench.setup)?;
    signals::sleep(Duration::from_secs(2))?;
    let empty = cluster.usage()?;
    bench.load(&mut cluster, FILL)?;
    signals::sleep(SETTLE)?;
    let filled = cluster.usage()?;
    let outcome = bench.load(&mut cluster, "list --times 5")?;
    let megabytes = outcome.number("bytes")? / 1e6;
    figures.state("bytes of the LIST", "MB", side, megabytes);
    figures.add("LIST without gzip", "ms", side, outcome.number("p50_ms")?);
    figures.add("server CPU per LIST", "ms", side, outcome.cpu_each()? / 1e3);
    figures.state("server's core in use, LIST", "%", side, outcome.server_busy);
    figures.state("load's core in use, LIST", "%", side, outcome.load_busy);
    let growth = outcome.after.peak_mb - outcome.before.rss_mb;
    figures.add("memory growth by LIST", "MB", side, growth);
    let factor = (filled.pss_mb - empty.pss_mb) / megabytes;
    figures.add("memory ÷ stored bytes", "×", side, factor);
    Ok(())
}
