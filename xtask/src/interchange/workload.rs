//! What every cluster carries: one of each of the usual controllers' objects, and a Service in front.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::kinds::Kinds;
use crate::cluster::Kubectl;
use crate::e2e::workload::{fetch, service_address};
use crate::signals::{self, wait_for};

/// A leader that was killed is waited for; the longest lease is fifteen seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a swapped component is watched for restarts it should not cause: longer than a kubelet takes to look at
/// every pod, and a new leader to begin.
const QUIET: Duration = Duration::from_secs(20);

const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web, kept: "yes" } }
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: web
        image: registry.k8s.io/e2e-test-images/agnhost:2.63.0
        imagePullPolicy: IfNotPresent
        args: ["netexec", "--http-port", "8080"]
        ports: [{ containerPort: 8080, name: http }]
        readinessProbe: { httpGet: { path: /hostname, port: http }, periodSeconds: 1 }
---
apiVersion: v1
kind: Service
metadata: { name: web }
spec:
  selector: { app: web }
  ports: [{ port: 80, targetPort: http }]
"#;

const STATEFUL_SET: &str = r#"
---
apiVersion: v1
kind: Service
metadata: { name: db }
spec:
  clusterIP: None
  selector: { app: db }
  ports: [{ port: 80 }]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: db }
spec:
  serviceName: db
  replicas: 2
  selector: { matchLabels: { app: db } }
  template:
    metadata: { labels: { app: db, kept: "yes" } }
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - { name: db, image: "registry.k8s.io/e2e-test-images/agnhost:2.63.0", imagePullPolicy: IfNotPresent, args: [pause] }
"#;

const DAEMON_SET: &str = r#"
---
apiVersion: apps/v1
kind: DaemonSet
metadata: { name: agent }
spec:
  selector: { matchLabels: { app: agent } }
  template:
    metadata: { labels: { app: agent, kept: "yes" } }
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - { name: agent, image: "registry.k8s.io/e2e-test-images/agnhost:2.63.0", imagePullPolicy: IfNotPresent, args: [pause] }
"#;

/// By whom and how often each container was started, and every revision of a template.
#[derive(Debug, PartialEq)]
pub struct Identity {
    containers: BTreeSet<String>,
    revisions: BTreeSet<String>,
}

pub struct Workload {
    kubectl: Kubectl,
    /// What there is beside the Deployment and its Service.
    kinds: Kinds,
    /// Makes names and values that were not there before.
    round: Cell<usize>,
}

impl Workload {
    pub fn apply(kubectl: Kubectl, kinds: Kinds) -> Result<Self> {
        let mut manifest = MANIFEST.to_owned();
        for (kind, more) in [("StatefulSet", STATEFUL_SET), ("DaemonSet", DAEMON_SET)] {
            if kinds.contains(kind) {
                manifest.push_str(more);
            }
        }
        kubectl.run_with(&["apply", "-f", "-"], &manifest)?;
        let round = Cell::new(0);
        Ok(Self { kubectl, kinds, round })
    }

    /// Waits until everything is as its objects say and the Service answers from every pod.
    pub fn settle(&self) -> Result<()> {
        self.status("deployment/web", "{.status.availableReplicas}", "2")?;
        if self.kinds.contains("StatefulSet") {
            self.status("statefulset/db", "{.status.readyReplicas}", "2")?;
        }
        if self.kinds.contains("DaemonSet") {
            self.status("daemonset/agent", "{.status.numberReady}", "1")?;
        }
        self.answered_by(2)
    }

    pub fn identity(&self) -> Result<Identity> {
        let path = r#"jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}{"\n"}{end}"#;
        let containers = self.kubectl.run(&["get", "pods", "-l", "kept=yes", "-o", path])?;
        let revisions = self
            .kubectl
            .run(&["get", "replicasets,controllerrevisions", "-o", "name"])?;
        let lines = |text: &str| text.lines().map(str::to_owned).collect();
        Ok(Identity {
            containers: lines(&containers),
            revisions: lines(&revisions),
        })
    }

    /// Watches for a while that nothing is restarted and nothing rolled out.
    pub fn unchanged(&self, before: &Identity) -> Result<()> {
        let until = std::time::Instant::now() + QUIET;
        while std::time::Instant::now() < until {
            signals::sleep(Duration::from_secs(1))?;
            let now = self.identity()?;
            ensure!(
                now == *before,
                "the swap was not left unnoticed:\n   before {before:?}\n   now {now:?}"
            );
        }
        Ok(())
    }

    /// What a cluster is for: scaling, a rollout, a job, ordered pods, a lost daemon; of the kinds that are carried.
    pub fn exercise(&self, carried: &Kinds) -> Result<()> {
        self.round.set(self.round.get() + 1);
        let round = self.round.get();
        let wanted = |kind: &str| self.kinds.contains(kind) && carried.contains(kind);
        self.scale("deployment/web", 3)?;
        self.status("deployment/web", "{.status.availableReplicas}", "3")?;
        self.answered_by(3).context("after scaling")?;
        self.roll_out(round)?;
        self.answered_by(3).context("after the rollout")?;
        if wanted("Job") {
            self.finish_job(round)?;
        }
        if wanted("StatefulSet") {
            self.scale("statefulset/db", 3)?;
            self.status("statefulset/db", "{.status.readyReplicas}", "3")?;
            self.scale("statefulset/db", 2)?;
            self.status("statefulset/db", "{.status.replicas}", "2")?;
        }
        if wanted("DaemonSet") {
            self.kubectl.run(&["delete", "pod", "-l", "app=agent", "--wait=true"])?;
        }
        self.scale("deployment/web", 2)?;
        wait_for("two pods of the Deployment", PATIENCE, || {
            self.pods("web").ok().filter(|pods| pods.len() == 2).map(drop)
        })?;
        self.settle()
    }

    fn scale(&self, object: &str, replicas: usize) -> Result<()> {
        let replicas = format!("--replicas={replicas}");
        self.kubectl.run(&["scale", object, &replicas]).map(drop)
    }

    fn roll_out(&self, round: usize) -> Result<()> {
        let before = self.pods("web")?;
        self.kubectl
            .run(&["set", "env", "deployment/web", &format!("ROUND={round}")])?;
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.kubectl.run(&["rollout", "status", "deployment/web", &timeout])?;
        wait_for("the old pods to go", PATIENCE, || {
            let now = self.pods("web").ok()?;
            (now.is_disjoint(&before) && now.len() == 3).then_some(())
        })
    }

    fn finish_job(&self, round: usize) -> Result<()> {
        let job = format!(
            r#"
apiVersion: batch/v1
kind: Job
metadata: {{ name: once-{round} }}
spec:
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - {{ name: once, image: "registry.k8s.io/e2e-test-images/agnhost:2.63.0", imagePullPolicy: IfNotPresent, args: [entrypoint-tester] }}
"#
        );
        self.kubectl.run_with(&["create", "-f", "-"], &job)?;
        let object = format!("job/once-{round}");
        self.status(&object, "{.status.succeeded}", "2")?;
        let complete = r#"{.status.conditions[?(@.type=="Complete")].status}"#;
        self.status(&object, complete, "True")
    }

    fn status(&self, object: &str, path: &str, wanted: &str) -> Result<()> {
        let output = format!("jsonpath={path}");
        let what = format!("{object} to have {path} = {wanted}");
        let query = ["get", object, "-o", &output];
        let seen = self.kubectl.until(&what, PATIENCE, &query, |value| value == wanted);
        seen.map(drop).with_context(|| {
            let pods = self.kubectl.run(&["get", "pods", "-o", "wide"]).unwrap_or_default();
            format!("the pods are:\n{pods}")
        })
    }

    fn pods(&self, app: &str) -> Result<BTreeSet<String>> {
        let selector = format!("app={app}");
        let names = self.kubectl.run(&[
            "get",
            "pods",
            "-l",
            &selector,
            "-o",
            "jsonpath={.items[*].metadata.name}",
        ])?;
        Ok(names.split_whitespace().map(str::to_owned).collect())
    }

    fn answered_by(&self, count: usize) -> Result<()> {
        let address = service_address(&self.kubectl)?;
        let mut seen = BTreeSet::new();
        let all = wait_for(&format!("answers of {count} pods"), PATIENCE, || {
            seen.extend(fetch(&self.kubectl, &address));
            let running = self.pods("web").ok()?;
            (running.len() == count && running.is_subset(&seen)).then_some(())
        });
        all.with_context(|| format!("through the Service {seen:?} answered"))
    }
}
