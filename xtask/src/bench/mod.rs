//! `cargo xtask bench`: measurements beside upstream in one run.
//!
//! A benchmark is a file and a row of [`BENCHMARKS`]. Those that need many clients drive the load generator of `bench/`
//! ([`load`]), which has a core of its own ([`pin`]).

pub mod api;
mod curve;
mod endpoints;
mod figures;
mod first_light;
mod growth;
mod hollow;
pub mod http;
mod lists;
mod load;
mod memory;
mod pin;
mod pods;
mod requests;
mod schedule;
mod sides;
mod smoke;
mod watches;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::cluster::{Runtime, Setup, Store};
use crate::tools::{self, target_dir};
use crate::{dist, signals};
use figures::{Figures, Side, write_section};
use load::{Load, Outcome};
use sides::Cluster;

pub use smoke::run_quick;

type Benchmark = (&'static str, fn(&Bench<'_>) -> Result<()>);

const BENCHMARKS: &[Benchmark] = &[
    ("first-light", first_light::run),
    ("requests", requests::run),
    ("lists", lists::run),
    ("memory", memory::run),
    ("watches", watches::run),
    ("schedule", schedule::run),
    ("endpoints", endpoints::run),
    ("growth-objects", growth::objects),
    ("growth-watchers", growth::watchers),
    ("growth-nodes", growth::nodes),
    ("hollow", hollow::run),
    ("smoke", smoke::run),
];

#[derive(Args)]
pub struct BenchArgs {
    /// The binary to measure; built when it is not given
    #[arg(long)]
    karve: Option<PathBuf>,
    /// The load generator; built when it is not given
    #[arg(long)]
    load: Option<PathBuf>,
    /// How often each side is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Write the figures into docs/performance.md
    #[arg(long)]
    record: bool,
    /// How many objects there are at the points of growth curves
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000, 100_000])]
    objects: Vec<usize>,
    /// How many watchers there are at the points of growth curves
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000, 10_000])]
    watchers: Vec<usize>,
    /// How many hollow nodes there are at the points of growth curves
    #[arg(long, value_delimiter = ',', default_values_t = [100, 1000, 5000])]
    nodes: Vec<usize>,
    /// How large the hollow cluster of `bench hollow` grows, step by step
    #[arg(long, value_delimiter = ',', default_values_t = [2000, 5000, 10_000, 15_000, 20_000])]
    largest: Vec<usize>,
    /// How many pods `bench memory` stores
    #[arg(long, default_value_t = 100_000)]
    pods: usize,
    /// Which, as far as a hyphen; all when none is given
    names: Vec<String>,
}

impl Default for BenchArgs {
    /// What a run without arguments has.
    fn default() -> Self {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            args: BenchArgs,
        }
        <Alone as clap::Parser>::parse_from(["bench"]).args
    }
}

/// What a benchmark is given.
struct Bench<'a> {
    setup: Setup,
    generator: PathBuf,
    args: &'a BenchArgs,
}

pub fn run(args: &BenchArgs) -> Result<()> {
    for name in &args.names {
        if !BENCHMARKS.iter().any(|(known, _)| is_named(known, name)) {
            let known: Vec<&str> = BENCHMARKS.iter().map(|(known, _)| *known).collect();
            bail!("there is no benchmark {name:?}; there are {}", known.join(", "));
        }
    }
    let bench = Bench::new(args)?;
    let wanted = |name: &str| match args.names.is_empty() {
        // The small one is a part of the others.
        true => name != "smoke",
        false => args.names.iter().any(|wanted| is_named(name, wanted)),
    };
    for (name, benchmark) in BENCHMARKS.iter().filter(|(name, _)| wanted(name)) {
        let begun = std::time::Instant::now();
        benchmark(&bench)?;
        println!("== {name} took {:.0} s", begun.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Whether somebody who says `wanted` means this one: `growth` is all of `growth-…`.
fn is_named(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

impl<'a> Bench<'a> {
    fn new(args: &'a BenchArgs) -> Result<Self> {
        let (binary, generator) = match (&args.karve, &args.load) {
            (Some(karve), Some(load)) => (std::path::absolute(karve)?, std::path::absolute(load)?),
            (Some(karve), None) => (std::path::absolute(karve)?, dist::load_generator()?),
            (None, Some(load)) => (dist::release()?, std::path::absolute(load)?),
            (None, None) => dist::release_and("load")?,
        };
        let setup = Setup {
            binary,
            runtime: Runtime::Embedded,
            store: Store::Embedded,
            nodes: 1,
            pullable: Vec::new(),
            logs: target_dir().join("bench"),
        };
        Ok(Self { setup, generator, args })
    }

    /// Measures both sides in turn, and the other one first in every second round.
    fn alternate(&self, mut measure: impl FnMut(Side, &mut Figures) -> Result<()>) -> Result<Figures> {
        let mut figures = Figures::default();
        let rounds = self.args.rounds;
        for round in 1..=rounds {
            let mut order = [Side::Ours, Side::Upstream];
            if round % 2 == 0 {
                order.reverse();
            }
            for side in order {
                signals::check()?;
                println!("-- round {round} of {rounds}: {side:?}");
                measure(side, &mut figures)?;
            }
        }
        Ok(figures)
    }

    /// Runs a load of one stage.
    fn load(&self, cluster: &mut Cluster, arguments: &str) -> Result<Outcome> {
        self.begin(cluster, arguments)?.next(cluster)
    }

    /// Starts a load up to its first stage.
    fn begin(&self, cluster: &Cluster, arguments: &str) -> Result<Load> {
        signals::check()?;
        let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        Load::start(&self.generator, &cluster.access()?, &words)
    }

    /// Shows the table, and writes it down with its circumstances when asked to.
    fn publish(&self, name: &str, title: &str, figures: &Figures, circumstances: &str) -> Result<()> {
        let table = figures.table();
        print!("{table}");
        let (rounds, cores) = (self.args.rounds, std::thread::available_parallelism()?);
        self.write(
            name,
            &format!(
                "## {title}\n\n{table}\nMedian (least–most) of {rounds} rounds, alternating, on {cores} cores; \
                 `cargo xtask bench {name}`, commit {}, {}.\n{circumstances}\n",
                tools::commit()?,
                tools::today(),
            ),
        )
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        match self.args.record {
            true => write_section(name, content),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_all_that_begin_with_it() {
        let meant = |wanted: &str| {
            let names = BENCHMARKS.iter().map(|(name, _)| *name);
            names.filter(|name| is_named(name, wanted)).collect::<Vec<_>>()
        };
        assert_eq!(meant("growth"), ["growth-objects", "growth-watchers", "growth-nodes"]);
        assert_eq!(meant("lists"), ["lists"]);
        assert!(meant("grow").is_empty());
    }
}
