//! How reads, writes, watches and memory grow with the number of objects, of watchers and of nodes.

use std::fs;

use anyhow::Result;

use super::Bench;
use super::curve::Curve;
use super::figures::Side;
use super::sides::{Cluster, Parts};
use crate::signals;
use crate::tools::{self, root};

/// Upstream is not run with more nodes: filling them takes it too long on one core.
const UPSTREAM_NODES: usize = 1000;

/// How many events all watchers of a point get together, about.
const DELIVERIES: usize = 50_000;

/// The curves by name, in the order in which they first got a point.
#[derive(Default)]
struct Curves(Vec<Curve>);

impl Curves {
    fn add(&mut self, measure: &'static str, unit: &'static str, size: usize, side: Side, value: f64) {
        let place = self
            .0
            .iter()
            .position(|curve| curve.measure == measure)
            .unwrap_or_else(|| {
                self.0.push(Curve::new(measure, unit));
                self.0.len() - 1
            });
        self.0[place].add(size, side, value);
    }
}

pub fn objects(bench: &Bench<'_>) -> Result<()> {
    let page = Page {
        name: "growth-objects",
        title: "Growth with the number of objects",
        circumstances: "Objects are ConfigMaps of 1 KiB.",
    };
    page.measure(bench, measure_objects)
}

pub fn watchers(bench: &Bench<'_>) -> Result<()> {
    let page = Page {
        name: "growth-watchers",
        title: "Growth with the number of watchers",
        circumstances: "Watchers share one object, 100 on a connection.",
    };
    page.measure(bench, measure_watchers)
}

pub fn nodes(bench: &Bench<'_>) -> Result<()> {
    let page = Page {
        name: "growth-nodes",
        title: "Growth with the number of nodes",
        circumstances: "Nodes are hollow, each with a certificate and a connection of its own and two pods; ten pods a second are\n\
                        replaced. Upstream is not run with more than 1,000 nodes, which takes it too long on one core.",
    };
    page.measure(bench, measure_nodes)
}

/// A section of docs/performance.md.
struct Page {
    name: &'static str,
    title: &'static str,
    circumstances: &'static str,
}

impl Page {
    fn measure(&self, bench: &Bench<'_>, measure: fn(&Bench<'_>, Side, &mut Curves) -> Result<()>) -> Result<()> {
        let mut curves = Curves::default();
        for side in [Side::Ours, Side::Upstream] {
            println!("-- {}: {side:?}", self.name);
            measure(bench, side, &mut curves)?;
        }
        self.write(bench, &curves)
    }

    fn write(&self, bench: &Bench<'_>, curves: &Curves) -> Result<()> {
        let head = "| measure | size | ratio | Karve | upstream |\n|---|--:|--:|--:|--:|\n";
        let mut content = format!("## {}\n\n{head}", self.title);
        let mut plots = String::new();
        for curve in &curves.0 {
            content += &curve.rows();
            let file = format!("growth-{}.svg", file_name(curve.measure));
            if bench.args.record {
                fs::write(root().join("docs").join(&file), curve.svg())?;
            }
            plots += &format!("![{}]({file})\n", curve.measure);
        }
        print!("{content}");
        content += &format!(
            "\nOne run, server and load on a core each; `cargo xtask bench {}`, commit {}, {}. A ratio above one is in our\n\
             favour. {}\n\n{plots}",
            self.name,
            tools::commit()?,
            tools::today(),
            self.circumstances,
        );
        bench.write(self.name, &content)
    }
}

fn measure_objects(bench: &Bench<'_>, side: Side, curves: &mut Curves) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::Server, &bench.setup)?;
    let mut stored = 0;
    for &size in &bench.args.objects {
        signals::check()?;
        let filled = bench.load(&mut cluster, &format!("create --from {stored} --to {size}"))?;
        stored = size;
        curves.add(
            "create by 64 clients, objects",
            "/s",
            size,
            side,
            filled.number("rate")?,
        );
        curves.add("server CPU per create, objects", "µs", size, side, filled.cpu_each()?);
        let read = bench.load(&mut cluster, "get --clients 1 --seconds 1")?;
        curves.add("GET by one client, objects", "ms", size, side, read.number("p50_ms")?);
        let listed = bench.load(&mut cluster, "list --times 3")?;
        curves.add("LIST of all, objects", "ms", size, side, listed.number("p50_ms")?);
        curves.add("memory, objects", "MB", size, side, listed.before.pss_mb);
    }
    Ok(())
}

fn measure_watchers(bench: &Bench<'_>, side: Side, curves: &mut Curves) -> Result<()> {
    let mut cluster = Cluster::start(side, Parts::Server, &bench.setup)?;
    for &size in &bench.args.watchers {
        signals::check()?;
        // Enough deliveries for processor time that is counted in hundredths of a second.
        let changes = (DELIVERIES / size).clamp(10, 500);
        let outcome = bench.load(&mut cluster, &format!("fanout --watchers {size} --changes {changes}"))?;
        curves.add(
            "change to the last watcher, watchers",
            "ms",
            size,
            side,
            outcome.number("p50_ms")?,
        );
        let each = outcome.cpu_each()? / size as f64;
        curves.add("server CPU per delivery, watchers", "µs", size, side, each);
        curves.add("memory, watchers", "MB", size, side, outcome.after.pss_mb);
    }
    Ok(())
}

fn measure_nodes(bench: &Bench<'_>, side: Side, curves: &mut Curves) -> Result<()> {
    let fits = |size: &usize| side == Side::Ours || *size <= UPSTREAM_NODES;
    let sizes: Vec<usize> = bench.args.nodes.iter().copied().filter(fits).collect();
    let words: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    let mut cluster = Cluster::start(side, Parts::ControlPlane, &bench.setup)?;
    let arguments = format!(
        "hollow --nodes {} --pods-per-node 2 --churn 10 --seconds 12",
        words.join(",")
    );
    let mut load = bench.begin(&cluster, &arguments)?;
    for size in sizes {
        signals::check()?;
        let grown = load.next(&mut cluster)?;
        let steady = load.next(&mut cluster)?;
        curves.add("pods started, nodes", "/s", size, side, grown.number("start_rate")?);
        curves.add("pod to Ready, nodes", "ms", size, side, steady.number("ready_p50_ms")?);
        curves.add(
            "heartbeat p99, nodes",
            "ms",
            size,
            side,
            steady.number("heartbeat_p99_ms")?,
        );
        let cpu = (steady.after.cpu_ms - steady.before.cpu_ms) / steady.number("seconds")?;
        curves.add("CPU per second, nodes", "ms", size, side, cpu);
        curves.add("memory, nodes", "MB", size, side, steady.after.pss_mb);
    }
    Ok(())
}

/// "server CPU per create, objects" → "server-cpu-per-create-objects"
fn file_name(measure: &str) -> String {
    let words: Vec<&str> = measure
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    words.join("-").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_words() {
        assert_eq!(
            file_name("server CPU per create, objects"),
            "server-cpu-per-create-objects"
        );
    }
}
