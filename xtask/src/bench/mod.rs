//! `cargo xtask bench`: measurements beside upstream in one run.
//!
//! A benchmark is a file and a row of [`BENCHMARKS`].

pub mod api;
mod curve;
mod figures;
mod first_light;
mod growth;
pub mod http;
mod sides;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::cluster::{Runtime, Setup, Store};
use crate::dist;
use crate::tools::target_dir;

type Benchmark = (&'static str, fn(&Setup, &BenchArgs) -> Result<()>);

const BENCHMARKS: &[Benchmark] = &[("first-light", first_light::run), ("growth", growth::run)];

#[derive(Args)]
pub struct BenchArgs {
    /// The binary to measure; built when it is not given
    #[arg(long)]
    karve: Option<PathBuf>,
    /// How often each side is measured
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many objects there are at the points of growth curves
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000, 100_000])]
    objects: Vec<usize>,
    /// How many watchers there are at the points of growth curves
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000])]
    watchers: Vec<usize>,
    /// Which; all when none is given
    names: Vec<String>,
}

pub fn run(args: &BenchArgs) -> Result<()> {
    for name in &args.names {
        if !BENCHMARKS.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = BENCHMARKS.iter().map(|(known, _)| *known).collect();
            bail!("there is no benchmark {name:?}; there are {}", known.join(", "));
        }
    }
    let setup = Setup {
        binary: match &args.karve {
            Some(path) => std::path::absolute(path)?,
            None => dist::release()?,
        },
        runtime: Runtime::Embedded,
        store: Store::Embedded,
        nodes: 1,
        logs: target_dir().join("bench"),
    };
    let wanted = |name: &str| args.names.is_empty() || args.names.iter().any(|wanted| wanted == name);
    for (_, benchmark) in BENCHMARKS.iter().filter(|(name, _)| wanted(name)) {
        benchmark(&setup, args)?;
    }
    Ok(())
}
