//! Pods to measure: started, timed and weighed.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};

use super::api::{Api, is};
use super::sides::{Cluster, megabytes};
use crate::signals;

pub const PODS: &str = "/api/v1/namespaces/default/pods";

/// How many pods are weighed together.
const WEIGHED: usize = 30;
/// What memory is given to settle.
const SETTLE: Duration = Duration::from_secs(2);
const SETTLE_TRIES: usize = 8;
const SETTLED_MB: f64 = 1.0;
/// An argument that the image's program does not look at, by which its process is known.
const WORKLOAD: &str = "workload";

/// Creates so many pods at once; the time until the last one is Ready. They are gone when this returns.
pub fn start(api: &Api, prefix: &str, count: usize, pod: fn(&str) -> Value) -> Result<Duration> {
    let (took, names) = run(api, prefix, count, pod)?;
    remove(api, &names)?;
    Ok(took)
}

/// What a pod costs the node beside its own process.
pub fn memory_each(cluster: &mut Cluster, api: &Api) -> Result<f64> {
    let before = settled(cluster)?;
    let (_, names) = run(api, "weighed", WEIGHED, pause)?;
    let after = settled(cluster)?;
    remove(api, &names)?;
    Ok((after - before) / WEIGHED as f64)
}

pub fn pause(name: &str) -> Value {
    let container = json!({
        "name": "pause", "image": "registry.k8s.io/pause:3.10.2", "imagePullPolicy": "IfNotPresent",
        "command": ["/pause"], "args": [WORKLOAD],
    });
    pod(name, &container)
}

/// One that answers HTTP, and is asked every second whether it is ready.
pub fn probed(name: &str) -> Value {
    let container = json!({
        "name": "web", "image": "registry.k8s.io/e2e-test-images/agnhost:2.63.0", "imagePullPolicy": "IfNotPresent",
        "args": ["netexec", "--http-port", "8080"],
        "readinessProbe": { "httpGet": { "path": "/hostname", "port": 8080 }, "periodSeconds": 1 },
    });
    pod(name, &container)
}

fn pod(name: &str, container: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name },
        "spec": {
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": true, "containers": [container],
        },
    })
}

fn run(api: &Api, prefix: &str, count: usize, pod: fn(&str) -> Value) -> Result<(Duration, Vec<String>)> {
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    let mut watch = api.watch(PODS)?;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let requests: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| api.create(PODS, &pod(name))))
            .collect();
        requests.into_iter().try_for_each(|request| {
            request
                .join()
                .map_err(|_| anyhow!("a thread that creates a pod panicked"))?
        })
    })?;
    let mut ready = HashSet::new();
    let took = watch.until(begun, |object, _| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if is(object, "Ready") && name.starts_with(prefix) {
            ready.insert(name.to_owned());
        }
        ready.len() == count
    })?;
    Ok((took, names))
}

fn remove(api: &Api, names: &[String]) -> Result<()> {
    let mut watch = api.watch(PODS)?;
    for name in names {
        api.delete(&format!("{PODS}/{name}"))?;
    }
    let mut gone = 0;
    watch.until(Instant::now(), |_, deleted| {
        gone += usize::from(deleted);
        gone == names.len()
    })?;
    Ok(())
}

/// The weight when it no longer changes: what goes with earlier pods may take a while.
fn settled(cluster: &Cluster) -> Result<f64> {
    let mut last = weigh(cluster)?;
    for _ in 0..SETTLE_TRIES {
        signals::sleep(SETTLE)?;
        let now = weigh(cluster)?;
        if (now - last).abs() < SETTLED_MB {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

/// PSS of everything that belongs to a cluster but the workload itself, in MB.
fn weigh(cluster: &Cluster) -> Result<f64> {
    let marks = cluster.marks()?;
    let mut total = 0.0;
    let mut found = 0;
    for entry in fs::read_dir("/proc")?.flatten() {
        let dir = entry.path();
        let read = |name: &str| fs::read(dir.join(name)).unwrap_or_default();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let places = format!("{command}\n{}", String::from_utf8_lossy(&read("cgroup")));
        let belongs = marks.iter().any(|mark| places.contains(mark.as_str()));
        if !belongs || command.trim_end().ends_with(WORKLOAD) || dir.ends_with(std::process::id().to_string()) {
            continue;
        }
        // A process that has just ended weighs nothing.
        if let Ok(pss) = megabytes(&String::from_utf8_lossy(&read("smaps_rollup")), "Pss:") {
            total += pss;
            found += 1;
        }
    }
    ensure!(found > 0, "no process of the cluster was found");
    Ok(total)
}
