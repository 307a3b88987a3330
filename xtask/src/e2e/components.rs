//! Upstream's components on our API server.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::World;
use crate::cluster::{Karve, Kubectl};
use crate::peers;
use crate::process::Process;

const PATIENCE: Duration = Duration::from_secs(60);

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      containers: [{ name: web, image: none }]
"#;

/// Upstream's controller manager makes the pods of a Deployment and its scheduler finds no node for them.
pub fn upstream_controllers(world: &World) -> Result<()> {
    let mut setup = world.setup();
    setup.node = false;
    let cluster = Karve::start_server(&setup)?;
    let kubectl = cluster.kubectl()?;
    let names = ["kube-controller-manager", "kube-scheduler"].map(str::to_owned);
    let programs = peers::build(&names)?;
    let _running: Vec<Process> = programs
        .iter()
        .map(|program| start(world, &kubectl, program))
        .collect::<Result<_>>()?;
    kubectl.run_with(&["apply", "-f", "-"], DEPLOYMENT)?;
    let reasons = r#"jsonpath={.items[*].status.conditions[?(@.type=="PodScheduled")].reason}"#;
    let query = ["get", "pods", "-l", "app=web", "-o", reasons];
    let seen = kubectl.until("upstream's verdict on two pods", PATIENCE, &query, |reasons| {
        reasons.split_whitespace().count() == 2
    });
    let seen = seen.with_context(|| format!("see the logs in {}", world.logs.display()))?;
    ensure!(seen == "Unschedulable Unschedulable", "the pods are {seen}");
    kubectl.run(&["delete", "deployment/web"])?;
    let gone = kubectl.until(
        "garbage collection",
        PATIENCE,
        &["get", "pods", "-o", "name"],
        str::is_empty,
    );
    gone.map(drop)
}

fn start(world: &World, kubectl: &Kubectl, program: &PathBuf) -> Result<Process> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = kubectl.inside(program);
    for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
        command.arg(format!("--{flag}={}", kubectl.kubeconfig.display()));
    }
    Process::start(&mut command, &world.logs.join(format!("{name}.log")))
}
