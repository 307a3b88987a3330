//! The whole way: a Deployment and a Service from apply to traffic and back to nothing.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::World;
use crate::cluster::{Karve, Kubectl, Runtime, Store};
use crate::peers;
use crate::signals::wait_for;
use crate::tools::output;

const PATIENCE: Duration = Duration::from_secs(60);

/// An image that answers HTTP on 8080 with the pod's name at /hostname.
pub struct Image {
    name: &'static str,
    arguments: &'static str,
    /// What it prints when it starts.
    log: &'static str,
    /// A command in it and what that prints.
    exec: (&'static [&'static str], &'static str),
    /// The archive it comes from, unless it is there from the start.
    archive: Option<&'static str>,
}

pub const BUILTIN: Image = Image {
    name: "karve/builtin",
    arguments: r#"["serve", "--port", "8080"]"#,
    log: "is listening on port 8080",
    exec: (&["/karve", "--version"], "karve"),
    archive: None,
};

const AGNHOST: Image = Image {
    name: "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
    arguments: r#"["netexec", "--http-port", "8080"]"#,
    log: "Started HTTP server on port 8080",
    exec: (&["/agnhost", "--version"], "version"),
    archive: Some("agnhost"),
};

pub fn on(world: &World, runtime: Runtime, store: Store) -> Result<()> {
    let mut setup = world.setup();
    setup.runtime = runtime;
    setup.store = store;
    let cluster = Karve::start(&setup)?;
    // The built-in image is the embedded runtime's.
    let image = match runtime {
        Runtime::Embedded => BUILTIN,
        Runtime::Containerd => AGNHOST,
    };
    for archive in peers::images(&image.archive.into_iter().collect::<Vec<_>>())? {
        cluster.import(&archive)?;
    }
    let kubectl = cluster.kubectl()?;
    carry(&cluster, &kubectl, &image).with_context(|| cluster.last_words())
}

fn carry(cluster: &Karve, kubectl: &Kubectl, image: &Image) -> Result<()> {
    deploy(kubectl, image, 2)?;
    let trace = output(&mut cluster.karve(&["trace", "deployment/web"]))?;
    ensure!(
        trace.contains("kubelet/ready"),
        "the trace does not reach Ready: {trace}"
    );
    println!("   {}", trace.lines().next().unwrap_or_default());
    step("curl");
    let address = service_address(kubectl)?;
    answers(kubectl, &address, 2).context("through the Service")?;
    logs_and_exec(kubectl, image)?;

    step("scale");
    kubectl.run(&["scale", "deployment/web", "--replicas=3"])?;
    available(kubectl, 3)?;
    answers(kubectl, &address, 3).context("after scaling")?;

    step("rollout");
    let before = pods(kubectl)?;
    kubectl.run(&["set", "env", "deployment/web", "ROUND=2"])?;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=90s"])?;
    settled(kubectl, 3)?;
    let after = pods(kubectl)?;
    ensure!(
        before.is_disjoint(&after),
        "pods outlived the rollout: {before:?} {after:?}"
    );
    answers(kubectl, &address, 3).context("after the rollout")?;
    let history = kubectl.run(&["rollout", "history", "deployment/web"])?;
    ensure!(history.contains("\n2"), "the history has no second revision: {history}");

    step("delete");
    kubectl.run(&["delete", "deployment/web", "service/web", "--timeout=60s"])?;
    step("pods go");
    settled(kubectl, 0)?;
    step("gone");
    let gone = wait_for("the Service to answer no more", PATIENCE, || {
        fetch(kubectl, &address).is_err().then_some(())
    });
    gone.context("after the deletion")
}

/// Tells where a scenario is, and when.
pub fn step(name: &str) {
    static BEGUN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    println!("   {:>5.1} s {name}", BEGUN.elapsed().as_secs_f64());
}

/// Applies a Deployment and a Service of it and waits until it is available.
pub fn deploy(kubectl: &Kubectl, image: &Image, replicas: usize) -> Result<()> {
    step("apply");
    let begun = Instant::now();
    let manifest = manifest(image, replicas);
    kubectl.run_with(&["apply", "-f", "-"], &manifest)?;
    kubectl
        .run(&["wait", "--for=condition=Available", "deployment/web", "--timeout=60s"])
        .with_context(|| kubectl.run(&["get", "pods", "-o", "wide"]).unwrap_or_default())?;
    println!("   Available after {} ms", begun.elapsed().as_millis());
    available(kubectl, replicas)
}

fn manifest(image: &Image, replicas: usize) -> String {
    let Image { name, arguments, .. } = image;
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{ name: web }}
spec:
  replicas: {replicas}
  selector: {{ matchLabels: {{ app: web }} }}
  template:
    metadata: {{ labels: {{ app: web }} }}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: {name}
        imagePullPolicy: IfNotPresent
        args: {arguments}
        ports: [{{ containerPort: 8080, name: http }}]
        readinessProbe: {{ httpGet: {{ path: /hostname, port: http }}, periodSeconds: 1 }}
---
apiVersion: v1
kind: Service
metadata: {{ name: web }}
spec:
  selector: {{ app: web }}
  ports: [{{ port: 80, targetPort: http }}]
"#
    )
}

/// Waits until so many replicas are available.
pub fn available(kubectl: &Kubectl, replicas: usize) -> Result<()> {
    let query = ["get", "deployment/web", "-o", "jsonpath={.status.availableReplicas}"];
    let wanted = replicas.to_string();
    let what = format!("{replicas} available replicas");
    kubectl
        .until(&what, PATIENCE, &query, |count| count == wanted)
        .map(drop)
}

/// Waits until there are exactly so many pods, none of them on its way out.
pub fn settled(kubectl: &Kubectl, count: usize) -> Result<()> {
    let what = format!("exactly {count} pods");
    wait_for(&what, PATIENCE, || {
        pods(kubectl).ok().filter(|pods| pods.len() == count).map(drop)
    })
    .with_context(|| kubectl.run(&["get", "pods"]).unwrap_or_default())
}

pub fn pods(kubectl: &Kubectl) -> Result<BTreeSet<String>> {
    let names = kubectl.run(&[
        "get",
        "pods",
        "-l",
        "app=web",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ])?;
    Ok(names.split_whitespace().map(str::to_owned).collect())
}

pub fn service_address(kubectl: &Kubectl) -> Result<String> {
    let address = kubectl.value("service/web", "{.spec.clusterIP}")?;
    ensure!(!address.is_empty(), "the Service has no address");
    Ok(address)
}

/// The name of the pod that answers at an address.
pub fn fetch(kubectl: &Kubectl, address: &str) -> Result<String> {
    let port = if address.contains(':') { "" } else { ":80" };
    let url = format!("http://{address}{port}/hostname");
    let mut curl = kubectl.inside("curl");
    curl.args(["--silent", "--fail", "--max-time", "3", &url]);
    let answer = curl.output()?;
    ensure!(answer.status.success(), "curl {url}: {}", answer.status);
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

/// Asks until each of the pods has answered.
pub fn answers(kubectl: &Kubectl, address: &str, count: usize) -> Result<()> {
    let mut seen = BTreeSet::new();
    let expected = pods(kubectl)?;
    let all = wait_for(&format!("answers of {count} pods"), PATIENCE, || {
        seen.extend(fetch(kubectl, address));
        (seen.len() >= count).then_some(())
    });
    all.with_context(|| format!("{seen:?} answered of {expected:?}"))?;
    ensure!(
        seen.is_subset(&expected),
        "{seen:?} answered, but the pods are {expected:?}"
    );
    Ok(())
}

fn logs_and_exec(kubectl: &Kubectl, image: &Image) -> Result<()> {
    step("logs and exec");
    let pod = pods(kubectl)?.into_iter().next().context("there is no pod")?;
    let logs = kubectl.run(&["logs", &pod])?;
    ensure!(logs.contains(image.log), "the log does not say {:?}: {logs}", image.log);
    let (command, expected) = image.exec;
    let printed = kubectl.run(&[&["exec", &pod, "--"], command].concat())?;
    ensure!(printed.contains(expected), "{command:?} printed {printed:?}");
    Ok(())
}
