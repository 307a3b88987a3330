//! Start, first Deployment and idle memory, ours beside upstream's.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::BenchArgs;
use super::api::{Api, is};
use super::figures::{Figures, Side, write_section};
use super::sides::{Cluster, StartTimes};
use crate::cluster::Setup;
use crate::signals;
use crate::tools;

/// What a cluster is given to settle before it is called idle.
const SETTLE: Duration = Duration::from_secs(10);
/// How long it is watched then.
const IDLE: Duration = Duration::from_secs(10);
/// Deployments and single pods per round.
const REPEATS: usize = 3;
const BURST: usize = 30;

pub fn run(setup: &Setup, args: &BenchArgs) -> Result<()> {
    let rounds = args.rounds;
    let mut figures = Figures::default();
    for round in 1..=rounds {
        let mut order = [Side::Ours, Side::Upstream];
        if round % 2 == 0 {
            order.reverse();
        }
        for side in order {
            println!("-- round {round} of {rounds}: {side:?}");
            measure(side, setup, &mut figures)?;
        }
    }
    let table = figures.table();
    print!("{table}");
    let content = format!(
        "## First light\n\n{table}\nMedian (least–most) of {rounds} rounds, alternating, on {} cores; `cargo xtask bench first-light`, commit {}, {}.
Both sides: TLS, RBAC, synced writes, one node, images present. Upstream's containerd runs before its clock starts. Memory is PSS of
all processes without the pods'. Deployments and pods are timed from the request to the watch event, through `kubectl proxy`.\n",
        std::thread::available_parallelism()?,
        tools::commit()?,
        tools::today(),
    );
    write_section("first-light", &content)
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
    workloads(side, &cluster.api(scratch.path())?, figures)?;
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
    pods(api, "warm", 1)?;
    for number in 1..=REPEATS {
        let took = pods(api, &format!("one{number}"), 1)?;
        figures.add("create pod → Ready", "ms", side, milliseconds(took));
    }
    figures.add(
        "create 30 pods → all Ready",
        "ms",
        side,
        milliseconds(pods(api, "burst", BURST)?),
    );
    Ok(())
}

fn milliseconds(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

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

/// Creates so many pause pods at once; the time until the last one is Ready. They are gone when this returns.
fn pods(api: &Api, prefix: &str, count: usize) -> Result<Duration> {
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    let mut watch = api.watch(PODS)?;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let requests: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| api.create(PODS, &pause(name))))
            .collect();
        requests
            .into_iter()
            .try_for_each(|request| request.join().expect("the request does not panic"))
    })?;
    let mut ready = std::collections::HashSet::new();
    let took = watch.until(begun, |object, _| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if is(object, "Ready") && name.starts_with(prefix) {
            ready.insert(name.to_owned());
        }
        ready.len() == count
    })?;
    for name in &names {
        api.delete(&format!("{PODS}/{name}"))?;
    }
    let mut gone = 0;
    watch.until(begun, |_, deleted| {
        gone += usize::from(deleted);
        gone == count
    })?;
    Ok(took)
}

fn pause(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": true,
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "imagePullPolicy": "IfNotPresent",
            }],
        },
    })
}

/// An object, or a pod of the workload, of this name.
fn named(object: &Value, name: &str) -> bool {
    object["metadata"]["name"]
        .as_str()
        .is_some_and(|found| found.starts_with(name))
}
