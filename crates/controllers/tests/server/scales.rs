//! Whatever has a scale: autoscalers that change it, and budgets that are counted by it.

use std::sync::Arc;

use api::kinds::custom_resource_definition::CUSTOM_RESOURCE_DEFINITION;
use api::kinds::deployment::DEPLOYMENT;
use api::kinds::event::EVENT;
use api::kinds::horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER;
use api::kinds::pod::POD;
use api::kinds::pod_disruption_budget::POD_DISRUPTION_BUDGET;
use api::{Resource, Value};
use async_trait::async_trait;
use bytes::Bytes;
use client::{Body, Patch, Transport, TransportError, body_from_bytes};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::json;

use crate::cluster::Cluster;

static GANG: Resource = Resource::namespaced("example.com", "v1", "Gang", "gangs", "gang");

/// What the metrics APIs tell, in which every pod uses the same.
#[derive(Default)]
struct Figures {
    cpu: Mutex<String>,
    /// Paths that were asked for and begin with `/apis/custom.metrics.k8s.io`.
    custom: Mutex<Vec<String>>,
}

/// Answers for the metrics APIs and passes all else on.
struct Measured {
    inner: Arc<dyn Transport>,
    figures: Arc<Figures>,
}

#[async_trait]
impl Transport for Measured {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, TransportError> {
        let path = request.uri().path().to_owned();
        if path.starts_with("/apis/custom.metrics.k8s.io/") {
            self.figures.custom.lock().push(path);
            return Ok(answer(&json!({"items": [{"value": "30"}]})));
        }
        let Some(rest) = path.strip_prefix("/apis/metrics.k8s.io/v1beta1/") else {
            return self.inner.send(request).await;
        };
        // As the account of the controller, which may list pods.
        let query = request.uri().query().unwrap_or_default();
        let pods = Request::builder()
            .method(Method::GET)
            .uri(format!("/api/v1/{rest}?{query}"))
            .body(Bytes::new())?;
        let pods = self.inner.send(pods).await?;
        if pods.status() != StatusCode::OK {
            return Ok(pods);
        }
        let bytes = pods.into_body().collect().await?.to_bytes();
        let pods: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let usage = json!({"cpu": self.figures.cpu.lock().as_str(), "memory": "1Mi"});
        let items = pods["items"].as_array().into_iter().flatten().map(|pod| {
            json!({
                "metadata": {"name": pod["metadata"]["name"]}, "timestamp": now(), "window": "15s",
                "containers": [{"name": "web", "usage": usage}],
            })
        });
        Ok(answer(&json!({"items": items.collect::<Vec<_>>()})))
    }
}

fn now() -> String {
    schema::time::format(schema::time::now())
}

fn answer(value: &Value) -> Response<Body> {
    Response::new(body_from_bytes(Bytes::from(value.to_string())))
}

fn deployment(name: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: web, image: 'web:1', resources: {{requests: {{cpu: 100m}}}}}}]}}
"
    )
}

fn autoscaler(name: &str, metric: &str) -> String {
    format!(
        "
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: {name}}}
  maxReplicas: 4
  metrics: [{metric}]
"
    )
}

fn definition(plural: &str, kind: &str, scale: &str) -> String {
    format!(
        "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{plural: {plural}, kind: {kind}}}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
    subresources: {{{scale}}}
"
    )
}

/// Runs a Deployment's one pod, which has been ready for long.
async fn run(cluster: &Cluster, name: &str) {
    cluster.create(&DEPLOYMENT, "default", &deployment(name)).await;
    let pods = cluster
        .client
        .resource(&POD)
        .in_namespace("default")
        .subresource("status");
    let is_own = |pod: &Value| pod["metadata"]["labels"]["app"] == name;
    cluster
        .until("a running pod", async || {
            cluster.run_pods("default").await;
            let all = cluster.list(&POD, "default").await;
            all.iter().any(|pod| is_own(pod) && pod["status"]["phase"] == "Running")
        })
        .await;
    for pod in cluster.list(&POD, "default").await.iter().filter(|pod| is_own(pod)) {
        let started = json!({"status": {"startTime": "2026-01-01T11:59:00Z"}});
        let name = pod["metadata"]["name"].as_str().unwrap();
        pods.patch::<Value>(name, Patch::strategic(&started)).await.unwrap();
    }
}

async fn replicas(cluster: &Cluster, name: &str) -> Value {
    let deployment = cluster.get(&DEPLOYMENT, "default", name).await.unwrap();
    deployment["spec"]["replicas"].clone()
}

#[tokio::test]
async fn an_autoscaler_reads_the_metrics_apis_and_scales_its_target() {
    let figures: Arc<Figures> = Arc::default();
    *figures.cpu.lock() = "150m".to_owned();
    let told = figures.clone();
    let cluster = Cluster::start_through(move |inner| {
        let figures = told.clone();
        Arc::new(Measured { inner, figures })
    })
    .await;
    run(&cluster, "web").await;
    let cpu = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}";
    cluster
        .create(&HORIZONTAL_POD_AUTOSCALER, "default", &autoscaler("web", cpu))
        .await;
    cluster
        .until("three replicas of web", async || replicas(&cluster, "web").await == 3)
        .await;
    cluster
        .until("an event", async || {
            let events = cluster.list(&EVENT, "default").await;
            let message = "New size: 3; reason: cpu resource utilization (percentage of request) above target";
            events.iter().any(|event| event["message"] == message)
        })
        .await;

    // The kind of this object is defined after the resources were discovered for the first autoscaler.
    let queues = definition("queues", "Queue", "");
    cluster.create(&CUSTOM_RESOURCE_DEFINITION, "", &queues).await;
    cluster
        .until("the new kind", async || {
            let found = cluster.client.discover().await.unwrap();
            found.iter().any(|resource| resource.kind == "Queue")
        })
        .await;
    run(&cluster, "worker").await;
    let length = "{type: Object, object: {metric: {name: length}, target: {type: Value, value: '15'}, \
                  describedObject: {apiVersion: example.com/v1, kind: Queue, name: mail}}}";
    cluster
        .create(&HORIZONTAL_POD_AUTOSCALER, "default", &autoscaler("worker", length))
        .await;
    cluster
        .until("two replicas of worker", async || {
            replicas(&cluster, "worker").await == 2
        })
        .await;
    let path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/queues.example.com/mail/length";
    assert_eq!(figures.custom.lock()[0], path);
    cluster.stop().await;
}

/// A custom resource, a pod of it, and a budget over that pod.
async fn budget_over_gang(scale: &str) -> Cluster {
    let cluster = Cluster::start().await;
    let gangs = definition("gangs", "Gang", scale);
    cluster.create(&CUSTOM_RESOURCE_DEFINITION, "", &gangs).await;
    let gang = json!({
        "apiVersion": "example.com/v1", "kind": "Gang", "metadata": {"name": "four"}, "spec": {"replicas": 4},
    });
    let gangs = cluster.client.resource(&GANG).in_namespace("default");
    cluster
        .until("the new kind", async || gangs.create::<Value>(&gang).await.is_ok())
        .await;
    let uid = cluster.get(&GANG, "default", "four").await.unwrap()["metadata"]["uid"].clone();
    cluster
        .until("the default service account", async || {
            let account = &api::kinds::service_account::SERVICE_ACCOUNT;
            cluster.get(account, "default", "default").await.is_some()
        })
        .await;
    let owner = json!({
        "apiVersion": "example.com/v1", "kind": "Gang", "name": "four", "uid": uid, "controller": true,
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "one", "labels": {"app": "gang"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    cluster.create(&POD, "default", &pod.to_string()).await;
    cluster.run_pods("default").await;
    let budget = "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: gang}, \
                  spec: {maxUnavailable: 1, selector: {matchLabels: {app: gang}}}}";
    cluster.create(&POD_DISRUPTION_BUDGET, "default", budget).await;
    cluster
}

#[tokio::test]
async fn a_budget_is_counted_by_the_scale_of_a_custom_resource() {
    let scale = "scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}";
    let cluster = budget_over_gang(scale).await;
    cluster
        .until("four expected pods", async || {
            let budget = cluster.get(&POD_DISRUPTION_BUDGET, "default", "gang").await.unwrap();
            budget["status"]["expectedPods"] == 4 && budget["status"]["desiredHealthy"] == 3
        })
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_controller_without_a_scale_cannot_be_counted_by() {
    let cluster = budget_over_gang("").await;
    cluster
        .until("a condition that says why", async || {
            let budget = cluster.get(&POD_DISRUPTION_BUDGET, "default", "gang").await.unwrap();
            let condition = &budget["status"]["conditions"][0];
            condition["reason"] == "SyncFailed"
                && condition["message"] == "gangs.example.com does not implement the scale subresource"
                && budget["status"]["disruptionsAllowed"] == 0
        })
        .await;
    cluster.stop().await;
}
