//! Another node of a cluster: in its own network namespace, joined by a token as another machine would be.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Karve, NO_PRESSURE};
use crate::namespace::{NetworkNamespace, node_address};
use crate::process::Process;
use crate::tools::{self, run};

/// Taken down when dropped. The fields stand in the order of taking down.
pub struct Worker {
    process: Option<Process>,
    namespace: NetworkNamespace,
    binary: PathBuf,
    data_dir: PathBuf,
    /// Different for each node, since cgroups and directories of the machine carry it.
    name: String,
    pub node: String,
    token: PathBuf,
    address: String,
    log: PathBuf,
}

impl Worker {
    /// The node of this number, counted from one; the first is the server's own.
    pub fn start(
        cluster: &Karve,
        first: &NetworkNamespace,
        number: usize,
        server: Option<&str>,
        logs: &Path,
    ) -> Result<Self> {
        let node = format!("node-{number}");
        let mut create = cluster.karve(&["token", "create", &node]);
        if let Some(server) = server {
            create.args(["--server", server]);
        }
        let token = tools::output(&mut create)?;
        let token_file = cluster.scratch(&format!("{node}.join"));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&token_file)?;
        std::io::Write::write_all(&mut file, token.as_bytes())?;
        let netns = cluster.scratch(&format!("netns-{number}"));
        let mut worker = Self {
            process: None,
            namespace: NetworkNamespace::beside(first, &netns, number)?,
            binary: cluster.binary().to_owned(),
            data_dir: cluster.scratch(&node),
            name: format!("{}-{number}", cluster.name()),
            node,
            token: token_file,
            address: node_address(number),
            log: logs.join(format!("node-{number}.log")),
        };
        worker.up()?;
        Ok(worker)
    }

    /// Starts it, for the first time or again.
    pub fn up(&mut self) -> Result<()> {
        let mut command = self.karve(&["join"]);
        command
            .arg(&self.token)
            .args([
                "--node-ip",
                &self.address,
                "--eviction-hard",
                NO_PRESSURE,
                "--image-gc-high-threshold",
                "100",
            ])
            .env("KARVE_LOG", std::env::var("KARVE_LOG").unwrap_or("info".into()));
        self.process = Some(Process::start(&mut command, &self.log)?);
        Ok(())
    }

    pub fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Ends every process of the node at once: the agent, the supervisors and all containers.
    pub fn kill_everything(&mut self) -> Result<()> {
        // What is not there any more makes nothing new.
        self.process().context("the node does not run")?.crash();
        let network = fs::metadata(self.namespace.file())?.ino();
        for process in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let path = process.path();
            // Supervisors share the node's network; containers are in its cgroups.
            let shares_network = fs::metadata(path.join("ns/net")).is_ok_and(|found| found.ino() == network);
            let cgroups = fs::read_to_string(path.join("cgroup")).unwrap_or_default();
            if shares_network || cgroups.contains(&self.name) {
                // It may have ended by itself just now.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        Ok(())
    }

    pub fn import(&self, archive: &Path) -> Result<()> {
        let imported = tools::output(self.karve(&["image", "import"]).arg(archive));
        imported.map(drop).with_context(|| format!("on {}", self.node))
    }

    fn karve(&self, arguments: &[&str]) -> Command {
        let mut command = self.namespace.inside(&self.binary);
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--name", &self.name]);
        command
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.process.take());
        if self.data_dir.exists()
            && let Err(error) = run(self.karve(&["reset"]).stdout(Stdio::null()))
        {
            eprintln!("{error:#}");
        }
    }
}
