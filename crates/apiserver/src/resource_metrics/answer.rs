//! NodeMetrics and PodMetrics of the nodes and pods that there are.

use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::{Error, Fields, Reason, Resource, Value, selector};
use http::{Response, StatusCode};
use registry::{ListOptions, ListRequest, check_fields};
use schema::format_duration;
use schema::quantity::{Format, Quantity};
use schema::time::Instant;
use serde_json::json;

use crate::body::Body;
use crate::call::Call;
use crate::errors::method_not_allowed;
use crate::usage::Usage;

/// By these names metrics-server says that there are no figures.
static NODE_METRICS: Resource = Resource::cluster("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodemetrics", "");
static POD_METRICS: Resource = Resource::namespaced("metrics.k8s.io", "v1beta1", "PodMetrics", "podmetrics", "");

pub async fn run(call: &Call<'_>, verb: &str) -> Result<Response<Body>, Error> {
    let presenter = call.presenter()?;
    match verb {
        "get" => {
            let object = subject(call).await?;
            call.server.usage.want().await;
            let metrics = metrics_of(call, &object)?.ok_or_else(|| no_metrics(call))?;
            presenter.value(StatusCode::OK, metrics)
        }
        "list" => {
            let objects = subjects(call).await?;
            call.server.usage.want().await;
            let metrics = objects.iter().filter_map(|object| metrics_of(call, object).transpose());
            presenter.list(json!({}), metrics.collect::<Result<_, _>>()?)
        }
        _ => Err(method_not_allowed()),
    }
}

/// What is measured: nodes or pods.
fn measured(call: &Call<'_>) -> &'static Resource {
    match call.served.resource.namespaced {
        true => &POD,
        false => &NODE,
    }
}

/// The name of the object in messages, which for pods says their namespace.
fn full_name(call: &Call<'_>) -> String {
    match call.namespace {
        "" => call.info.name.clone(),
        namespace => format!("{namespace}/{}", call.info.name),
    }
}

fn no_metrics(call: &Call<'_>) -> Error {
    let resource = match call.served.resource.namespaced {
        true => &POD_METRICS,
        false => &NODE_METRICS,
    };
    Error::not_found(resource, &full_name(call))
}

/// The node or pod that a request names.
async fn subject(call: &Call<'_>) -> Result<Value, Error> {
    let registry = &call.server.registry;
    let served = registry.served(measured(call))?;
    let stored = registry.get(served, call.namespace, &call.info.name).await;
    let stored = stored.map_err(|error| match error.reason {
        Reason::NotFound => Error::not_found(measured(call), &full_name(call)),
        _ => error,
    })?;
    stored.value(served)
}

/// The nodes or pods that a list selects, by their own labels.
async fn subjects(call: &Call<'_>) -> Result<Vec<Value>, Error> {
    let bad = |error: &dyn std::fmt::Display| Error::bad_request(error.to_string());
    let text = |name: &str| call.query.first(name).unwrap_or_default();
    let labels = selector::parse_labels(text("labelSelector")).map_err(|error| bad(&error))?;
    let fields = selector::parse_fields(text("fieldSelector")).map_err(|error| bad(&error))?;
    check_fields(&call.served, &fields)?;
    let registry = &call.server.registry;
    let served = registry.served(measured(call))?;
    let options = ListOptions {
        labels,
        fields,
        ..ListOptions::default()
    };
    let request = ListRequest::new(registry, served, call.namespace, "", options)?;
    let page = registry.list(&request).await?;
    served.decode_all(&page.entries)
}

/// What an object uses, if that is known. Of a pod only the node that it runs on is believed.
fn metrics_of(call: &Call<'_>, object: &Value) -> Result<Option<Value>, Error> {
    let metadata = &object["metadata"];
    let (namespace, name) = (metadata.text("namespace"), metadata.text("name"));
    let is_pod = call.served.resource.namespaced;
    let node = if is_pod { object["spec"].text("nodeName") } else { name };
    let Some(figures) = call.server.usage.of_node(node) else {
        return Ok(None);
    };
    let mut metrics = match is_pod {
        true => {
            let Some(pod) = figures.pod(namespace, name) else {
                return Ok(None);
            };
            let containers = pod.containers.iter();
            let containers: Vec<Value> = containers
                .map(|(name, usage)| json!({ "name": name, "usage": amounts(usage) }))
                .collect();
            json!({
                "timestamp": timestamp(pod.at_ms), "window": window(pod.window_ms), "containers": containers,
            })
        }
        false => {
            let Some(usage) = figures.usage() else { return Ok(None) };
            json!({
                "timestamp": timestamp(usage.at_ms), "window": window(usage.window_ms), "usage": amounts(&usage),
            })
        }
    };
    metrics["kind"] = call.served.resource.kind.into();
    metrics["apiVersion"] = call.served.resource.api_version().into();
    metrics["metadata"] = json!({
        "name": name, "creationTimestamp": schema::time::format(schema::time::now()),
    });
    for field in ["namespace", "labels"].into_iter().filter(|field| metadata.has(field)) {
        metrics["metadata"][field] = metadata[field].clone();
    }
    schema::normalize(call.served.required_type()?, &mut metrics).map_err(Error::internal)?;
    Ok(Some(metrics))
}

fn amounts(usage: &Usage) -> Value {
    let memory = i64::try_from(usage.memory_bytes).unwrap_or(i64::MAX);
    json!({
        "cpu": format!("{}n", usage.cpu_nano_cores),
        "memory": Quantity::new(memory, Format::BinarySi).to_string(),
    })
}

fn timestamp(at_ms: i64) -> String {
    schema::time::format(Instant {
        seconds: at_ms.div_euclid(1000),
        nanos: 0,
    })
}

fn window(window_ms: i64) -> String {
    format_duration(window_ms.saturating_mul(1_000_000))
}
