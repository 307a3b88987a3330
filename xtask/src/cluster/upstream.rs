//! Upstream's own cluster of one node, by `interop/upstream-cluster.sh`.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::karve::Store;
use super::kubectl::Kubectl;
use super::workdir::WorkDir;
use crate::tools::{self, root, run};
use crate::{process, signals};

/// Whose implementation of a component runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Ours,
    Upstream,
}

/// A cluster in which Karve stands in for some components.
pub struct Mixture<'a> {
    pub karve: &'a Path,
    pub ours: &'a [&'a str],
    pub store: Store,
}

/// How many lines of each log a message shows.
const LAST_WORDS: usize = 3;

pub struct Upstream {
    facts: HashMap<String, String>,
    dir: WorkDir,
}

impl Upstream {
    pub fn start(images: &[&str]) -> Result<Self> {
        Self::launch("start", |command| command.env("IMAGES", images.join(" ")))
    }

    /// A store, an API server and some components, without a node.
    pub fn start_control(components: &[&str]) -> Result<Self> {
        Self::launch("start-control", |command| command.args(components))
    }

    /// The same with components of ours.
    pub fn start_mixed(images: &[&str], mixture: &Mixture<'_>) -> Result<Self> {
        Self::launch("start", |command| {
            if mixture.store == Store::Embedded {
                command.env("STORE", "embedded");
            }
            command
                .env("IMAGES", images.join(" "))
                .env("OURS", mixture.ours.join(" "))
                .env("KARVE", mixture.karve)
        })
    }

    fn launch(verb: &str, with: impl FnOnce(&mut Command) -> &mut Command) -> Result<Self> {
        let mut cluster = Self {
            facts: HashMap::new(),
            dir: WorkDir::create()?,
        };
        let printed = process::output(with(&mut cluster.script(verb)));
        // An interrupt needs no explanation.
        signals::check()?;
        cluster.note(&printed.with_context(|| cluster.last_words())?);
        Ok(cluster)
    }

    /// Ends one component of the running cluster and starts the other side's in its place.
    pub fn swap(&self, component: &str, to: Side) -> Result<()> {
        let side = match to {
            Side::Ours => "ours",
            Side::Upstream => "upstream",
        };
        run(self.script("swap").args([component, side]))
    }

    /// Ends one component, or the runtime, and starts the same one again.
    pub fn bounce(&self, component: &str) -> Result<()> {
        run(self.script("bounce").arg(component))
    }

    /// A second node, which can be lost.
    pub fn add_node(&self) -> Result<()> {
        run(&mut self.script("add-node"))
    }

    /// The second node vanishes as a machine does that loses its power.
    pub fn lose_node(&self) -> Result<()> {
        run(&mut self.script("lose-node"))
    }

    /// Where the components write what they have to say.
    pub fn logs(&self) -> PathBuf {
        self.path("logs")
    }

    /// The ends of the components' logs, for a message about what went wrong.
    pub fn last_words(&self) -> String {
        let entries = std::fs::read_dir(self.logs()).into_iter().flatten().flatten();
        let mut logs: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| path.is_file())
            .collect();
        logs.sort();
        let ends = logs.iter().map(|log| {
            let name = log.file_name().unwrap_or_default().to_string_lossy();
            format!("{name} ends:\n{}\n", tools::last_lines(log, LAST_WORDS))
        });
        ends.collect()
    }

    /// Ends everything but containerd and its pods and starts it again.
    pub fn restart(&mut self) -> Result<()> {
        let printed = process::output(&mut self.script("restart"))?;
        self.note(&printed);
        Ok(())
    }

    fn note(&mut self, printed: &str) {
        let pairs = printed.lines().filter_map(|line| line.split_once(' '));
        self.facts
            .extend(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// A time that the last start printed.
    pub fn milliseconds(&self, name: &str) -> Result<f64> {
        let value = self
            .facts
            .get(name)
            .with_context(|| format!("the start did not print {name}"))?;
        value.parse().with_context(|| format!("{name} is {value:?}"))
    }

    /// All processes but those of pods.
    pub fn processes(&self) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for dir in ["own/pids", "cri/own/pids"] {
            let entries = std::fs::read_dir(self.path(dir)).into_iter().flatten();
            for entry in entries {
                let text = std::fs::read_to_string(entry?.path())?;
                pids.push(text.split(' ').next().unwrap_or_default().parse()?);
            }
        }
        Ok(pids)
    }

    /// What processes of pods can be known by, too: the directory, and the cgroup that is named by its checksum.
    pub fn marks(&self) -> Result<Vec<String>> {
        let dir = self.cluster_dir().display().to_string();
        let mut command = Command::new("sh");
        command.args(["-c", "printf %s \"$0\" | sha256sum | cut -c1-8", &dir]);
        Ok(vec![format!("/kv{}", tools::output(&mut command)?.trim()), dir])
    }

    pub fn kubectl(&self) -> Result<Kubectl> {
        Kubectl::new(&self.kubeconfig(), Some(&self.network()))
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path("admin.conf")
    }

    pub fn network(&self) -> PathBuf {
        self.path("netns")
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.cluster_dir().join(name)
    }

    fn cluster_dir(&self) -> PathBuf {
        Path::new(self.dir.path()).join("up")
    }

    fn script(&self, verb: &str) -> Command {
        let mut command = Command::new(root().join("interop/upstream-cluster.sh"));
        command.arg(verb).arg(self.cluster_dir());
        // What an interrupt at the terminal reached could not take the cluster down.
        command.process_group(0);
        command
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Err(error) = run(&mut self.script("stop")) {
            eprintln!("{error:#}");
        }
    }
}
