//! `karve down` and `karve reset` leave nothing behind.

use anyhow::{Context, Result, ensure};

use super::World;
use super::footprint::{self, Footprint};
use super::workload::{BUILTIN, available, deploy, pods, step};
use crate::cluster::Karve;
use crate::tools::output;

pub fn none(world: &World) -> Result<()> {
    let mut cluster = Karve::prepare(&world.setup())?;
    let before = footprint::of(&cluster)?;
    let kubectl = cluster.kubectl()?;

    step("up -d");
    output(cluster.up_command().arg("--detach"))?;
    deploy(&kubectl, &BUILTIN, 2)?;
    let used: Vec<String> = footprint::of(&cluster)?.difference(&before).cloned().collect();
    for kind in ["process", "link", "table", "cgroup"] {
        ensure!(
            used.iter().any(|entry| entry.starts_with(kind)),
            "no {kind} was found of a cluster that runs: {used:?}"
        );
    }

    step("down");
    output(&mut cluster.karve(&["down"]))?;
    nothing_beyond(&cluster, &before).context("after down")?;
    ensure!(cluster.kubeconfig().exists(), "down removed what it should keep");

    step("up again, kill, down");
    let old = {
        cluster.up()?;
        cluster.wait_ready()?;
        available(&kubectl, 2)?;
        pods(&kubectl)?
    };
    ensure!(old.len() == 2, "the deployment did not come back: {old:?}");
    cluster.process().context("karve does not run")?.crash();
    output(&mut cluster.karve(&["down"]))?;
    nothing_beyond(&cluster, &before).context("after a kill and down")?;

    step("reset");
    cluster.up()?;
    cluster.wait_ready()?;
    output(&mut cluster.karve(&["reset"]))?;
    nothing_beyond(&cluster, &before).context("after reset")?;
    ensure!(
        !cluster.data_dir().exists(),
        "{} was not removed",
        cluster.data_dir().display()
    );
    Ok(())
}

fn nothing_beyond(cluster: &Karve, before: &Footprint) -> Result<()> {
    let after = footprint::of(cluster)?;
    let left: Vec<&str> = after.difference(before).map(String::as_str).collect();
    ensure!(
        left.is_empty(),
        "{} things were left:\n   {}",
        left.len(),
        left.join("\n   ")
    );
    Ok(())
}
