//! Upstream's kubectl, pointed at one cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::namespace;
use crate::signals::wait_for;

#[derive(Clone)]
pub struct Kubectl {
    pub program: PathBuf,
    pub kubeconfig: PathBuf,
    /// The network namespace that the cluster is in.
    pub network: Option<PathBuf>,
}

impl Kubectl {
    /// Any program, where it can reach the cluster.
    pub fn inside(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match &self.network {
            Some(network) => namespace::enter(network, program),
            None => Command::new(program),
        }
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.inside(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        command
    }

    /// Runs to the end and returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        finish(arguments, self.output(arguments, None)?)
    }

    /// The same with a manifest on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        finish(arguments, self.output(arguments, Some(input))?)
    }

    /// The value at a JSON path, empty when it is absent.
    pub fn value(&self, object: &str, path: &str) -> Result<String> {
        self.run(&["get", object, "-o", &format!("jsonpath={path}")])
    }

    /// Waits until the command succeeds and its output is accepted.
    pub fn until(
        &self,
        what: &str,
        patience: Duration,
        arguments: &[&str],
        accept: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let mut last = String::new();
        let answer = wait_for(what, patience, || match self.run(arguments) {
            Ok(output) if accept(&output) => Some(output),
            Ok(output) => {
                last = output;
                None
            }
            Err(error) => {
                last = format!("{error:#}");
                None
            }
        });
        answer.with_context(|| format!("kubectl {} last said: {}", arguments.join(" "), last.trim()))
    }

    fn output(&self, arguments: &[&str], input: Option<&str>) -> Result<Output> {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
            std::io::Write::write_all(&mut pipe, input.as_bytes())?;
        }
        Ok(child.wait_with_output()?)
    }
}

fn finish(arguments: &[&str], output: Output) -> Result<String> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("kubectl {}: {}", arguments.join(" "), complaint.trim());
    }
    Ok(printed)
}

/// The kubectl of the pinned version.
pub fn pinned() -> Result<PathBuf> {
    let paths = crate::peers::build(&["kubectl".to_owned()])?;
    paths.into_iter().next().context("build.sh named no kubectl")
}

impl Kubectl {
    pub fn new(kubeconfig: &Path, network: Option<&Path>) -> Result<Self> {
        Ok(Self {
            program: pinned()?,
            kubeconfig: kubeconfig.to_owned(),
            network: network.map(Path::to_owned),
        })
    }
}
