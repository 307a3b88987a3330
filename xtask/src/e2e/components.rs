//! Components in processes of their own: upstream's on our API server, and ours apart from each other.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{World, footprint};
use crate::cluster::{Karve, Kubectl, NO_PRESSURE, Runtime};
use crate::process::Process;
use crate::signals::wait_for;
use crate::{peers, tools};

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
    setup.nodes = 0;
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

const SLEEPER: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{ name: web, image: "registry.k8s.io/e2e-test-images/agnhost:2.63.0", args: [pause] }]
"#;

/// Every stage that a trace has, whoever passed it.
const STAGES: &[&str] = &[
    "apiserver/received",
    "apiserver/stored",
    "deployment-controller/replicaset-created",
    "replicaset-controller/pod-created",
    "scheduler/decided",
    "scheduler/bound",
    "kubelet/observed",
    "kubelet/sandbox-ready",
    "kubelet/container-started",
    "kubelet/ready",
];

/// Those that are marked when they begin to matter to others, in the order of the flow.
const CAUSES: &[&str] = &[
    "apiserver/received",
    "apiserver/stored",
    "scheduler/decided",
    "kubelet/observed",
    "kubelet/sandbox-ready",
    "kubelet/container-started",
    "kubelet/ready",
];

/// API server, controllers, scheduler and kubelet in four processes: `karve trace` joins what all of them know.
pub fn apart(world: &World) -> Result<()> {
    let mut setup = world.setup();
    setup.runtime = Runtime::Containerd;
    let mut cluster = Karve::prepare(&setup)?;
    cluster.launch_server()?;
    for archive in peers::images(&["agnhost"])? {
        cluster.import(&archive)?;
    }
    wait_for("the kubeconfig", PATIENCE, || {
        cluster.kubeconfig().exists().then_some(())
    })?;
    let kubectl = cluster.kubectl()?;
    let running = [
        own(world, &cluster, &["kube-controller-manager"])?,
        own(world, &cluster, &["kube-scheduler"])?,
        own(world, &cluster, &kubelet_flags(&cluster)?)?,
    ];
    cluster.wait_ready()?;
    kubectl.run_with(&["apply", "-f", "-"], SLEEPER)?;
    let ready = r"jsonpath={.status.readyReplicas}";
    kubectl.until("two pods", PATIENCE, &["get", "deployment/web", "-o", ready], |ready| {
        ready == "2"
    })?;
    let traced = wait_for_trace(&cluster).and_then(|trace| check_order(&trace));
    kubectl.run(&["delete", "deployment/web"])?;
    let gone = ["get", "pods", "-o", "name"];
    kubectl.until("the end of the pods", PATIENCE, &gone, str::is_empty)?;
    // A kubelet deletes the object first and tidies up then.
    let name = cluster.name();
    let tidied = wait_for("the end of the pods' cgroups", PATIENCE, || {
        footprint::remove_cgroups(&name).ok()
    });
    drop(running);
    traced.and(tidied)
}

/// What one process does because of another's work comes later. (A mark of work that is made when its answer has come
/// back may well be later than what others did about it.)
fn check_order(trace: &str) -> Result<()> {
    println!("   {}", trace.lines().next().unwrap_or_default());
    let stages: Vec<&str> = trace.lines().filter_map(stage).collect();
    let first = |wanted: &&str| stages.iter().position(|stage| stage == wanted);
    let order: Vec<usize> = CAUSES.iter().filter_map(first).collect();
    ensure!(
        order.is_sorted(),
        "the stages are not in the order of the flow: {trace}"
    );
    Ok(())
}

/// Marks arrive a moment after the pods are Ready.
fn wait_for_trace(cluster: &Karve) -> Result<String> {
    let mut last = String::new();
    let complete = wait_for("every stage in the trace", PATIENCE, || {
        last = tools::output(&mut cluster.karve(&["trace", "deployment/web"])).unwrap_or_default();
        let has = |wanted: &&str| last.lines().filter_map(stage).any(|stage| stage == *wanted);
        STAGES.iter().all(has).then(|| last.clone())
    });
    complete.with_context(|| format!("the trace is:\n{last}"))
}

/// The stage that a line of a trace shows, if it shows one with its time.
fn stage(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (_, unit) = (words.next()?, words.next()?);
    (unit == "ms").then(|| words.nth(1)).flatten()
}

fn own(world: &World, cluster: &Karve, arguments: &[impl AsRef<str>]) -> Result<Process> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let log = world.logs.join(format!("{}.log", arguments[0]));
    Process::start(&mut cluster.karve(&arguments), &log)
}

fn kubelet_flags(cluster: &Karve) -> Result<Vec<String>> {
    let endpoint = cluster.runtime_endpoint().context("the cluster has no containerd")?;
    let path = |path: PathBuf| path.display().to_string();
    let flags = [
        ("--kubeconfig", path(cluster.kubeconfig())),
        ("--container-runtime-endpoint", endpoint),
        ("--root-dir", path(cluster.scratch("kubelet"))),
        ("--pod-logs-dir", path(cluster.scratch("logs"))),
        ("--cgroup-root", format!("/{}", cluster.name())),
        ("--eviction-hard", NO_PRESSURE.to_owned()),
        ("--image-gc-high-threshold", "100".to_owned()),
    ];
    let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    Ok(std::iter::once("kubelet".to_owned()).chain(flags).collect())
}
