//! `karve down` and `karve reset`: stop a cluster, and remove it.

use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::layout::Layout;
use crate::leftovers;
use crate::run_file::RunFile;
use crate::say;

const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Stops the cluster and everything that runs on its node. Its objects stay.
pub async fn down(layout: &Layout) -> Result<()> {
    let Some(run) = RunFile::read(layout)? else {
        say::result(format_args!("no cluster is running in {}", layout.root.display()))?;
        return Ok(());
    };
    if run.is_running() {
        stop(&run)?;
    }
    if let Some(node) = &run.node {
        node.tear_down()
            .await
            .context("failed to clean up the node; run `karve down` again")?;
    }
    remove_if_there(fs::remove_file(layout.run_file()))?;
    say::result(format_args!(
        "cluster stopped; its data is in {}",
        layout.root.display()
    ))?;
    Ok(())
}

/// Stops the cluster and removes everything it ever stored.
pub async fn reset(layout: &Layout) -> Result<()> {
    // Only directories that are evidently ours: a mistyped --data-dir must not cost anyone their files. A runtime that
    // ran alone has no certificates.
    let is_ours = layout.pki().join("ca.crt").exists() || RunFile::read(layout)?.is_some();
    down(layout).await?;
    if !is_ours {
        if layout.root.exists() {
            bail!("{} contains no cluster; nothing was removed", layout.root.display());
        }
        return Ok(());
    }
    // What is still mounted would be removed with the directory. The node's own mounts go, whether or not a run file told
    // of them; what somebody mounted among the volumes is theirs.
    leftovers::unmount_below(&layout.node())?;
    if let Some(point) = leftovers::mounts_below(&layout.volumes())?.first() {
        bail!(
            "something is mounted at {}; unmount it and run `karve reset` again, nothing was removed",
            point.display()
        );
    }
    for entry in ["join.json", "kubeconfig", "karve.log", "run.json"] {
        remove_if_there(fs::remove_file(layout.root.join(entry)))?;
    }
    for entry in ["store", "node", "volumes", "pki"] {
        remove_if_there(fs::remove_dir_all(layout.root.join(entry)))
            .with_context(|| format!("failed to remove {}", layout.root.join(entry).display()))?;
    }
    // Whatever else stands there was not made by us and keeps the directory.
    if let Err(error) = fs::remove_dir(&layout.root) {
        say::result(format_args!("failed to remove {}: {error}", layout.root.display()))?;
    }
    say::result(format_args!("removed the cluster in {}", layout.root.display()))?;
    Ok(())
}

fn stop(run: &RunFile) -> Result<()> {
    let pid = i32::try_from(run.pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("the run file contains no process ID")?;
    kill_process(pid, Signal::TERM).with_context(|| format!("failed to stop process {}", run.pid))?;
    let deadline = Instant::now() + STOP_TIMEOUT;
    while run.is_running() {
        if Instant::now() > deadline {
            bail!(
                "process {} does not stop; check its log, then run `kill -9 {}` and `karve down` again",
                run.pid,
                run.pid
            );
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn remove_if_there(result: std::io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reset_removes_volumes_and_nothing_that_is_not_the_clusters() {
        let directory = tempfile::tempdir().unwrap();
        let layout = Layout {
            name: "test".to_owned(),
            root: directory.path().join("data"),
        };
        for made in ["pki", "store", "node/kubelet", "volumes/pvc-1"] {
            fs::create_dir_all(layout.root.join(made)).unwrap();
        }
        fs::write(layout.root.join("join.json"), "{}").unwrap();
        fs::write(layout.root.join("notes"), "mine").unwrap();
        assert!(reset(&layout).await.is_err(), "without an authority it is no cluster");
        assert!(layout.volumes().join("pvc-1").exists());
        fs::write(layout.pki().join("ca.crt"), "").unwrap();
        reset(&layout).await.unwrap();
        let left: Vec<_> = fs::read_dir(&layout.root).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(layout.root.join("notes").exists());
    }
}
