//! `cargo xtask e2e`: scenarios on real clusters with upstream's kubectl.
//!
//! A scenario is a function and a row of [`SCENARIOS`].

mod components;
mod crash;
mod encryption;
pub mod footprint;
mod joining;
mod kube_rs;
mod leftovers;
mod python;
mod storage;
mod tour;
pub mod workload;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::cluster::{Runtime, Setup, Store};
use crate::tools::{self, is_on_path, is_root, target_dir};
use crate::{dist, signals};

#[derive(Args)]
pub struct E2eArgs {
    /// The binary to test; built when it is not given
    #[arg(long)]
    karve: Option<PathBuf>,
    /// Only these scenarios
    names: Vec<String>,
}

struct Scenario {
    name: &'static str,
    /// Programs without which it is skipped. All of them need root.
    needs: &'static [&'static str],
    run: fn(&World) -> Result<()>,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "workload",
        needs: NODE,
        run: |world| workload::on(world, Runtime::Embedded, Store::Embedded),
    },
    Scenario {
        name: "workload-etcd",
        needs: &["ip", "nft", "curl", "etcd"],
        run: |world| workload::on(world, Runtime::Embedded, Store::Etcd),
    },
    Scenario {
        name: "workload-containerd",
        needs: &["ip", "nft", "curl", "containerd", "runc"],
        run: |world| workload::on(world, Runtime::Containerd, Store::Embedded),
    },
    Scenario {
        name: "crash",
        needs: NODE,
        run: |world| crash::loses_nothing(world, Store::Embedded),
    },
    Scenario {
        name: "crash-etcd",
        needs: &["ip", "nft", "curl", "etcd"],
        run: |world| crash::loses_nothing(world, Store::Etcd),
    },
    Scenario {
        name: "down-and-reset",
        needs: NODE,
        run: leftovers::none,
    },
    Scenario {
        name: "encryption",
        needs: &["ip", "openssl"],
        run: encryption::is_upstreams,
    },
    Scenario {
        name: "join",
        needs: &["ip", "nft"],
        run: joining::is_by_token,
    },
    Scenario {
        name: "storage",
        needs: &["ip", "nft"],
        run: storage::is_kept,
    },
    Scenario {
        name: "tour",
        needs: &["ip"],
        run: |world| tour::on(world, Store::Embedded),
    },
    Scenario {
        name: "tour-etcd",
        needs: &["ip", "etcd"],
        run: |world| tour::on(world, Store::Etcd),
    },
    Scenario {
        name: "python",
        needs: &["ip", "nft", "python3"],
        run: python::works,
    },
    Scenario {
        name: "kube-rs",
        needs: &["ip", "nft"],
        run: kube_rs::works,
    },
    Scenario {
        name: "upstream-controllers",
        needs: &["ip"],
        run: components::upstream_controllers,
    },
    Scenario {
        name: "components-apart",
        needs: &["ip", "nft", "containerd", "runc"],
        run: components::apart,
    },
];

/// What a node's own tests use.
const NODE: &[&str] = &["ip", "nft", "curl"];

/// What scenarios run on.
pub struct World {
    binary: PathBuf,
    logs: PathBuf,
}

impl World {
    /// A cluster of one node.
    pub fn setup(&self) -> Setup {
        Setup {
            binary: self.binary.clone(),
            runtime: Runtime::Embedded,
            store: Store::Embedded,
            nodes: 1,
            pullable: Vec::new(),
            logs: self.logs.clone(),
        }
    }
}

/// The step of `cargo xtask test`.
pub fn run_all() -> Result<()> {
    run(&E2eArgs {
        karve: None,
        names: Vec::new(),
    })
}

pub fn run(args: &E2eArgs) -> Result<()> {
    for name in &args.names {
        if !SCENARIOS.iter().any(|scenario| scenario.name == name) {
            let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            bail!("there is no scenario {name:?}; there are {}", names.join(", "));
        }
    }
    let binary = match &args.karve {
        Some(path) => std::path::absolute(path)?,
        None => dist::release()?,
    };
    let wanted = |scenario: &&Scenario| args.names.is_empty() || args.names.iter().any(|name| name == scenario.name);
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for scenario in SCENARIOS.iter().filter(wanted) {
        signals::check()?;
        match missing(scenario) {
            None => match run_one(scenario, &binary) {
                Ok(()) => passed += 1,
                Err(error) => failed.push(format!("{}: {error:#}", scenario.name)),
            },
            Some(missing) => match tools::skip(&format!("{} needs {missing}", scenario.name)) {
                Ok(()) => skipped += 1,
                Err(error) => failed.push(format!("{error:#}")),
            },
        }
    }
    println!("{passed} passed, {} failed, {skipped} skipped", failed.len());
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("\n"));
    }
    Ok(())
}

fn run_one(scenario: &Scenario, binary: &std::path::Path) -> Result<()> {
    let name = scenario.name;
    let world = World {
        binary: binary.to_owned(),
        logs: target_dir().join("e2e").join(name),
    };
    // The logs of the last run are enough.
    let _ = std::fs::remove_dir_all(&world.logs);
    let begun = Instant::now();
    println!("-- {name}");
    let result = (scenario.run)(&world);
    let seconds = begun.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("-- {name} passed in {seconds:.1} s"),
        Err(error) => println!(
            "-- {name} FAILED after {seconds:.1} s: {error:#}\n   logs in {}",
            world.logs.display()
        ),
    }
    result
}

fn missing(scenario: &Scenario) -> Option<String> {
    if !is_root() {
        return Some("root".to_owned());
    }
    let absent: Vec<&str> = scenario
        .needs
        .iter()
        .filter(|program| !is_on_path(program))
        .copied()
        .collect();
    (!absent.is_empty()).then(|| absent.join(", "))
}
