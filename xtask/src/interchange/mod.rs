//! `cargo xtask interchange`: every component of ours in upstream's cluster, and every one of upstream's in ours.
//!
//! A cell is one component swapped on a running cluster that carries a [`workload`]. The swap may restart no container
//! and start no rollout; then the workload is scaled, rolled out and run to its end; then the component is swapped back,
//! under the same rule. Containers do not change hands between runtimes, so that a [`RUNTIME`] is there from the start,
//! and is restarted instead. Where the controllers were swapped, a node is lost as well ([`node_loss`]). What became of
//! each cell is written by [`record`].

mod node_loss;
mod record;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;

use crate::cluster::{Mixture, Side, Store, Upstream};
use crate::tools::{self, is_on_path, is_root, target_dir};
use crate::{dist, signals};
use workload::Workload;

#[derive(Args, Default)]
pub struct InterchangeArgs {
    /// The binary to test; built when it is not given
    #[arg(long)]
    karve: Option<PathBuf>,
    /// Only swaps in a cluster that is otherwise of this side
    #[arg(long, value_enum)]
    base: Option<Base>,
    /// Write the results to docs/interchange.md
    #[arg(long)]
    record: bool,
    /// Only these components; all when none is given
    components: Vec<String>,
    /// Leave out the loss of a node, which takes more than a minute
    #[arg(long)]
    no_node_loss: bool,
    /// Try a cell that is not green once more on a cluster of its own, and tell of both
    #[arg(long)]
    retry: bool,
}

/// Whose all the other components are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Base {
    Upstream,
    /// Ours on etcd.
    Ours,
    /// Ours on the embedded store.
    Embedded,
}

const COMPONENTS: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
];

/// The container runtime, behind its CRI socket.
const RUNTIME: &str = "runtime";

/// All rows of the table.
const SUBJECTS: &[&str] = &[
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    RUNTIME,
];

/// What a cell shows.
enum Verdict {
    Green,
    Failed(String),
}

struct Cell {
    base: Base,
    component: &'static str,
    verdict: Verdict,
}

const IMAGES: &[&str] = &["pause", "agnhost"];
/// What both clusters are made of, beside upstream's programs that are built.
const NEEDS: &[&str] = &["containerd", "runc", "ip", "nft", "iptables", "curl", "openssl"];

/// The step of `cargo xtask test`: one cell for each component. Upstream's components have time-outs of their own, which
/// a machine that halts for some seconds runs into; what happens twice is no accident.
pub fn run_quick() -> Result<()> {
    let missing = NEEDS.iter().find(|program| !is_on_path(program));
    if !is_root() || missing.is_some() {
        return tools::skip(&format!("interchange needs root and {}", NEEDS.join(", ")));
    }
    run(&InterchangeArgs {
        base: Some(Base::Upstream),
        no_node_loss: true,
        retry: true,
        ..InterchangeArgs::default()
    })
}

pub fn run(args: &InterchangeArgs) -> Result<()> {
    ensure!(
        !(args.record && (args.no_node_loss || args.retry)),
        "cells are recorded with all that belongs to them: leave out --no-node-loss and --retry"
    );
    for name in &args.components {
        if !SUBJECTS.contains(&name.as_str()) {
            bail!("there is no component {name:?}; there are {}", SUBJECTS.join(", "));
        }
    }
    let karve = match &args.karve {
        Some(path) => std::path::absolute(path)?,
        None => dist::release()?,
    };
    let components: Vec<&'static str> = SUBJECTS
        .iter()
        .filter(|name| args.components.is_empty() || args.components.iter().any(|wanted| wanted == *name))
        .copied()
        .collect();
    let mut cells = Vec::new();
    for base in [Base::Upstream, Base::Ours, Base::Embedded] {
        if args.base.is_none_or(|wanted| wanted == base) {
            cells.extend(on_base(&karve, base, &components, args)?);
        }
    }
    if args.record {
        record::write(&cells)?;
    }
    conclude(&cells)
}

fn conclude(cells: &[Cell]) -> Result<()> {
    let failed: Vec<String> = cells
        .iter()
        .filter_map(|cell| match &cell.verdict {
            Verdict::Green => None,
            Verdict::Failed(reason) => Some(format!("{} in {}: {reason}", cell.component, cell.base.describe())),
        })
        .collect();
    println!("{} cells green, {} not", cells.len() - failed.len(), failed.len());
    if !failed.is_empty() {
        bail!("not green: {}", failed.join("\n"));
    }
    Ok(())
}

impl Base {
    fn describe(self) -> &'static str {
        match self {
            Self::Upstream => "upstream's cluster",
            Self::Ours => "our cluster on etcd",
            Self::Embedded => "our cluster on the embedded store",
        }
    }

    fn own(self) -> Side {
        match self {
            Self::Upstream => Side::Upstream,
            Self::Ours | Self::Embedded => Side::Ours,
        }
    }

    fn other(self) -> Side {
        match self.own() {
            Side::Ours => Side::Upstream,
            Side::Upstream => Side::Ours,
        }
    }
}

/// All cells of one base, on one cluster as long as it stays well.
fn on_base(karve: &Path, base: Base, components: &[&'static str], args: &InterchangeArgs) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let mut standing: Option<Standing> = None;
    for component in components {
        signals::check()?;
        let loses_node = !args.no_node_loss && *component == "kube-controller-manager";
        let mut verdict = one_cell(karve, base, component, loses_node, &mut standing)?;
        if args.retry && matches!(verdict, Verdict::Failed(_)) {
            println!("-- {component} is tried once more");
            verdict = one_cell(karve, base, component, loses_node, &mut standing)?;
        }
        cells.push(Cell {
            base,
            component,
            verdict,
        });
    }
    Ok(cells)
}

/// A cluster that carries its workload.
struct Standing {
    // Ends before the cluster does.
    workload: Workload,
    cluster: Upstream,
}

fn one_cell(
    karve: &Path,
    base: Base,
    component: &str,
    loses_node: bool,
    standing: &mut Option<Standing>,
) -> Result<Verdict> {
    let begun = Instant::now();
    println!("-- {component} in {}", base.describe());
    if component == RUNTIME && base == Base::Upstream {
        // The one before runs on containerd.
        *standing = None;
    }
    let outcome = match standing.take() {
        Some(ready) => Ok(ready),
        None => start(karve, base, component),
    }
    .and_then(|ready| match swap_and_use(&ready, base, component, loses_node) {
        Ok(()) => {
            *standing = Some(ready);
            Ok(())
        }
        Err(error) => {
            // The next cell gets a cluster of its own.
            Err(with_logs(&error, &ready.cluster, base, component))
        }
    });
    signals::check()?;
    let seconds = begun.elapsed().as_secs_f64();
    match outcome {
        Ok(()) => {
            println!("-- {component} is green after {seconds:.0} s");
            Ok(Verdict::Green)
        }
        Err(error) => {
            println!("-- {component} FAILED after {seconds:.0} s: {error:#}");
            Ok(Verdict::Failed(format!("{error:#}")))
        }
    }
}

/// Our clusters run on containerd, so that upstream's runtime is there for its cell.
fn start(karve: &Path, base: Base, component: &str) -> Result<Standing> {
    let mixture = Mixture {
        karve,
        ours: match base.own() {
            Side::Ours => COMPONENTS,
            Side::Upstream if component == RUNTIME => &[RUNTIME],
            Side::Upstream => &[],
        },
        store: match base {
            Base::Embedded => Store::Embedded,
            Base::Ours | Base::Upstream => Store::Etcd,
        },
    };
    let cluster = Upstream::start_mixed(IMAGES, &mixture).context("the cluster does not start")?;
    let workload = Workload::apply(cluster.kubectl()?);
    match workload.and_then(|workload| workload.settle().map(|()| workload)) {
        Ok(workload) => Ok(Standing { workload, cluster }),
        Err(error) => {
            let error = with_logs(&error, &cluster, base, "start");
            Err(error.context("the workload does not run before any swap"))
        }
    }
}

fn swap_and_use(standing: &Standing, base: Base, component: &str, loses_node: bool) -> Result<()> {
    let Standing { workload, cluster } = standing;
    let before = workload.identity()?;
    if component == RUNTIME {
        cluster.bounce(component)?;
        workload.unchanged(&before).context("after the restart")?;
        return workload.exercise().context("with the other side's runtime");
    }
    cluster.swap(component, base.other())?;
    workload.unchanged(&before).context("after the swap")?;
    workload.exercise().context("with the swapped component")?;
    if loses_node {
        node_loss::survived(cluster).context("a node was lost")?;
        workload.settle().context("after a node was lost")?;
    }
    let before = workload.identity()?;
    cluster.swap(component, base.own())?;
    workload.unchanged(&before).context("after swapping back")?;
    workload.settle().context("after swapping back")
}

/// Keeps the logs of a cluster that goes, and adds their ends to what went wrong.
fn with_logs(error: &anyhow::Error, cluster: &Upstream, base: Base, component: &str) -> anyhow::Error {
    let kept = target_dir().join("interchange").join(format!("{base:?}-{component}"));
    let _ = std::fs::remove_dir_all(&kept);
    let copied = std::fs::create_dir_all(&kept).and_then(|()| copy_files(&cluster.logs(), &kept));
    match copied {
        Ok(()) => println!("   logs are in {}", kept.display()),
        Err(error) => println!("   logs could not be kept: {error}"),
    }
    anyhow!("{error:#}\n{}", cluster.last_words())
}

fn copy_files(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
