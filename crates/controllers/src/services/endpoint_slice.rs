//! EndpointSlices: the addresses behind every Service that selects pods.

mod desired;
mod slices;

use std::collections::HashMap;
use std::sync::Arc;

use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::node::NODE;
use api::kinds::pod::POD;
use api::kinds::service::SERVICE;
use api::{ObjectMeta, Value};
use async_trait::async_trait;
use client::{Cache, Key};
use serde::Deserialize;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Metadata, Pod, with_metadata};
use crate::plan::Plan;
use crate::services::service::{self, Service};

pub const ROW: Row = Row {
    name: "endpointslice",
    account: "endpointslice-controller",
    queue: "endpoint_slice",
    workers: 5,
    start,
};

pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const ZONE: &str = "topology.kubernetes.io/zone";

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
#[serde(default, rename_all = "camelCase")]
pub struct Slice {
    pub metadata: ObjectMeta,
    pub address_type: String,
    pub endpoints: Option<Vec<Value>>,
    pub ports: Option<Vec<Value>>,
}

with_metadata!(Slice);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let services = setup.cache::<Service>(&SERVICE);
    let pods = setup.cache::<Pod>(&POD);
    let slices = setup.cache::<Slice>(&ENDPOINT_SLICE);
    let nodes = setup.cache::<Metadata>(&NODE);
    slices.add_index(BY_SERVICE, |slice| {
        service_key(slice).iter().map(Key::to_string).collect()
    });
    setup.watch_own(&services);
    setup.watch(&slices, service_key);
    service::watch_pods(setup, &pods, &services);
    watch_zones(setup, &nodes, &pods, &services);
    Box::new(Controller {
        services,
        pods,
        slices,
        nodes,
    })
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
            service::selecting(&services, &pod)
                .into_iter()
                .for_each(|key| queue.add(key));
        }
    });
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
        let pods = service.selected(&self.pods);
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
}

#[cfg(test)]
mod tests;
