//! Reads the metrics APIs and turns one metric of an autoscaler into a number of replicas.

use std::time::Duration;

use api::{Fields, Value};
use bytes::Bytes;
use client::when::Moment;
use client::{Client, ListOptions, TransportError};
use http::Request;
use schema::quantity::{Format, Quantity};
use serde_json::json;

use crate::resources::{Resources, no_matches};

use super::calculate::{self, PodMetric, PodMetrics, PodTarget, Proposal, Tolerances};
use super::model::{MeasuredPod, MetricSpec, NamedMetric, ResourceMetric, Scale, Target};

/// What metrics that do not say it are measured over.
const DEFAULT_WINDOW: Duration = Duration::from_secs(60);

/// One metric that could be evaluated.
#[derive(Clone, Debug)]
pub struct Evaluated {
    pub replicas: i64,
    /// What the metric is called in events.
    pub name: String,
    /// Its row in `status.currentMetrics`.
    pub status: Value,
}

/// One that could not, by its reason in conditions and events.
#[derive(Clone, Debug)]
pub struct Unavailable {
    pub reason: &'static str,
    pub message: String,
}

/// The target of an autoscaler while its metrics are evaluated.
pub struct Measurement<'a> {
    pub client: &'a Client,
    pub namespace: &'a str,
    pub scale: &'a Scale,
    /// The pods of the target, or why they could not be listed.
    pub pods: Result<&'a [MeasuredPod], &'a str>,
    pub tolerances: Tolerances,
    /// The resources of the server, for metrics of objects.
    pub resources: &'a Resources,
    pub now: Moment,
}

impl Measurement<'_> {
    pub async fn evaluate(&self, metric: &MetricSpec) -> Result<Evaluated, Unavailable> {
        let (reason, outcome) = match (metric.kind.as_str(), metric) {
            (
                "Resource",
                MetricSpec {
                    resource: Some(spec), ..
                },
            ) => ("FailedGetResourceMetric", self.resource(spec, "resource").await),
            (
                "ContainerResource",
                MetricSpec {
                    container_resource: Some(spec),
                    ..
                },
            ) => (
                "FailedGetContainerResourceMetric",
                self.resource(spec, "containerResource").await,
            ),
            ("Pods", MetricSpec { pods: Some(spec), .. }) => ("FailedGetPodsMetric", self.pods(spec).await),
            ("Object", MetricSpec { object: Some(spec), .. }) => ("FailedGetObjectMetric", self.object(spec).await),
            (
                "External",
                MetricSpec {
                    external: Some(spec), ..
                },
            ) => ("FailedGetExternalMetric", self.external(spec).await),
            (kind, _) => (
                "InvalidMetricSourceType",
                Err(format!("unknown metric source type {kind:?}")),
            ),
        };
        outcome.map_err(|message| Unavailable { reason, message })
    }

    async fn resource(&self, spec: &ResourceMetric, field: &'static str) -> Result<Evaluated, String> {
        let (resource, of) = (
            &spec.name,
            if field == "resource" {
                "resource"
            } else {
                "container resource"
            },
        );
        let failed = |error: String| match spec.target.average_utilization {
            Some(_) => format!("failed to get {resource} utilization: {error}"),
            None => format!("failed to get {resource} usage: {error}"),
        };
        let metrics = self
            .resource_metrics(spec)
            .await
            .map_err(|error| failed(error.to_string()))?;
        if metrics.is_empty() {
            let error =
                format!("unable to get metrics for resource {resource}: no metrics returned from resource metrics API");
            return Err(failed(error));
        }
        let (target, name) = match spec.target.average_utilization {
            Some(percent) => (
                PodTarget::Utilization {
                    percent,
                    resource,
                    container: &spec.container,
                },
                format!("{resource} {of} utilization (percentage of request)"),
            ),
            None => (
                PodTarget::Average(quantity(&spec.target.average_value)?),
                format!("{resource} {of}"),
            ),
        };
        let proposal = self.by_pods(metrics, target).map_err(failed)?;
        let mut current = json!({"averageValue": written(proposal.value)});
        if let Some(utilization) = proposal.utilization {
            current["averageUtilization"] = utilization.into();
        }
        let mut status = json!({"name": resource, "current": current});
        if !spec.container.is_empty() {
            status["container"] = spec.container.as_str().into();
        }
        let kind = if field == "resource" {
            "Resource"
        } else {
            "ContainerResource"
        };
        Ok(evaluated(&proposal, name, json!({"type": kind, field: status})))
    }

    async fn resource_metrics(&self, spec: &ResourceMetric) -> client::Result<PodMetrics> {
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", self.namespace);
        let answer = self
            .fetch(&path, &[("labelSelector", &self.scale.status.selector)])
            .await?;
        let items = answer.list("items").iter();
        Ok(items.filter_map(|item| resource_metric(item, spec)).collect())
    }

    async fn pods(&self, spec: &NamedMetric) -> Result<Evaluated, String> {
        let metric = &spec.metric.name;
        let path = format!(
            "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{}/pods/*/{metric}",
            self.namespace
        );
        let labels = selector(spec);
        let query = [
            ("labelSelector", self.scale.status.selector.as_str()),
            ("metricLabelSelector", &labels),
        ];
        let failed = |error: &dyn std::fmt::Display| format!("unable to get metric {metric}: {error}");
        let answer = self.fetch(&path, &query).await.map_err(|error| failed(&error))?;
        let metrics: PodMetrics = answer.list("items").iter().filter_map(custom_metric).collect();
        if metrics.is_empty() {
            return Err(failed(&"no metrics returned from custom metrics API"));
        }
        let proposal = self.by_pods(metrics, PodTarget::Average(quantity(&spec.target.average_value)?))?;
        let status = json!({"metric": {"name": metric}, "current": {"averageValue": written(proposal.value)}});
        let name = format!("pods metric {metric}");
        Ok(evaluated(&proposal, name, json!({"type": "Pods", "pods": status})))
    }

    async fn object(&self, spec: &NamedMetric) -> Result<Evaluated, String> {
        let (metric, object) = (&spec.metric.name, &spec.described_object);
        let group = object.api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let resource = self.resources.find(self.client, group, &object.kind, |_| true).await;
        let resource = resource?.ok_or_else(|| no_matches(&object.kind, &object.api_version))?;
        let path = match resource.kind {
            "Namespace" => format!(
                "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{}/metrics/{metric}",
                object.name
            ),
            _ => format!(
                "/apis/custom.metrics.k8s.io/v1beta2/namespaces/{}/{}/{}/{metric}",
                self.namespace,
                resource.qualified(),
                object.name
            ),
        };
        let labels = selector(spec);
        let (kind, namespace, name) = (&object.kind, self.namespace, &object.name);
        let failed = |error: &dyn std::fmt::Display| {
            format!("unable to get metric {metric}: {kind} on {namespace} {name}/{error}")
        };
        let answer = self.fetch(&path, &[("metricLabelSelector", &labels)]).await;
        let answer = answer.map_err(|error| failed(&error))?;
        let [item] = answer.list("items") else {
            return Err(failed(&"the custom metrics API did not return exactly one metric"));
        };
        let (proposal, current) = self.by_total(quantity(item.text("value"))?, &spec.target)?;
        let reference = json!({"kind": object.kind, "name": object.name, "apiVersion": object.api_version});
        let status = json!({"describedObject": reference, "metric": {"name": metric}, "current": current});
        let name = format!("{kind} metric {metric}");
        Ok(evaluated(&proposal, name, json!({"type": "Object", "object": status})))
    }

    async fn external(&self, spec: &NamedMetric) -> Result<Evaluated, String> {
        let metric = &spec.metric.name;
        let path = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{metric}",
            self.namespace
        );
        let labels = selector(spec);
        let namespace = self.namespace;
        let failed = |error: &dyn std::fmt::Display| {
            format!("unable to get external metric {namespace}/{metric}/{labels}: {error}")
        };
        let answer = self.fetch(&path, &[("labelSelector", &labels)]).await;
        let answer = answer.map_err(|error| failed(&error))?;
        let values = answer.list("items").iter().map(|item| quantity(item.text("value")));
        let values: Vec<i64> = values.collect::<Result<_, _>>()?;
        if values.is_empty() {
            return Err(failed(&"no metrics returned from external metrics API"));
        }
        let (proposal, current) = self.by_total(values.iter().sum(), &spec.target)?;
        let status = json!({"metric": {"name": metric}, "current": current});
        let name = format!("external metric {metric}");
        Ok(evaluated(
            &proposal,
            name,
            json!({"type": "External", "external": status}),
        ))
    }

    fn by_pods(&self, metrics: PodMetrics, target: PodTarget<'_>) -> Result<Proposal, String> {
        let current = self.scale.spec.replicas;
        calculate::by_pods(current, self.listed_pods()?, metrics, target, self.tolerances, self.now)
    }

    /// Replicas by a metric that is not of single pods, and what the status says of it.
    fn by_total(&self, usage: i64, target: &Target) -> Result<(Proposal, Value), String> {
        if !target.average_value.is_empty() {
            let wanted = quantity(&target.average_value)?;
            let proposal = calculate::by_average(self.scale.status.replicas, usage, wanted, self.tolerances);
            let current = json!({"averageValue": written(proposal.value)});
            return Ok((proposal, current));
        }
        let (current, wanted) = (self.scale.spec.replicas, quantity(&target.value)?);
        let proposal = calculate::by_value(current, self.listed_pods()?, usage, wanted, self.tolerances)?;
        Ok((proposal, json!({"value": written(usage)})))
    }

    fn listed_pods(&self) -> Result<&[MeasuredPod], String> {
        let failed = |error| format!("unable to get pods while calculating replica count: {error}");
        self.pods.map_err(failed)
    }

    async fn fetch(&self, path: &str, query: &[(&str, &str)]) -> client::Result<Value> {
        let options = query.iter().filter(|(_, value)| !value.is_empty());
        let options: Vec<String> = options
            .map(|(name, value)| format!("{name}={}", escaped(value)))
            .collect();
        let request = Request::get(format!("{path}?{}", options.join("&"))).body(Bytes::new());
        let answer = self.client.fetch(request.map_err(TransportError::from)?).await?;
        serde_json::from_slice(&answer).map_err(|source| client::Error::Decode {
            request: path.to_owned(),
            source,
        })
    }
}

/// The pods of a target, with what they request.
pub async fn pods_of_target(client: &Client, namespace: &str, scale: &Scale) -> client::Result<Vec<MeasuredPod>> {
    let options = ListOptions {
        label_selector: scale.status.selector.clone(),
        ..ListOptions::default()
    };
    let pods = client
        .resource(&api::kinds::pod::POD)
        .in_namespace(namespace.to_owned());
    Ok(pods.list::<MeasuredPod>(&options).await?.items)
}

fn evaluated(proposal: &Proposal, name: String, status: Value) -> Evaluated {
    Evaluated {
        replicas: proposal.replicas,
        name,
        status,
    }
}

/// What a pod uses of a resource, if every container that counts was measured.
fn resource_metric(item: &Value, spec: &ResourceMetric) -> Option<(String, PodMetric)> {
    let containers = item.list("containers").iter();
    let counted: Vec<&Value> = containers
        .filter(|container| spec.container.is_empty() || container.text("name") == spec.container)
        .collect();
    if counted.is_empty() {
        return None;
    }
    let uses = counted
        .iter()
        .map(|container| quantity(container["usage"].text(&spec.name)).ok());
    let value = uses.sum::<Option<i64>>()?;
    let seconds = item.text("window").trim_end_matches('s').parse::<f64>().ok();
    let metric = PodMetric {
        value,
        timestamp: Moment::parse(item.text("timestamp")).unwrap_or_default(),
        window: seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .unwrap_or(DEFAULT_WINDOW),
    };
    Some((item["metadata"].text("name").to_owned(), metric))
}

fn custom_metric(item: &Value) -> Option<(String, PodMetric)> {
    let window = item["windowSeconds"]
        .as_u64()
        .map_or(DEFAULT_WINDOW, Duration::from_secs);
    let metric = PodMetric {
        value: quantity(item.text("value")).ok()?,
        timestamp: Moment::parse(item.text("timestamp")).unwrap_or_default(),
        window,
    };
    Some((item["describedObject"].text("name").to_owned(), metric))
}

/// In thousandths.
fn quantity(text: &str) -> Result<i64, String> {
    let quantity: Quantity = text.parse().map_err(|_| format!("invalid quantity {text:?}"))?;
    Ok(quantity.milli_value())
}

fn written(milli: i64) -> String {
    Quantity::from_milli(milli, Format::DecimalSi).to_string()
}

fn selector(spec: &NamedMetric) -> String {
    let selector = spec.metric.selector.as_ref();
    selector.map_or_else(String::new, |selector| {
        api::selector::Selector::from(selector).to_string()
    })
}

/// A value of a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
