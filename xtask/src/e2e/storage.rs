//! What pods write to volumes of the StorageClass `local` is kept for as long as their claims are, and no longer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::World;
use super::workload::step;
use crate::cluster::{Karve, Kubectl};
use crate::peers;

const PATIENCE: Duration = Duration::from_secs(60);

/// Two pods with a claim each, and one whose claim ends with it.
const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: db }
spec:
  serviceName: db
  replicas: 2
  podManagementPolicy: Parallel
  selector: { matchLabels: { app: db } }
  template:
    metadata: { labels: { app: db } }
    spec:
      containers:
      - name: db
        image: registry.k8s.io/e2e-test-images/busybox:1.37.0-1
        imagePullPolicy: IfNotPresent
        command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
        volumeMounts: [{ name: data, mountPath: /data }]
  volumeClaimTemplates:
  - metadata: { name: data }
    spec:
      accessModes: [ReadWriteOncePod]
      storageClassName: local
      resources: { requests: { storage: 1Gi } }
---
apiVersion: v1
kind: Pod
metadata: { name: scratch }
spec:
  containers:
  - name: scratch
    image: registry.k8s.io/e2e-test-images/busybox:1.37.0-1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
    volumeMounts: [{ name: space, mountPath: /data }]
  volumes:
  - name: space
    ephemeral:
      volumeClaimTemplate:
        spec:
          accessModes: [ReadWriteOnce]
          resources: { requests: { storage: 1Gi } }
"#;

pub fn is_kept(world: &World) -> Result<()> {
    let mut cluster = Karve::start(&world.setup())?;
    for archive in peers::images(&["busybox"])? {
        cluster.import(&archive)?;
    }
    let kubectl = cluster.kubectl()?;
    carry(&mut cluster, &kubectl).with_context(|| {
        let seen = kubectl.run(&["get", "pods,pvc,pv,events"]).unwrap_or_default();
        format!("{seen}\n{}", cluster.last_words())
    })
}

fn carry(cluster: &mut Karve, kubectl: &Kubectl) -> Result<()> {
    step("claims and pods");
    kubectl.run_with(&["apply", "-f", "-"], MANIFEST)?;
    ready(kubectl, &["db-0", "db-1", "scratch"])?;
    for pod in ["db-0", "db-1", "scratch"] {
        write(kubectl, pod)?;
    }
    survives_pods_and_crashes(cluster, kubectl)?;
    ends_with_its_claim(cluster, kubectl)?;

    step("reset");
    cluster.remove()?;
    let data_dir = cluster.data_dir();
    ensure!(!data_dir.exists(), "{} was not removed", data_dir.display());
    Ok(())
}

fn survives_pods_and_crashes(cluster: &mut Karve, kubectl: &Kubectl) -> Result<()> {
    step("a pod is replaced");
    let deleted = kubectl.value("pod/db-0", "{.metadata.uid}")?;
    kubectl.run(&["delete", "pod", "db-0", "--timeout=60s"])?;
    let query = ["get", "pod/db-0", "-o", "jsonpath={.metadata.uid}"];
    kubectl.until("another pod db-0", PATIENCE, &query, |uid| uid != deleted)?;
    ready(kubectl, &["db-0"])?;
    still_there(kubectl, "db-0")?;

    step("karve is killed");
    cluster.process().context("karve does not run")?.crash();
    cluster.up()?;
    cluster.wait_ready()?;
    kubectl.run(&["delete", "pod", "db-1", "--timeout=60s"])?;
    ready(kubectl, &["db-1"])?;
    still_there(kubectl, "db-0")?;
    still_there(kubectl, "db-1")
}

fn ends_with_its_claim(cluster: &Karve, kubectl: &Kubectl) -> Result<()> {
    let removed = Volume::of(cluster, kubectl, "data-db-0")?;
    let retained = Volume::of(cluster, kubectl, "data-db-1")?;
    let scratch = Volume::of(cluster, kubectl, "scratch-space")?;

    step("a claim in use is deleted");
    kubectl.run(&["delete", "pvc", "data-db-0", "--wait=false"])?;
    let deleted_at = kubectl.value("pvc/data-db-0", "{.metadata.deletionTimestamp}")?;
    ensure!(!deleted_at.is_empty(), "the claim is not being deleted");
    still_there(kubectl, "db-0")?;
    ensure!(removed.directory.exists(), "the data was removed under a running pod");

    step("what nobody claims goes");
    let object = format!("pv/{}", retained.name);
    let retain = r#"{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}"#;
    kubectl.run(&["patch", &object, "-p", retain])?;
    kubectl.run(&["delete", "statefulset/db", "pod/scratch", "--timeout=60s"])?;
    kubectl.run(&["delete", "pvc", "data-db-1", "--timeout=60s"])?;
    removed.is_gone(kubectl)?;
    scratch.is_gone(kubectl)?;

    step("what is retained stays");
    let phase = ["get", &object, "-o", "jsonpath={.status.phase}"];
    kubectl.until("a Released volume", PATIENCE, &phase, |phase| phase == "Released")?;
    let kept = std::fs::read_to_string(retained.directory.join("file"))?;
    ensure!(kept == "by db-1\n", "the retained file says {kept:?}");
    Ok(())
}

/// A volume of the StorageClass, and where its node has it.
struct Volume {
    name: String,
    directory: PathBuf,
}

impl Volume {
    fn of(cluster: &Karve, kubectl: &Kubectl, claim: &str) -> Result<Volume> {
        let name = kubectl.value(&format!("pvc/{claim}"), "{.spec.volumeName}")?;
        ensure!(!name.is_empty(), "claim {claim} has no volume");
        let directory = cluster.data_dir().join("volumes").join(&name);
        ensure!(directory.exists(), "{} does not exist", directory.display());
        Ok(Volume { name, directory })
    }

    fn is_gone(&self, kubectl: &Kubectl) -> Result<()> {
        let query = ["get", "pv", "-o", "name"];
        let is_absent = |names: &str| !names.contains(&self.name);
        kubectl.until("the volume's object to go", PATIENCE, &query, is_absent)?;
        let directory = self.directory.display();
        ensure!(!self.directory.exists(), "{directory} outlived its volume");
        Ok(())
    }
}

fn ready(kubectl: &Kubectl, pods: &[&str]) -> Result<()> {
    let pods: Vec<String> = pods.iter().map(|pod| format!("pod/{pod}")).collect();
    for pod in &pods {
        let query = ["get", pod, "-o", "name"];
        kubectl.until("a pod", PATIENCE, &query, |_| true)?;
    }
    let mut arguments = vec!["wait", "--for=condition=Ready", "--timeout=60s"];
    arguments.extend(pods.iter().map(String::as_str));
    kubectl.run(&arguments).map(drop)
}

fn write(kubectl: &Kubectl, pod: &str) -> Result<()> {
    let script = format!("echo by {pod} > /data/file");
    kubectl.run(&["exec", pod, "--", "sh", "-c", &script]).map(drop)
}

fn still_there(kubectl: &Kubectl, pod: &str) -> Result<()> {
    let found = kubectl.run(&["exec", pod, "--", "cat", "/data/file"])?;
    ensure!(found == format!("by {pod}\n"), "the file of {pod} says {found:?}");
    Ok(())
}
