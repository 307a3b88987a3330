//! Everything that people do with kubectl, done by a current and by an older one.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::World;
use crate::cluster::{Karve, Kubectl, Store};
use crate::peers;
use crate::process::Process;
use crate::signals::wait_for;

const PATIENCE: Duration = Duration::from_secs(60);

/// One call of kubectl.
struct Step {
    /// The arguments, separated by blanks; those with blanks of their own stand in `input` or are joined by `_`.
    call: &'static str,
    input: &'static str,
    succeeds: bool,
    /// All of this is in what it prints.
    says: &'static [&'static str],
}

const fn ok(call: &'static str, says: &'static [&'static str]) -> Step {
    fed(call, "", says)
}

const fn fed(call: &'static str, input: &'static str, says: &'static [&'static str]) -> Step {
    Step {
        call,
        input,
        succeeds: true,
        says,
    }
}

const fn refused(call: &'static str, input: &'static str, says: &'static [&'static str]) -> Step {
    Step {
        call,
        input,
        succeeds: false,
        says,
    }
}

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {color: blue}}
spec:
  replicas: 2
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: "example/one:1"}]}
"#;

const CHANGED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {color: blue}}
spec:
  replicas: 3
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {containers: [{name: c, image: "example/one:1"}]}
"#;

const REPLICAS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec: {replicas: 5}
"#;

const UNKNOWN: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: unknown}
foo: bar
"#;

const REPLACED: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {k: replaced}
"#;

const FIVE: &str = r#"
apiVersion: v1
kind: Secret
metadata: {name: s1, labels: {five: "1"}}
---
apiVersion: v1
kind: Secret
metadata: {name: s2, labels: {five: "1"}}
---
apiVersion: v1
kind: Secret
metadata: {name: s3, labels: {five: "1"}}
---
apiVersion: v1
kind: Secret
metadata: {name: s4, labels: {five: "1"}}
---
apiVersion: v1
kind: Secret
metadata: {name: s5, labels: {five: "1"}}
"#;

const STEPS: &[Step] = &[
    // Creating.
    ok("create configmap c --from-literal=k=v", &["configmap/c created"]),
    refused(
        "create configmap c --from-literal=k=v",
        "",
        &["configmaps \"c\" already exists"],
    ),
    ok("create configmap dry --dry-run=server -o name", &["configmap/dry"]),
    refused("get configmap dry", "", &["configmaps \"dry\" not found"]),
    refused(
        "create -f -",
        UNKNOWN,
        &["strict decoding error: unknown field \"foo\""],
    ),
    fed(
        "create --validate=warn -f -",
        UNKNOWN,
        &["Warning: unknown field \"foo\"", "configmap/unknown created"],
    ),
    // Client-side apply, and the way from there to the server's.
    fed("apply -f -", DEPLOYMENT, &["deployment.apps/d created"]),
    fed("apply -f -", DEPLOYMENT, &["deployment.apps/d unchanged"]),
    refused("diff -f -", CHANGED, &["-  replicas: 2", "+  replicas: 3"]),
    fed("apply -f -", CHANGED, &["deployment.apps/d configured"]),
    fed(
        "apply --server-side -f -",
        CHANGED,
        &["deployment.apps/d serverside-applied"],
    ),
    fed("diff --server-side -f -", CHANGED, &[]),
    refused(
        "diff --server-side --force-conflicts -f -",
        DEPLOYMENT,
        &["+  replicas: 2"],
    ),
    refused(
        "apply --server-side --field-manager=other -f -",
        REPLICAS,
        &[
            "Apply failed with 1 conflict: conflict with \"kubectl\"",
            ".spec.replicas",
        ],
    ),
    fed(
        "apply --server-side --field-manager=other --force-conflicts -f -",
        REPLICAS,
        &["deployment.apps/d serverside-applied"],
    ),
    ok("get deployment d -o jsonpath={.spec.replicas}", &["5"]),
    ok(
        "get deployment d --show-managed-fields -o yaml",
        &["manager: other", "operation: Apply", "f:replicas: {}"],
    ),
    // Changing.
    fed("replace -f -", REPLACED, &["configmap/c replaced"]),
    ok("edit deployment d", &["deployment.apps/d edited"]),
    ok("get deployment d -o jsonpath={.metadata.labels.color}", &["green"]),
    ok(
        "patch configmap c --type=merge -p {\"data\":{\"m\":\"1\"}}",
        &["configmap/c patched"],
    ),
    ok(
        "patch configmap c --type=json -p [{\"op\":\"add\",\"path\":\"/data/j\",\"value\":\"1\"}]",
        &["configmap/c patched"],
    ),
    ok(
        "patch deployment d --type=strategic -p {\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"c\",\"tty\":true}]}}}}",
        &["deployment.apps/d patched"],
    ),
    ok(
        "patch deployment d --subresource=status --type=merge -p {\"status\":{\"collisionCount\":1}}",
        &["patched"],
    ),
    ok(
        "get configmap c -o jsonpath={.data.m}{.data.j}{.data.k}",
        &["11replaced"],
    ),
    ok("label configmap c l=1", &["configmap/c labeled"]),
    refused(
        "label configmap c l=2",
        "",
        &["'l' already has a value (1), and --overwrite is false"],
    ),
    ok("label configmap c l=2 --overwrite", &["configmap/c labeled"]),
    ok("label configmap c l-", &["configmap/c unlabeled"]),
    ok("annotate configmap c a=1", &["configmap/c annotated"]),
    ok("scale deployment d --replicas=1", &["deployment.apps/d scaled"]),
    ok(
        "set image deployment/d c=example/two:2",
        &["deployment.apps/d image updated"],
    ),
    ok("rollout history deployment/d", &["REVISION"]),
    // Looking.
    ok("get deployment d", &["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]),
    ok(
        "get deployment d -o wide",
        &["CONTAINERS", "IMAGES", "SELECTOR", "example/two:2"],
    ),
    ok("get deployment d -o name", &["deployment.apps/d"]),
    ok("get deployment d -o json", &["\"kind\": \"Deployment\""]),
    ok("get deployment d -o yaml", &["kind: Deployment"]),
    ok("get deployment d -o jsonpath-as-json={.metadata.name}", &["\"d\""]),
    ok(
        "get deployment d -o custom-columns=N:.metadata.name,R:.spec.replicas",
        &["N ", "R", "d ", "1"],
    ),
    ok("get deployment d -o go-template={{.metadata.name}}", &["d"]),
    ok(
        "get deployment,configmap --show-labels",
        &["deployment.apps/d", "configmap/c", "LABELS"],
    ),
    ok(
        "get configmap --field-selector=metadata.name=c --sort-by=.metadata.name",
        &["c "],
    ),
    ok("describe deployment d", &["Name:", "StrategyType:", "RollingUpdate"]),
    ok(
        "explain deployment.spec.replicas",
        &["KIND:", "Deployment", "replicas <integer>"],
    ),
    ok("explain pod.spec.containers --recursive", &["image", "livenessProbe"]),
    ok("api-resources", &["deployments", "deploy", "apps/v1", "configmaps"]),
    ok("api-versions", &["apps/v1", "networking.k8s.io/v1"]),
    ok("auth can-i create pods", &["yes"]),
    ok("version", &["Server Version: v1.36"]),
    // Waiting and pages.
    ok(
        "wait --for=jsonpath={.data.k}=replaced configmap/c --timeout=20s",
        &["configmap/c condition met"],
    ),
    fed("create -f -", FIVE, &["secret/s1 created", "secret/s5 created"]),
    ok(
        "get secret -l five=1 --chunk-size=2 -o name",
        &["secret/s1", "secret/s3", "secret/s5"],
    ),
    ok(
        "delete secret -l five=1",
        &["secret \"s1\" deleted", "secret \"s5\" deleted"],
    ),
    ok("wait --for=delete secret/s1 --timeout=20s", &[]),
    // Deleting with each propagation.
    ok(
        "wait --for=jsonpath={.status.observedGeneration} deployment/d --timeout=60s",
        &["condition met"],
    ),
    ok(
        "delete deployment d --cascade=orphan",
        &["deployment.apps \"d\" deleted"],
    ),
    ok("get replicaset -l app=d -o name", &["replicaset.apps/d-"]),
    fed("apply -f -", DEPLOYMENT, &["deployment.apps/d created"]),
    ok(
        "wait --for=jsonpath={.status.observedGeneration} deployment/d --timeout=60s",
        &["condition met"],
    ),
    ok(
        "delete deployment d --cascade=foreground --timeout=60s",
        &["deployment.apps \"d\" deleted"],
    ),
    fed("apply -f -", DEPLOYMENT, &["deployment.apps/d created"]),
    ok(
        "delete deployment d --cascade=background",
        &["deployment.apps \"d\" deleted"],
    ),
    ok("delete configmap c --wait=false", &["configmap \"c\" deleted"]),
];

pub fn on(world: &World, store: Store) -> Result<()> {
    let mut setup = world.setup();
    setup.store = store;
    setup.nodes = 0;
    let cluster = Karve::start(&setup)?;
    let current = cluster.kubectl()?;
    tour(world, &current, "current")?;
    let program = peers::build(&["older-kubectl".to_owned()])?.remove(0);
    tour(world, &Kubectl { program, ..current }, "older")
}

fn tour(world: &World, kubectl: &Kubectl, namespace: &str) -> Result<()> {
    kubectl.run(&["create", "namespace", namespace])?;
    for step in STEPS {
        take(kubectl, namespace, step).with_context(|| format!("kubectl {} ({namespace})", step.call))?;
    }
    watches(world, kubectl, namespace)?;
    println!("   {} steps with the {namespace} kubectl", STEPS.len() + 1);
    Ok(())
}

fn take(kubectl: &Kubectl, namespace: &str, step: &Step) -> Result<()> {
    let mut command = kubectl.command(&["--namespace", namespace]);
    command
        .args(step.call.split(' '))
        .env("KUBE_EDITOR", "sed -i s/blue/green/");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        std::io::Write::write_all(&mut pipe, step.input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        output.status.success() == step.succeeds,
        "ended with {}: {said}",
        output.status
    );
    for wanted in step.says {
        ensure!(said.contains(wanted), "did not say {wanted:?} but: {said}");
    }
    Ok(())
}

/// `get --watch` shows what comes, changes and goes.
fn watches(world: &World, kubectl: &Kubectl, namespace: &str) -> Result<()> {
    let log = world.logs.join(format!("watch-{namespace}.log"));
    let arguments = [
        "--namespace",
        namespace,
        "get",
        "secret",
        "--watch",
        "--output-watch-events",
    ];
    let mut watcher = Process::start(&mut kubectl.command(&arguments), &log)?;
    let sees = |what: &str| {
        let seen = || {
            std::fs::read_to_string(&log)
                .is_ok_and(|text| text.contains(what))
                .then_some(())
        };
        wait_for(what, PATIENCE, seen)
    };
    let run = |arguments: &[&str]| kubectl.run(&[&["--namespace", namespace], arguments].concat());
    // A watch may start after the first object: it shows what is there already.
    run(&["create", "secret", "generic", "seen"])?;
    sees("ADDED")?;
    run(&["label", "secret", "seen", "l=1"])?;
    sees("MODIFIED")?;
    run(&["delete", "secret", "seen"])?;
    sees("DELETED")?;
    watcher.stop();
    Ok(())
}
