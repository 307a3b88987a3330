//! The load generator of `bench/`, which keeps step with us: it prints the numbers of a stage and waits.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::pin::{self, Role};
use super::sides::{Cluster, Usage, usage_of};
use crate::namespace;

/// How a load reaches a cluster.
pub struct Access {
    pub server: String,
    pub authority: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The authority's own key, for certificates of hollow nodes.
    pub authority_key: PathBuf,
    pub network: Option<PathBuf>,
}

pub struct Load {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The numbers of a stage, and what the server used meanwhile.
#[derive(Debug, Default)]
pub struct Outcome {
    pub numbers: HashMap<String, f64>,
    pub before: Usage,
    pub after: Usage,
    /// How busy the server and the generator were, in percent of a core. What is near 100 was the limit.
    pub server_busy: f64,
    pub load_busy: f64,
}

impl Load {
    /// Starts one where it reaches the cluster, up to its first stage.
    pub fn start(generator: &Path, access: &Access, arguments: &[String]) -> Result<Self> {
        let mut command = match &access.network {
            Some(network) => namespace::enter(network, generator),
            None => Command::new(generator),
        };
        command.args(["--server", &access.server]);
        for (flag, path) in [
            ("--ca", &access.authority),
            ("--cert", &access.certificate),
            ("--key", &access.key),
            ("--ca-key", &access.authority_key),
        ] {
            command.arg(flag).arg(path);
        }
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pin::on(Role::Load, || {
            command.spawn().with_context(|| format!("cannot run {command:?}"))
        })?;
        let output = child.stdout.take().context("the output was piped")?;
        let mut load = Self {
            input: child.stdin.take(),
            output: BufReader::new(output),
            child,
        };
        load.stage()?;
        Ok(load)
    }

    /// Lets it go on, up to the end of its next stage.
    pub fn next(&mut self, cluster: &mut Cluster) -> Result<Outcome> {
        cluster.forget_peak();
        let (before, own_before) = (cluster.usage()?, usage_of(self.child.id())?);
        let begun = Instant::now();
        self.input.as_mut().context("the load has ended")?.write_all(b"\n")?;
        let numbers = self.stage()?;
        let span_ms = begun.elapsed().as_secs_f64() * 1e3;
        let (after, own_after) = (cluster.usage()?, usage_of(self.child.id())?);
        let busy = |before: Usage, after: Usage| (after.cpu_ms - before.cpu_ms) / span_ms * 100.0;
        Ok(Outcome {
            numbers,
            before,
            after,
            server_busy: busy(before, after),
            load_busy: busy(own_before, own_after),
        })
    }

    fn stage(&mut self) -> Result<HashMap<String, f64>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() {
            let status = self.child.wait()?;
            ensure!(false, "the load failed with {status}");
        }
        serde_json::from_str(&line).with_context(|| format!("the load printed {line:?}"))
    }
}

impl Outcome {
    pub fn number(&self, name: &str) -> Result<f64> {
        let found = self.numbers.get(name).copied();
        found.with_context(|| format!("the load gave no {name}"))
    }

    /// Processor time of the server per operation, in µs.
    pub fn cpu_each(&self) -> Result<f64> {
        Ok((self.after.cpu_ms - self.before.cpu_ms) * 1e3 / self.number("operations")?.max(1.0))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.input.take());
        // One that waits for our line ends by itself; one in the middle of a stage must be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
