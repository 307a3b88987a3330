//! The largest cluster of hollow nodes that this machine carries.

use std::fmt::Write;

use anyhow::Result;

use super::Bench;
use super::figures::Side;
use super::load::Outcome;
use super::sides::{Cluster, Parts};
use crate::tools;

/// Upstream's own objectives for a cluster that works: requests within a second, pods within five.
const HEARTBEAT_MS: f64 = 1000.0;
const READY_MS: f64 = 5000.0;

/// Per node and second, as in upstream's tests of scalability.
const PODS_PER_NODE: usize = 10;
const CHURN: usize = 50;

/// One size of the cluster.
struct Step {
    grown: Outcome,
    steady: Outcome,
}

impl Step {
    fn is_fit(&self) -> Result<bool> {
        Ok(self.steady.number("heartbeat_p99_ms")? < HEARTBEAT_MS
            && self.steady.number("ready_p99_ms")? < READY_MS
            && self.steady.number("failures")? == 0.0)
    }

    fn cores(&self) -> Result<f64> {
        Ok((self.steady.after.cpu_ms - self.steady.before.cpu_ms) / 1e3 / self.steady.number("seconds")?)
    }

    fn row(&self) -> Result<String> {
        let (grown, steady) = (|name| self.grown.number(name), |name| self.steady.number(name));
        Ok(format!(
            "| {} | {} | {:.0} /s | {:.0} ms | {:.0} ms | {:.1} ms | {:.0} % | {:.0} MB | {:.0} MB | {} |\n",
            grown("nodes")?,
            grown("pods")?,
            grown("start_rate")?,
            steady("ready_p50_ms")?,
            steady("ready_p99_ms")?,
            steady("heartbeat_p99_ms")?,
            self.cores()? * 100.0,
            self.steady.after.pss_mb,
            self.grown.after.peak_mb.max(self.steady.after.peak_mb),
            if self.is_fit()? { "yes" } else { "no" },
        ))
    }
}

const HEAD: &str = "| nodes | pods | pods started | pod → Ready, median | p99 | heartbeat p99 | CPU of one core | memory | peak | fit |
|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n";

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let mut cluster = Cluster::start(Side::Ours, Parts::ControlPlane, &bench.setup)?;
    let sizes: Vec<String> = bench.args.largest.iter().map(ToString::to_string).collect();
    let arguments = format!(
        "hollow --nodes {} --pods-per-node {PODS_PER_NODE} --churn {CHURN}",
        sizes.join(",")
    );
    let mut load = bench.begin(&cluster, &arguments)?;
    let (mut rows, mut largest, mut end) = (String::new(), "none".to_owned(), String::new());
    print!("{HEAD}");
    for size in &sizes {
        let step = load.next(&mut cluster).and_then(|grown| {
            Ok(Step {
                grown,
                steady: load.next(&mut cluster)?,
            })
        });
        let step = match step {
            Ok(step) => step,
            Err(error) => {
                let _ = writeln!(end, "At {size} nodes: {error:#}.");
                break;
            }
        };
        print!("{}", step.row()?);
        rows += &step.row()?;
        if !step.is_fit()? {
            break;
        }
        largest = format!("{size} nodes");
    }
    let content = format!(
        "## The largest cluster\n\n{HEAD}{rows}\nLargest that is fit: {largest}. {end}\n\
         The whole control plane on one core, the nodes' generator on the other; `cargo xtask bench hollow`, commit {}, {}.\n\
         Each hollow node asks as itself, on a connection and with a certificate of its own, so that the Node authorizer and\n\
         NodeRestriction judge it; it watches its pods, renews its lease every ten seconds and takes its pods to Ready and away;\n\
         {CHURN} pods a second are deleted and replaced for 15 seconds. Fit: heartbeats within a second and pods Ready within five, both at p99, and\n\
         no request failed. Upstream is not run at these sizes.\n",
        tools::commit()?,
        tools::today(),
    );
    println!("largest that is fit: {largest}. {end}");
    bench.write("hollow", &content)
}
