//! Start, first Deployment and idle memory, ours beside upstream's.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::Bench;
use super::api::{Api, is};
use super::figures::{Figures, Side};
use super::pods::{self, PODS};
use super::sides::{Cluster, StartTimes};
use crate::cluster::Setup;
use crate::{dist, peers, signals};

/// What a cluster is given to settle before it is called idle.
const SETTLE: Duration = Duration::from_secs(10);
/// How long it is watched then.
const IDLE: Duration = Duration::from_secs(10);
/// Deployments and single pods per round.
const REPEATS: usize = 3;
const BURST: usize = 30;

pub fn run(bench: &Bench<'_>) -> Result<()> {
    let mut figures = bench.alternate(|side, figures| measure(side, &bench.setup, figures))?;
    figures.add(SIZE, "MB", Side::Ours, dist::megabytes(&bench.setup.binary)?);
    figures.add(SIZE, "MB", Side::Upstream, upstream_megabytes()?);
    bench.publish(
        "first-light",
        "First light",
        &figures,
        "Both sides: TLS, RBAC, synced writes, one node, images present, all cores. Upstream's containerd runs before its clock\n\
         starts. Memory is PSS of all processes without the pods'. Deployments and pods are timed from the request to the watch\n\
         event, through `kubectl proxy`. Memory per pod is that of 30 pause pods without their own processes: PSS of supervisors\n\
         or shims, of the processes that hold the pods' namespaces, and what the other components grew by.",
    )
}

const SIZE: &str = "size of all programs";

/// What upstream's side of the table starts, but for Debian's containerd, its shim and runc.
fn upstream_megabytes() -> Result<f64> {
    let names = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "coredns",
    ];
    let programs = peers::build(&names.map(str::to_owned))?;
    programs.iter().map(|path| dist::megabytes(path)).sum()
}

fn measure(side: Side, setup: &Setup, figures: &mut Figures) -> Result<()> {
    let (mut cluster, first) = match side {
        Side::Ours => Cluster::start_ours(setup)?,
        Side::Upstream => Cluster::start_upstream()?,
    };
    let StartTimes { readyz, node_ready } = first;
    figures.add("first start → /readyz", "ms", side, readyz);
    figures.add("first start → node Ready", "ms", side, node_ready);
    idle(side, &mut cluster, figures)?;
    let scratch = tempfile::tempdir()?;
    let api = cluster.api(scratch.path())?;
    workloads(side, &api, figures)?;
    figures.add(
        "memory per pod beyond its processes",
        "MB",
        side,
        pods::memory_each(&mut cluster, &api)?,
    );
    drop(api);
    let StartTimes { readyz, node_ready } = cluster.restart()?;
    figures.add("restart → /readyz", "ms", side, readyz);
    figures.add("restart → node Ready", "ms", side, node_ready);
    Ok(())
}

fn idle(side: Side, cluster: &mut Cluster, figures: &mut Figures) -> Result<()> {
    signals::sleep(SETTLE)?;
    let before = cluster.usage()?;
    signals::sleep(IDLE)?;
    let after = cluster.usage()?;
    figures.add("idle memory", "MB", side, after.pss_mb);
    let cpu = (after.cpu_ms - before.cpu_ms) / IDLE.as_secs_f64();
    figures.add("idle CPU per second", "ms", side, cpu);
    Ok(())
}

fn workloads(side: Side, api: &Api, figures: &mut Figures) -> Result<()> {
    // The first one of each warms what a running cluster has warm.
    deployment(api, 0)?;
    for number in 1..=REPEATS {
        figures.add(
            "apply Deployment → Available",
            "ms",
            side,
            milliseconds(deployment(api, number)?),
        );
    }
    pods::start(api, "warm", 1, pods::pause)?;
    for number in 1..=REPEATS {
        let took = pods::start(api, &format!("one{number}"), 1, pods::pause)?;
        figures.add("create pod → Ready", "ms", side, milliseconds(took));
    }
    for number in 1..=REPEATS {
        let took = pods::start(api, &format!("probed{number}"), 1, pods::probed)?;
        figures.add(
            "create pod with an HTTP probe every second → Ready",
            "ms",
            side,
            milliseconds(took),
        );
    }
    let took = pods::start(api, "burst", BURST, pods::pause)?;
    figures.add("create 30 pods → all Ready", "ms", side, milliseconds(took));
    Ok(())
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(api: &Api, number: usize) -> Result<Duration> {
    let name = format!("web{number}");
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "web", "image": "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
                    "imagePullPolicy": "IfNotPresent", "args": ["netexec", "--http-port", "8080"],
                    "readinessProbe": { "httpGet": { "path": "/hostname", "port": 8080 }, "periodSeconds": 1 },
                }],
            } },
        },
    });
    let mut watch = api.watch(DEPLOYMENTS)?;
    let begun = Instant::now();
    api.create(DEPLOYMENTS, &object)?;
    let took = watch.until(begun, |object, _| named(object, &name) && is(object, "Available"))?;
    let mut gone = api.watch(PODS)?;
    api.delete(&format!("{DEPLOYMENTS}/{name}"))?;
    gone.until(begun, |object, deleted| deleted && named(object, &name))?;
    Ok(took)
}

/// An object, or a pod of the workload, of this name.
fn named(object: &Value, name: &str) -> bool {
    object["metadata"]["name"]
        .as_str()
        .is_some_and(|found| found.starts_with(name))
}
