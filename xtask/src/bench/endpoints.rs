//! An endpoint that changes among many Services.

use anyhow::Result;

use super::Bench;
use super::figures::{Figures, Side};
use super::sides::{Cluster, Parts};

const LARGE: &str = "endpoint change → connections arrive, 10,000 services, p99";
const LARGE_MEDIAN: &str = "the same, median";

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let mut figures = bench.alternate(|side, figures| measure(bench, side, figures))?;
    for measure in [LARGE, LARGE_MEDIAN, "server CPU per change, 10,000 services"] {
        figures.leave_out(measure, Side::Upstream, "not run: filling it takes minutes");
    }
    bench.publish(
        "endpoints",
        "Endpoints",
        &figures,
        "From the request that changes an EndpointSlice until a new connection to the Service's address arrives at the new\n\
         endpoint; 100 changes, 10 on upstream's side, whose p99 is its slowest. Connections are tried every 0.2 ms, later after each\n\
         hundredth of the time that has passed. A whole cluster of one node on one core, the load generator on the other; ours by\n\
         nftables, upstream's kube-proxy by iptables with its default of at most one sync per second.",
    )
}

fn measure(bench: &Bench<'_>, side: Side, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::Node, &bench.setup)?;
    let changes = if side == Side::Ours { 100 } else { 10 };
    let outcome = bench.load(&mut cluster, &format!("endpoints --services 100 --changes {changes}"))?;
    figures.add(
        "endpoint change → connections arrive, 100 services, p99",
        "ms",
        side,
        outcome.number("p99_ms")?,
    );
    figures.add(
        "the same with 100 services, median",
        "ms",
        side,
        outcome.number("p50_ms")?,
    );
    figures.add(
        "CPU of all components per change, 100 services",
        "µs",
        side,
        outcome.cpu_each()?,
    );
    drop(cluster);
    if side == Side::Upstream {
        return Ok(());
    }
    let mut cluster = Cluster::start(side, Parts::Node, &bench.setup)?;
    let outcome = bench.load(&mut cluster, "endpoints --services 10000 --changes 100")?;
    figures.add(LARGE, "ms", side, outcome.number("p99_ms")?);
    figures.add(LARGE_MEDIAN, "ms", side, outcome.number("p50_ms")?);
    figures.add(
        "server CPU per change, 10,000 services",
        "µs",
        side,
        outcome.cpu_each()?,
    );
    Ok(())
}
