//! Single objects written and read, by one client and by many.

use anyhow::Result;

use super::Bench;
use super::figures::{Figures, Side};
use super::sides::{Cluster, Parts};

/// A load, and the names of what it gives: the rate, the median time, the server's time, its peak.
struct Row {
    load: &'static str,
    rate: &'static str,
    median: &'static str,
    cpu: &'static str,
    peak: &'static str,
    busy: [&'static str; 2],
}

const ROWS: &[Row] = &[
    Row {
        load: "create --clients 1 --seconds 4 --prefix one",
        rate: "create 1 KiB ConfigMap, one client",
        median: "its median time",
        cpu: "server CPU per create, one client",
        peak: "peak memory, one client creating",
        busy: [
            "server's core in use, one client creating",
            "load's core in use, one client creating",
        ],
    },
    Row {
        load: "create --clients 64 --seconds 4 --prefix many",
        rate: "create 1 KiB ConfigMap, 64 clients",
        median: "its median time with 64 clients",
        cpu: "server CPU per create, 64 clients",
        peak: "peak memory, 64 clients creating",
        busy: [
            "server's core in use, 64 clients creating",
            "load's core in use, 64 clients creating",
        ],
    },
    Row {
        load: "get --clients 64 --seconds 4",
        rate: "GET on 64 connections",
        median: "its median time on 64 connections",
        cpu: "server CPU per GET",
        peak: "peak memory, 64 clients reading",
        busy: [
            "server's core in use, 64 clients reading",
            "load's core in use, 64 clients reading",
        ],
    },
];

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let figures = bench.alternate(|side, figures| measure(bench, side, figures))?;
    bench.publish(
        "requests",
        "Requests",
        &figures,
        "An API server and its store on one core, the load generator on the other; TLS, HTTP/1.1, RBAC and admission\n\
         on both sides, writes synced. CPU is of the server and its store, user and kernel time; peak memory is resident, and\n\
         grows with the number of objects that a faster server was given in the same time.",
    )
}

fn measure(bench: &Bench<'_>, side: Side, figures: &mut Figures) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::Server, &bench.setup)?;
    for row in ROWS {
        let outcome = bench.load(&mut cluster, row.load)?;
        figures.add(row.rate, "/s", side, outcome.number("rate")?);
        figures.add(row.median, "ms", side, outcome.number("p50_ms")?);
        figures.add(row.cpu, "µs", side, outcome.cpu_each()?);
        figures.add(row.peak, "MB", side, outcome.after.peak_mb);
        figures.state(row.busy[0], "%", side, outcome.server_busy);
        figures.state(row.busy[1], "%", side, outcome.load_busy);
    }
    Ok(())
}
