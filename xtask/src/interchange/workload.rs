//! What every cluster carries: one of each of the usual controllers' objects, and a Service in front.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::cluster::Kubectl;
use crate::e2e::workload::{fetch, service_address};
use crate::process::Process;
use crate::signals::{self, wait_for};

/// A leader that was killed is waited for; the longest lease is fifteen seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a swapped component is watched for restarts it should not cause: longer than a kubelet takes to look at
/// every pod, and a new leader to begin.
const QUIET: Duration = Duration::from_secs(20);

/// The pods of [`MANIFEST`].
const KEPT: usize = 5;

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
    /// Makes names and values that were not there before.
    round: Cell<usize>,
}

impl Workload {
    pub fn apply(kubectl: Kubectl) -> Result<Self> {
        kubectl.run_with(&["apply", "-f", "-"], MANIFEST)?;
        let round = Cell::new(0);
        Ok(Self { kubectl, round })
    }

    /// Waits until everything is as its objects say and the Service answers from every pod.
    pub fn settle(&self) -> Result<()> {
        self.status("deployment/web", "{.status.availableReplicas}", "2")?;
        self.status("statefulset/db", "{.status.readyReplicas}", "2")?;
        self.status("daemonset/agent", "{.status.numberReady}", "1")?;
        self.at_rest()?;
        self.answered_by(2)
    }

    /// Waits until every pod runs and none is on its way out: a status may still tell of the pods of a moment ago.
    fn at_rest(&self) -> Result<()> {
        let path = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{.metadata.deletionTimestamp} {end}"#;
        let query = ["get", "pods", "-l", "kept=yes", "-o", path];
        let ready = |states: &str| states.split_whitespace().eq(["True"; KEPT]);
        self.kubectl
            .until("all pods to rest", PATIENCE, &query, ready)
            .map(drop)
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

    /// What a cluster is for: scaling, a rollout, a job, ordered pods, a lost daemon, looking inside.
    pub fn exercise(&self) -> Result<()> {
        self.round.set(self.round.get() + 1);
        let round = self.round.get();
        self.scale("deployment/web", 3)?;
        self.status("deployment/web", "{.status.availableReplicas}", "3")?;
        self.answered_by(3).context("after scaling")?;
        self.roll_out(round)?;
        self.answered_by(3).context("after the rollout")?;
        self.look_inside(round)?;
        self.finish_job(round)?;
        self.scale("statefulset/db", 3)?;
        self.status("statefulset/db", "{.status.readyReplicas}", "3")?;
        self.scale("statefulset/db", 2)?;
        self.status("statefulset/db", "{.status.replicas}", "2")?;
        self.kubectl.run(&["delete", "pod", "-l", "app=agent", "--wait=true"])?;
        self.scale("deployment/web", 2)?;
        wait_for("two pods of the Deployment", PATIENCE, || {
            self.pods("web").ok().filter(|pods| pods.len() == 2).map(drop)
        })?;
        self.settle()
    }

    /// Through API server, kubelet and runtime: a command, its input and its end; logs; a port.
    fn look_inside(&self, round: usize) -> Result<()> {
        let pod = self.pods("web")?.pop_first().context("the Deployment has no pod")?;
        let said = self.kubectl.run_with(&["exec", "-i", &pod, "--", "cat"], "hello")?;
        ensure!(said == "hello", "exec answered {said:?}");
        let failed = self.kubectl.run(&["exec", &pod, "--", "sh", "-c", "exit 7"]);
        let told = failed.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(told.ends_with("exit code 7"), "a failed command was told as {told:?}");
        let logs = self.kubectl.run(&["logs", &pod])?;
        ensure!(logs.contains("Started HTTP server"), "the log is {logs:?}");
        let port = format!("{}", 18000 + round);
        let mut command = self
            .kubectl
            .command(&["port-forward", &format!("pod/{pod}"), &format!("{port}:8080")]);
        let _forward = Process::start(&mut command, Path::new("/dev/null"))?;
        let address = format!("127.0.0.1:{port}");
        wait_for("an answer through a forwarded port", PATIENCE, || {
            fetch(&self.kubectl, &address)
                .ok()
                .filter(|answer| *answer == pod)
                .map(drop)
        })
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
        all.with_context(|| {
            let slices = ["get", "pods,endpointslices", "-l", "app=web", "-o", "wide"];
            let objects = self.kubectl.run(&slices).unwrap_or_default();
            let rules = self.kubectl.inside("nft").args(["list", "ruleset"]).output();
            let rules = rules.map(|found| String::from_utf8_lossy(&found.stdout).into_owned());
            let rules = rules.unwrap_or_default();
            let about: Vec<&str> = rules.lines().filter(|line| line.contains(&address)).collect();
            format!(
                "through the Service {seen:?} answered; there are\n{objects}and rules\n{}",
                about.join("\n")
            )
        })
    }
}
