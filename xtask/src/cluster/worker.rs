//! Another node of a cluster: in its own network namespace, joined by a bootstrap token as another machine would be.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;

use super::{Karve, NO_PRESSURE};
use crate::namespace::{NetworkNamespace, node_address};
use crate::peers;
use crate::process::Process;
use crate::tools::{self, run};

/// What `karve token create` prints.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invitation {
    pub server: String,
    pub token: String,
    pub ca_hash: String,
}

/// Taken down when dropped. The fields stand in the order of taking down.
pub struct Worker {
    process: Option<Process>,
    namespace: NetworkNamespace,
    binary: PathBuf,
    data_dir: PathBuf,
    /// Different for each node, since cgroups and directories of the machine carry it.
    name: String,
    pub node: String,
    invitation: Invitation,
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
        let mut create = cluster.karve(&["token", "create", "-o", "json"]);
        if let Some(server) = server {
            create.args(["--server", server]);
        }
        let invitation = serde_json::from_str(&tools::output(&mut create)?)?;
        let netns = cluster.scratch(&format!("netns-{number}"));
        let mut worker = Self {
            process: None,
            namespace: NetworkNamespace::beside(first, &netns, number)?,
            binary: cluster.binary().to_owned(),
            data_dir: cluster.scratch(&node),
            name: format!("{}-{number}", cluster.name()),
            node,
            invitation,
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
            .args(self.invitation.arguments())
            .args([
                "--hostname-override",
                &self.node,
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

    /// Upstream's kubectl with the node's own rights, which asks for the node.
    pub fn kubectl(&self) -> Result<Command> {
        let program = peers::build(&["kubectl".to_owned()])?;
        let program = program.first().context("build.sh did not name kubectl")?;
        let mut command = self.namespace.inside(program);
        command
            .arg("--kubeconfig")
            .arg(self.data_dir.join("kubeconfig"))
            .args(["get", "node", &self.node]);
        Ok(command)
    }

    pub fn invitation(&self) -> &Invitation {
        &self.invitation
    }

    /// What another machine hears that joins under this name; it must be refused.
    pub fn refusal(&self, invitation: &Invitation, node: &str) -> Result<String> {
        let data_dir = tempfile::tempdir()?;
        let mut command = self.namespace.inside(&self.binary);
        command
            .arg("join")
            .args(invitation.arguments())
            .args(["--hostname-override", node, "--name", "refused", "--data-dir"])
            .arg(data_dir.path());
        let output = command.output()?;
        ensure!(!output.status.success(), "a machine joined that must not");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
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

    pub fn karve(&self, arguments: &[&str]) -> Command {
        let mut command = self.namespace.inside(&self.binary);
        command
            .args(arguments)
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--name", &self.name]);
        command
    }
}

impl Invitation {
    fn arguments(&self) -> [&str; 5] {
        [&self.server, "--token", &self.token, "--ca-hash", &self.ca_hash]
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
