//! Many identical pods on many nodes.

use anyhow::Result;

use super::Bench;
use super::figures::{Figures, Side};
use super::sides::{Cluster, Parts};

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let mut figures = bench.alternate(|side, figures| measure(bench, side, figures))?;
    for measure in [
        LARGE,
        "server CPU per pod on 5,000 nodes",
        "peak memory with 5,000 nodes and 10,000 pods",
    ] {
        figures.leave_out(measure, Side::Upstream, "not run: too slow for one run");
    }
    bench.publish(
        "schedule",
        "Scheduling",
        &figures,
        "Nodes without kubelets; pods are created by 64 clients and counted when their binding is seen in a watch, from\n\
         the first request on, so that creating them is a part of it. The whole control plane has one core. Upstream's scheduler and\n\
         controllers may ask as often as they like (`--kube-api-qps`); ours scores all nodes, upstream's a share of them.",
    )
}

const LARGE: &str = "schedule 10,000 pods on 5,000 nodes";

fn measure(bench: &Bench<'_>, side: Side, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::ControlPlane, &bench.setup)?;
    let outcome = bench.load(&mut cluster, "schedule --nodes 500 --pods 2000")?;
    figures.add("schedule 2,000 pods on 500 nodes", "/s", side, outcome.number("rate")?);
    figures.add("server CPU per pod on 500 nodes", "µs", side, outcome.cpu_each()?);
    figures.add(
        "peak memory with 500 nodes and 2,000 pods",
        "MB",
        side,
        outcome.after.peak_mb,
    );
    figures.state("server's core in use, 500 nodes", "%", side, outcome.server_busy);
    figures.state("load's core in use, 500 nodes", "%", side, outcome.load_busy);
    drop(cluster);
    if side == Side::Upstream {
        return Ok(());
    }
    let mut cluster = Cluster::start(side, Parts::ControlPlane, &bench.setup)?;
    let outcome = bench.load(&mut cluster, "schedule --nodes 5000 --pods 10000")?;
    figures.add(LARGE, "/s", side, outcome.number("rate")?);
    figures.add("server CPU per pod on 5,000 nodes", "µs", side, outcome.cpu_each()?);
    figures.add(
        "peak memory with 5,000 nodes and 10,000 pods",
        "MB",
        side,
        outcome.after.peak_mb,
    );
    figures.state("server's core in use, 5,000 nodes", "%", side, outcome.server_busy);
    figures.state("load's core in use, 5,000 nodes", "%", side, outcome.load_busy);
    Ok(())
}
