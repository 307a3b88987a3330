//! EndpointSlices: the addresses behind every Service that selects pods.

mod desired;
mod slices;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::kinds::service::SERVICE;
use api::{ObjectMeta, Value};
use async_trait::async_trait;
use client::{Cache, Key};
use serde::Deserialize;

use crate::model::{Metadata, Pod, with_metadata};
use crate::{Attempt, Plan, Reconcile, Row, Setup};

pub const ROW: Row = Row {
    name: "endpointslice",
    workers: 5,
    start,
};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Files pods under their namespace and each of their labels.
const BY_LABEL: &str = "label";
/// Files slices under the service they are for.
const BY_SERVICE: &str = "service";

/// Keys are Services.
struct Controller {
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    slices: Arc<Cache<Slice>>,
    nodes: Arc<Cache<Metadata>>,
}

struct View {
    service: Arc<Service>,
    /// The pods that the service selects.
    pods: Vec<Arc<Pod>>,
    /// The slices that this controller has made for the service.
    slices: Vec<Arc<Slice>>,
    /// The zone of each node that has one.
    zones: HashMap<String, String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Service {
    metadata: ObjectMeta,
    spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    selector: BTreeMap<String, String>,
    #[serde(rename = "clusterIP")]
    cluster_ip: String,
    ip_families: Vec<String>,
    ports: Vec<ServicePort>,
    publish_not_ready_addresses: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ServicePort {
    name: String,
    protocol: String,
    port: u16,
    /// A number, or the name of a port of the pod.
    target_port: Value,
    app_protocol: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Slice {
    metadata: ObjectMeta,
    address_type: String,
    endpoints: Option<Vec<Value>>,
    ports: Option<Vec<Value>>,
}

with_metadata!(Service, Slice);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let services = setup.cache::<Service>(&SERVICE);
    let pods = setup.cache::<Pod>(&POD);
    let slices = setup.cache::<Slice>(&ENDPOINT_SLICE);
    let nodes = setup.cache::<Metadata>(&NODE);
    pods.add_index(BY_LABEL, |pod| {
        let namespace = &pod.metadata.namespace;
        let labels = pod.metadata.labels.iter();
        labels
            .map(|(key, value)| format!("{namespace}/{key}={value}"))
            .collect()
    });
    slices.add_index(BY_SERVICE, |slice| {
        service_key(slice).iter().map(Key::to_string).collect()
    });
    setup.watch_own(&services);
    setup.watch(&slices, service_key);
    watch_pods(setup, &pods, &services);
    watch_zones(setup, &nodes, &pods, &services);
    Box::new(Controller {
        services,
        pods,
        slices,
        nodes,
    })
}

/// Kubelets write a pod's status often; only what an endpoint shows of it matters.
fn watch_pods(setup: &Setup<'_>, pods: &Cache<Pod>, services: &Arc<Cache<Service>>) {
    let (queue, services) = (setup.queue(), services.clone());
    pods.on_change(move |old, new| {
        if let (Some(old), Some(new)) = (old, new)
            && looks_alike(old, new)
        {
            return;
        }
        for pod in old.into_iter().chain(new) {
            selecting(&services, pod).into_iter().for_each(|key| queue.add(key));
        }
    });
}

fn watch_zones(setup: &Setup<'_>, nodes: &Cache<Metadata>, pods: &Arc<Cache<Pod>>, services: &Arc<Cache<Service>>) {
    let (queue, pods, services) = (setup.queue(), pods.clone(), services.clone());
    nodes.on_change(move |old, new| {
        let zone = |node: Option<&Arc<Metadata>>| node.and_then(|node| node.metadata.labels.get(ZONE).cloned());
        let Some(node) = new.or(old).filter(|_| zone(old) != zone(new)) else {
            return;
        };
        let on_node = pods.all().into_iter();
        for pod in on_node.filter(|pod| pod.spec.node_name == node.metadata.name) {
            selecting(&services, &pod).into_iter().for_each(|key| queue.add(key));
        }
    });
}

fn looks_alike(one: &Pod, other: &Pod) -> bool {
    let addresses =
        |pod: &Pod| -> Vec<String> { pod.status.pod_ips.iter().map(|address| address.ip.clone()).collect() };
    one.metadata.labels == other.metadata.labels
        && one.metadata.is_deleting() == other.metadata.is_deleting()
        && one.is_ready() == other.is_ready()
        && one.is_finished() == other.is_finished()
        && one.spec.node_name == other.spec.node_name
        && addresses(one) == addresses(other)
}

fn selecting(services: &Cache<Service>, pod: &Pod) -> Vec<Key> {
    let services = services.list(&pod.metadata.namespace).into_iter();
    services
        .filter(|service| service.selects(pod))
        .map(|service| client::Object::key(&*service))
        .collect()
}

/// The service that one of our slices is for.
fn service_key(slice: &Slice) -> Vec<Key> {
    let labels = &slice.metadata.labels;
    match (labels.get(SERVICE_NAME), labels.get(MANAGED_BY).map(String::as_str)) {
        (Some(service), Some(MANAGER)) => vec![Key::new(&slice.metadata.namespace, service)],
        _ => Vec::new(),
    }
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        Ok(match self.view(key) {
            Some(view) => slices::plan(&view),
            None => Plan::nothing(),
        })
    }
}

impl Controller {
    fn view(&self, key: &Key) -> Option<View> {
        let service = self.services.get_key(key.as_str())?;
        let pods = self.selected(&service);
        let zones = pods.iter().filter_map(|pod| {
            let node = self.nodes.get("", &pod.spec.node_name)?;
            Some((pod.spec.node_name.clone(), node.metadata.labels.get(ZONE)?.clone()))
        });
        Some(View {
            zones: zones.collect(),
            slices: self.slices.by(BY_SERVICE, key.as_str()),
            pods,
            service,
        })
    }

    /// Looks under the label that the fewest pods have.
    fn selected(&self, service: &Service) -> Vec<Arc<Pod>> {
        let namespace = &service.metadata.namespace;
        let labels = service.spec.selector.iter();
        let found = labels.map(|(key, value)| self.pods.by(BY_LABEL, &format!("{namespace}/{key}={value}")));
        let mut fewest = found.min_by_key(Vec::len).unwrap_or_default();
        fewest.retain(|pod| service.selects(pod));
        fewest
    }
}

impl Service {
    /// A service without a selector has its endpoints from someone else.
    fn selects(&self, pod: &Pod) -> bool {
        let selector = &self.spec.selector;
        !selector.is_empty()
            && selector
                .iter()
                .all(|(key, value)| pod.metadata.labels.get(key) == Some(value))
    }

    fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }
}

#[cfg(test)]
mod tests;
