//! A second node vanishes without a word: the cluster finds out, replaces its pods and sends nobody there any more.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::{Kubectl, Upstream};

/// A node counts as lost after fifty seconds without a word; pods leave it two seconds later.
const PATIENCE: Duration = Duration::from_secs(150);
const ALL_PODS: &str = "jsonpath={.items[*].spec.nodeName}";

/// Spread over the nodes while there are two; five minutes of patience with a lost node are too many for a test.
const MANIFEST: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: spread }
spec:
  replicas: 2
  selector: { matchLabels: { app: spread } }
  template:
    metadata: { labels: { app: spread } }
    spec:
      terminationGracePeriodSeconds: 2
      topologySpreadConstraints:
      - { maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: { matchLabels: { app: spread } } }
      tolerations:
      - { key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 2 }
      - { key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 2 }
      containers:
      - name: web
        image: registry.k8s.io/e2e-test-images/agnhost:2.63.0
        imagePullPolicy: IfNotPresent
        args: ["netexec", "--http-port", "8080"]
        readinessProbe: { httpGet: { path: /hostname, port: 8080 }, periodSeconds: 1 }
---
apiVersion: v1
kind: Service
metadata: { name: spread }
spec:
  selector: { app: spread }
  ports: [{ port: 80, targetPort: 8080 }]
"#;

/// Leaves the cluster as it was.
pub fn survived(cluster: &Upstream) -> Result<()> {
    let kubectl = cluster.kubectl()?;
    cluster.add_node()?;
    node_is(&kubectl, "True").context("before it was lost")?;
    kubectl.run_with(&["apply", "-f", "-"], MANIFEST)?;
    pods_are_on(&kubectl, &["node-1", "node-2"])?;
    endpoints_are_on(&kubectl, &["node-1", "node-2"])?;
    cluster.lose_node()?;
    node_is(&kubectl, "Unknown")?;
    endpoints_are_on(&kubectl, &["node-1", "node-1"])?;
    kubectl.run(&["delete", "node", "node-2"])?;
    // Nobody is there to say that they ended.
    let lost = [
        "--field-selector",
        "spec.nodeName=node-2",
        "--force",
        "--grace-period=0",
    ];
    kubectl.run(&[&["delete", "pods", "--all-namespaces"], &lost[..]].concat())?;
    pods_are_on(&kubectl, &["node-1", "node-1"])?;
    kubectl.run(&["delete", "deployment/spread", "service/spread", "--wait=true"])?;
    let gone = ["get", "pods", "-l", "app=spread", "-o", ALL_PODS];
    kubectl
        .until("the pods to go", PATIENCE, &gone, str::is_empty)
        .map(drop)
}

fn node_is(kubectl: &Kubectl, ready: &str) -> Result<()> {
    let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    let query = ["get", "node", "node-2", "-o", path];
    let what = format!("node-2 to be Ready: {ready}");
    kubectl.until(&what, PATIENCE, &query, |now| now == ready).map(drop)
}

fn pods_are_on(kubectl: &Kubectl, nodes: &[&str]) -> Result<()> {
    let query = ["get", "pods", "-l", "app=spread", "-o", ALL_PODS];
    let what = format!("pods on {nodes:?}");
    kubectl.until(&what, PATIENCE, &query, |now| same(now, nodes)).map(drop)
}

/// Where the endpoints that take traffic are.
fn endpoints_are_on(kubectl: &Kubectl, nodes: &[&str]) -> Result<()> {
    let path = r#"jsonpath={.items[*].endpoints[?(@.conditions.ready==true)].nodeName}"#;
    let query = [
        "get",
        "endpointslices",
        "-l",
        "kubernetes.io/service-name=spread",
        "-o",
        path,
    ];
    let what = format!("ready endpoints on {nodes:?}");
    kubectl.until(&what, PATIENCE, &query, |now| same(now, nodes)).map(drop)
}

fn same(found: &str, wanted: &[&str]) -> bool {
    let mut found: Vec<&str> = found.split_whitespace().collect();
    found.sort_unstable();
    found == wanted
}
