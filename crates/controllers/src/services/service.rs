//! Services and the pods they select; what the controllers of endpoints share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use api::{ObjectMeta, Value};
use client::{Cache, Key};
use serde::Deserialize;
use serde_json::json;

use crate::driver::Setup;
use crate::model::{Container, Pod, with_metadata};

/// The label by which headless services and their endpoints are known.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Files pods under their namespace and each of their labels.
const BY_LABEL: &str = "label";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: ObjectMeta,
    pub spec: ServiceSpec,
    pub status: ServiceStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: String,
    pub selector: BTreeMap<String, String>,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    pub ip_families: Vec<String>,
    pub ports: Vec<ServicePort>,
    pub publish_not_ready_addresses: bool,
    pub load_balancer_class: Option<String>,
    #[serde(rename = "loadBalancerIP")]
    pub load_balancer_ip: String,
    #[serde(rename = "externalIPs")]
    pub external_ips: Vec<String>,
    pub external_traffic_policy: String,
    pub traffic_distribution: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    pub load_balancer: LoadBalancerStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    /// As they are written.
    ingress: Vec<Value>,
}

impl LoadBalancerStatus {
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.ingress
            .iter()
            .filter_map(|ingress| ingress["ip"].as_str()?.parse().ok())
    }

    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses().any(|known| known == address)
    }

    pub fn is(&self, ingress: &[Value]) -> bool {
        self.ingress == ingress
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    pub name: String,
    pub protocol: String,
    pub port: u16,
    /// A number, or the name of a port of the pod.
    pub target_port: Value,
    pub app_protocol: Option<String>,
}

with_metadata!(Service);

/// Kubelets write a pod's status often; only what an endpoint shows of it matters.
pub fn watch_pods(setup: &Setup<'_>, pods: &Cache<Pod>, services: &Arc<Cache<Service>>) {
    pods.add_index(BY_LABEL, |pod| {
        let namespace = &pod.metadata.namespace;
        let labels = pod.metadata.labels.iter();
        labels
            .map(|(key, value)| format!("{namespace}/{key}={value}"))
            .collect()
    });
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

/// The services that select a pod.
pub fn selecting(services: &Cache<Service>, pod: &Pod) -> Vec<Key> {
    let services = services.list(&pod.metadata.namespace).into_iter();
    services
        .filter(|service| service.selects(pod))
        .map(|service| client::Object::key(&*service))
        .collect()
}

impl Service {
    /// A service without a selector has its endpoints from someone else.
    pub fn selects(&self, pod: &Pod) -> bool {
        let selector = &self.spec.selector;
        !selector.is_empty()
            && selector
                .iter()
                .all(|(key, value)| pod.metadata.labels.get(key) == Some(value))
    }

    /// Whether clients outside see only the endpoints of the node that they come to.
    pub fn is_external_local(&self) -> bool {
        self.spec.external_traffic_policy == "Local"
    }

    pub fn is_headless(&self) -> bool {
        self.spec.cluster_ip == "None"
    }

    /// The pods that the service selects. Looks under the label that the fewest pods have.
    pub fn selected(&self, pods: &Cache<Pod>) -> Vec<Arc<Pod>> {
        let namespace = &self.metadata.namespace;
        let labels = self.spec.selector.iter();
        let found = labels.map(|(key, value)| pods.by(BY_LABEL, &format!("{namespace}/{key}={value}")));
        let mut fewest = found.min_by_key(Vec::len).unwrap_or_default();
        fewest.retain(|pod| self.selects(pod));
        fewest
    }

    /// The service's ports as they are on this pod; a name that the pod does not have is left out.
    pub fn ports_of(&self, pod: &Pod) -> Vec<Value> {
        let ports = self.spec.ports.iter().filter_map(|port| {
            let protocol = protocol(&port.protocol);
            let mut value = json!({"name": port.name, "protocol": protocol, "port": target(port, pod)?});
            if let Some(app_protocol) = &port.app_protocol {
                value["appProtocol"] = app_protocol.as_str().into();
            }
            Some(value)
        });
        ports.collect()
    }
}

fn target(port: &ServicePort, pod: &Pod) -> Option<u64> {
    let Some(name) = port.target_port.as_str() else {
        let number = port.target_port.as_u64().filter(|number| *number != 0);
        return Some(number.unwrap_or(u64::from(port.port)));
    };
    let is_sidecar = |container: &&Container| container.restart_policy == "Always";
    let sidecars = pod.spec.init_containers.iter().filter(is_sidecar);
    let mut ports = pod
        .spec
        .containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| &container.ports);
    let found = ports.find(|found| found.name == name && protocol(&found.protocol) == protocol(&port.protocol));
    found.map(|found| u64::from(found.container_port))
}

fn protocol(text: &str) -> &str {
    if text.is_empty() { "TCP" } else { text }
}
