//! Who runs a cluster right now: written by `up`, read by every other command.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::layout::{Layout, write_private};
use crate::node::{ClusterNetwork, NodeFootprint};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunFile {
    pub pid: u32,
    /// When the process started, by which a reused pid is told from ours.
    pub started: u64,
    pub url: String,
    pub node: Option<NodeFootprint>,
    /// What other nodes have to know to join; none when this is a node of another server's cluster.
    #[serde(default)]
    pub join: Option<JoinFacts>,
}

/// Where the server is for other machines, and what all nodes agree on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinFacts {
    pub server: String,
    pub network: ClusterNetwork,
}

impl RunFile {
    pub fn new(url: &str, node: Option<NodeFootprint>) -> RunFile {
        let pid = std::process::id();
        RunFile {
            pid,
            started: start_time(pid).unwrap_or(0),
            url: url.to_owned(),
            node,
            join: None,
        }
    }

    /// Refuses to start what runs already.
    pub fn ensure_stopped(layout: &Layout) -> Result<()> {
        match RunFile::read(layout)?.filter(RunFile::is_running) {
            Some(run) => bail!(
                "{} already runs as process {}; stop it with `karve down`",
                layout.name,
                run.pid
            ),
            None => Ok(()),
        }
    }

    pub fn read(layout: &Layout) -> Result<Option<RunFile>> {
        let path = layout.run_file();
        match fs::read(&path) {
            Ok(bytes) => {
                let parsed = serde_json::from_slice(&bytes);
                parsed
                    .map(Some)
                    .with_context(|| format!("{} cannot be read", path.display()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub fn write(&self, layout: &Layout) -> Result<()> {
        write_private(&layout.run_file(), &serde_json::to_vec_pretty(self)?)
    }

    /// Whether the process that wrote this still runs.
    pub fn is_running(&self) -> bool {
        start_time(self.pid).is_some_and(|started| started == self.started)
    }
}

/// The start time of a living process in clock ticks since boot; none for a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The name in parentheses may hold anything; fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    match *fields.first()? {
        "Z" | "X" => None,
        _ => fields.get(19)?.parse().ok(),
    }
}
