//! The built-in service load balancer: gives Services of type LoadBalancer their addresses, which are those of the nodes
//! or come from a pool. Packets are the proxies' business.
//!
//! An address, port and protocol belong to one Service: whoever has it keeps it, and of those that are new the oldest
//! gets it. Ports of the nodes' own components and the range of node ports are nobody's.

mod addresses;
mod rivals;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::node::NODE;
use api::kinds::service::SERVICE;
use async_trait::async_trait;
use client::{Cache, EventType, Key, Object, ObjectReference};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::Node;
use crate::plan::{Action, Event, Patch, Plan};
use crate::services::endpoint_slice::{SERVICE_NAME, Slice};
use crate::services::service::Service;
use crate::settings::{AddressSource, LoadBalancer};
use rivals::Given;

pub const ROW: Row = Row {
    name: "service",
    account: "service-controller",
    queue: "service",
    workers: 1,
    start,
};

/// The class of the Services that are ours beside those that name none.
pub const CLASS: &str = "karve.dev/service-load-balancer";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Files slices under the Service they are for.
const BY_SERVICE: &str = "load-balanced-service";

/// Keys are Services.
struct Controller {
    settings: Option<LoadBalancer>,
    services: Arc<Cache<Service>>,
    nodes: Arc<Cache<Node>>,
    slices: Arc<Cache<Slice>>,
    memory: Arc<Mutex<Memory>>,
}

/// What was decided, whether or not the caches show it yet.
#[derive(Debug, Default)]
struct Memory {
    given: HashMap<Key, Given>,
    /// Services that have less than they could have, and why; each reason is told once.
    lacking: HashMap<Key, String>,
}

/// All that the addresses of one Service follow from.
struct View<'a> {
    settings: &'a LoadBalancer,
    service: &'a Service,
    /// Services that ask for one of its ports; with a pool all of them, for addresses are not shared there.
    rivals: Vec<Arc<Service>>,
    nodes: Vec<Arc<Node>>,
    /// The nodes that have a ready endpoint of the Service.
    nodes_with_endpoints: BTreeSet<String>,
    given: &'a HashMap<Key, Given>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let settings = setup.settings().load_balancer.clone();
    let services = setup.cache::<Service>(&SERVICE);
    let nodes = setup.cache::<Node>(&NODE);
    let slices = setup.cache::<Slice>(&ENDPOINT_SLICE);
    let memory: Arc<Mutex<Memory>> = Arc::default();
    if settings.is_some() {
        rivals::index(&services);
        slices.add_index(BY_SERVICE, |slice| {
            service_key(slice).iter().map(Key::to_string).collect()
        });
        watch_services(setup, &services, &memory);
        watch_nodes(setup, &nodes, &services);
        watch_slices(setup, &slices, &services);
    }
    Box::new(Controller {
        settings,
        services,
        nodes,
        slices,
        memory,
    })
}

/// What one Service gives back may be what others wait for.
fn watch_services(setup: &Setup<'_>, services: &Cache<Service>, memory: &Arc<Mutex<Memory>>) {
    let (queue, memory) = (setup.queue(), memory.clone());
    services.on_change(move |old, new| {
        let is_concerned = |service: &Arc<Service>| concerns(service);
        if !old.into_iter().chain(new).any(is_concerned) {
            return;
        }
        if let Some(service) = new.or(old) {
            queue.add(service.key());
        }
        let waiting: Vec<Key> = memory.lock().lacking.keys().cloned().collect();
        waiting.into_iter().for_each(|key| queue.add(key));
    });
}

/// Kubelets write their status often; only what addresses follow from matters.
fn watch_nodes(setup: &Setup<'_>, nodes: &Cache<Node>, services: &Arc<Cache<Service>>) {
    let (queue, services) = (setup.queue(), services.clone());
    nodes.on_change(move |old, new| {
        let shown = |node: Option<&Arc<Node>>| node.map(|node| addresses::facts(node));
        if shown(old) != shown(new) {
            let ours = services.all().into_iter().filter(|service| is_ours(service));
            ours.for_each(|service| queue.add(service.key()));
        }
    });
}

fn watch_slices(setup: &Setup<'_>, slices: &Cache<Slice>, services: &Arc<Cache<Service>>) {
    let services = services.clone();
    setup.watch(slices, move |slice| {
        let follows = |key: &Key| {
            let service = services.get_key(key.as_str());
            service.is_some_and(|service| is_ours(&service) && service.is_external_local())
        };
        service_key(slice).filter(follows).into_iter().collect()
    });
}

fn service_key(slice: &Slice) -> Option<Key> {
    let name = slice.metadata.labels.get(SERVICE_NAME)?;
    Some(Key::new(&slice.metadata.namespace, name))
}

/// Whether a Service is, was or competes with one of ours.
fn concerns(service: &Service) -> bool {
    is_ours(service) || has_finalizer(service) || !service.spec.external_ips.is_empty()
}

fn is_ours(service: &Service) -> bool {
    let class = service.spec.load_balancer_class.as_deref();
    service.spec.kind == "LoadBalancer" && class.is_none_or(|class| class == CLASS)
}

fn has_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.iter().any(|name| name == FINALIZER)
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(settings) = &self.settings else {
            return Ok(Plan::nothing());
        };
        let mut memory = self.memory.lock();
        let Some(service) = self.services.get_key(key.as_str()) else {
            memory.given.remove(key);
            memory.lacking.remove(key);
            return Ok(Plan::nothing());
        };
        if !is_ours(&service) || service.metadata.is_deleting() {
            memory.given.remove(key);
            memory.lacking.remove(key);
            return Ok(clean_up(&service));
        }
        let view = View {
            settings,
            rivals: match settings.source {
                AddressSource::Nodes => rivals::of(&self.services, &service),
                AddressSource::Pool(_) => rivals::all(&self.services, &service),
            },
            nodes: self.nodes.all(),
            nodes_with_endpoints: nodes_with_endpoints(&self.slices.by(BY_SERVICE, key.as_str())),
            given: &memory.given,
            service: &service,
        };
        let (addresses, lack) = addresses::decide(&view);
        let told = memory.lacking.get(key).cloned();
        let decided = Given {
            addresses: addresses.clone(),
            ports: rivals::ports(&service).collect(),
        };
        memory.given.insert(key.clone(), decided);
        match &lack {
            Some(why) => memory.lacking.insert(key.clone(), why.clone()),
            None => memory.lacking.remove(key),
        };
        Ok(ensure(
            &service,
            &addresses,
            lack.filter(|why| told.as_ref() != Some(why)),
        ))
    }
}

fn nodes_with_endpoints(slices: &[Arc<Slice>]) -> BTreeSet<String> {
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"].as_bool().unwrap_or(true));
    ready
        .filter_map(|endpoint| endpoint["nodeName"].as_str().map(str::to_owned))
        .collect()
}

/// Writes the addresses and the finalizer if they are not there; `lack` is told.
fn ensure(service: &Service, addresses: &[IpAddr], lack: Option<String>) -> Plan {
    let mut plan = Plan::default();
    if let Some(why) = lack {
        plan.actions.push(event(
            service,
            EventType::Warning,
            "SyncLoadBalancerFailed",
            format!("Error syncing load balancer: {why}"),
        ));
    }
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
    let is_written = service.status.load_balancer.is(&ingress);
    if is_written && has_finalizer(service) {
        return plan;
    }
    let normal = |reason, text: &str| event(service, EventType::Normal, reason, text.to_owned());
    plan.actions
        .push(normal("EnsuringLoadBalancer", "Ensuring load balancer"));
    let mut body = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    if !has_finalizer(service) {
        let finalizers = service.metadata.finalizers.iter().map(String::as_str);
        body["metadata"]["finalizers"] = finalizers.chain([FINALIZER]).collect();
    }
    plan.actions.push(status_patch(service, body));
    if !ingress.is_empty() {
        plan.actions
            .push(normal("EnsuredLoadBalancer", "Ensured load balancer"));
    }
    plan
}

/// Takes the addresses and the finalizer from a Service that no longer wants them. One of another class is another's,
/// with its finalizer.
fn clean_up(service: &Service) -> Plan {
    let mut plan = Plan::default();
    let is_foreign = service.spec.kind == "LoadBalancer" && !is_ours(service);
    if !has_finalizer(service) || is_foreign {
        return plan;
    }
    let normal = |reason, text: &str| event(service, EventType::Normal, reason, text.to_owned());
    let left = service.metadata.finalizers.iter().filter(|name| *name != FINALIZER);
    let left: Vec<&String> = left.collect();
    let body = json!({"metadata": {"finalizers": left}, "status": {"loadBalancer": {"ingress": null}}});
    plan.actions
        .push(normal("DeletingLoadBalancer", "Deleting load balancer"));
    plan.actions.push(status_patch(service, body));
    plan.actions
        .push(normal("DeletedLoadBalancer", "Deleted load balancer"));
    plan
}

fn status_patch(service: &Service, body: Value) -> Action {
    let patch = Patch {
        subresource: "status",
        ..Patch::new(&SERVICE, &service.metadata, body)
    };
    Action::Patch(patch.at_revision(&service.metadata))
}

fn event(service: &Service, kind: EventType, reason: &'static str, message: String) -> Action {
    Action::Event(Event {
        about: ObjectReference::new(&SERVICE, &service.metadata),
        kind,
        reason,
        message,
    })
}

#[cfg(test)]
mod tests;
