//! Automation of this repository: `cargo xtask --help`.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod authorization;
mod bench;
mod chaos;
mod cluster;
mod conformance;
mod dependencies;
mod descriptions;
mod differential;
mod dist;
mod e2e;
mod fuzz;
mod hostile;
mod interchange;
mod namespace;
mod peers;
mod process;
mod random;
mod signals;
mod suite;
mod test;
mod tools;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Builds, runs and tests Karve.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 100)]
enum Task {
    /// Build the static release binary and run a cluster of one node in the foreground
    ///
    /// Example: cargo xtask up -- --secure-port 7443
    Up {
        /// Flags passed on to `karve up`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Build the static release binary and print where it is and how large
    Dist,
    /// Install what the tests need and run everything a change must pass
    ///
    /// Example: cargo xtask test --only lints,units
    Test(test::TestArgs),
    /// Measure beside upstream and write docs/performance.md
    ///
    /// Example: cargo xtask bench first-light --rounds 3
    Bench(bench::BenchArgs),
    /// Run upstream's conformance tests against a cluster of our own
    ///
    /// Example: cargo xtask conformance --group G12,G13 --procs 4
    Conformance(conformance::ConformanceArgs),
    /// Run upstream's other end-to-end specs against a cluster of our own, and of upstream's
    ///
    /// Example: cargo xtask suite --sig network,node --record
    Suite(Box<suite::SuiteArgs>),
    /// Swap components of ours and upstream's on running clusters and write docs/interchange.md
    ///
    /// Example: cargo xtask interchange kubelet kube-proxy
    Interchange(interchange::InterchangeArgs),
    /// Break a cluster at random while clients write, and check that nothing is lost or left
    ///
    /// Example: cargo xtask chaos --seed 7 --minutes 10
    Chaos(chaos::ChaosArgs),
    /// Run the end-to-end scenarios
    ///
    /// Example: cargo xtask e2e workload crash
    E2e(e2e::E2eArgs),
    /// Feed everything that reads bytes from outside with whatever bytes, each reader for a minute
    ///
    /// Example: cargo xtask fuzz --seconds 600 json yaml
    Fuzz(fuzz::FuzzArgs),
    /// Ask upstream's API server and ours the same and compare the answers
    ///
    /// Example: cargo xtask differential Pod Service
    Differential(differential::DifferentialArgs),
    /// Attack a cluster as hostile users, pods, images, nodes and clients do, and see that they get nowhere
    ///
    /// Example: cargo xtask hostile --vm containers
    Hostile(hostile::HostileArgs),
    /// Run a command in a virtual machine with a kernel of Debian
    ///
    /// Example: cargo xtask vm --debian 13 uname -a
    Vm(vm::VmArgs),
    /// Pack the descriptions of built-in types from the source of the k8s-openapi crate
    Descriptions(descriptions::DescriptionsArgs),
    /// Build upstream's programs that tests run against and print their paths
    Peers(PeersArgs),
}

#[derive(clap::Args)]
struct PeersArgs {
    /// Their names; all that the tests need when none is given
    names: Vec<String>,
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    signals::install()?;
    match task {
        Task::Up { arguments } => dist::up(&arguments),
        Task::Dist => {
            let binary = dist::release()?;
            println!("{} ({:.1} MB)", binary.display(), dist::megabytes(&binary)?);
            Ok(())
        }
        Task::Test(args) => test::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Conformance(args) => conformance::run(&args),
        Task::Suite(args) => suite::run(&args),
        Task::Interchange(args) => interchange::run(&args),
        Task::Chaos(args) => chaos::run(&args),
        Task::E2e(args) => e2e::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Differential(args) => differential::run(&args),
        Task::Hostile(args) => hostile::run(&args),
        Task::Vm(args) => vm::run(&args),
        Task::Descriptions(args) => descriptions::run(&args),
        Task::Peers(args) => peers::build(&args.names).map(|paths| {
            paths.iter().for_each(|path| println!("{}", path.display()));
        }),
    }
}
