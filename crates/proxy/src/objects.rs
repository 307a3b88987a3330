//! The fields of Services and EndpointSlices that the proxy reads.

use std::net::IpAddr;

use client::{Key, Object};
use serde::{Deserialize, Deserializer};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    /// As RFC 3339 writes it, so that older ones sort first.
    #[serde(deserialize_with = "or_default")]
    pub creation_timestamp: String,
    pub deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub labels: Labels,
}

/// The labels that decide whose business an object is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Labels {
    #[serde(rename = "kubernetes.io/service-name")]
    pub service_name: String,
    /// A Service with this label is for another proxy.
    #[serde(rename = "service.kubernetes.io/service-proxy-name")]
    pub proxy_name: Option<String>,
    /// A Service with this label has no rules whatever else it says.
    #[serde(rename = "service.kubernetes.io/headless")]
    pub headless: Option<String>,
    /// Of a Node.
    #[serde(rename = "topology.kubernetes.io/zone")]
    pub zone: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: Metadata,
    pub spec: ServiceSpec,
    pub status: ServiceStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: String,
    /// Used when `clusterIPs` is not set.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    pub cluster_ips: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ServicePortSpec>,
    #[serde(rename = "externalIPs", deserialize_with = "or_default")]
    pub external_ips: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub load_balancer_source_ranges: Vec<String>,
    pub session_affinity: String,
    pub session_affinity_config: Option<SessionAffinityConfig>,
    pub internal_traffic_policy: Option<String>,
    pub external_traffic_policy: Option<String>,
    /// Where load balancers ask whether this node has endpoints; 0 for none.
    pub health_check_node_port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePortSpec {
    pub name: String,
    pub protocol: String,
    pub port: u16,
    pub node_port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SessionAffinityConfig {
    #[serde(rename = "clientIP")]
    pub client_ip: Option<ClientIpConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientIpConfig {
    pub timeout_seconds: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceStatus {
    pub load_balancer: LoadBalancerStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LoadBalancerStatus {
    #[serde(deserialize_with = "or_default")]
    pub ingress: Vec<LoadBalancerIngress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadBalancerIngress {
    pub ip: String,
    /// `Proxy` means that traffic must go through the load balancer itself.
    pub ip_mode: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    pub metadata: Metadata,
    /// `IPv4`, `IPv6`, or `FQDN`, which is not for proxies.
    pub address_type: String,
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    pub conditions: EndpointConditions,
    pub node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub hints: EndpointHints,
}

/// Who an endpoint is meant for; empty if that is not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    #[serde(deserialize_with = "or_default")]
    pub for_zones: Vec<Hint>,
    #[serde(deserialize_with = "or_default")]
    pub for_nodes: Vec<Hint>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Hint {
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    pub port: Option<u16>,
    #[serde(deserialize_with = "or_default")]
    pub protocol: String,
}

/// A Node, of which only the addresses matter, its zone, and whether it is about to go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    pub metadata: Metadata,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(deserialize_with = "or_default")]
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    pub key: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<NodeAddress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

/// A node has one or two internal addresses; it writes the list itself.
const MAX_NODE_ADDRESSES: usize = 8;
/// The cluster autoscaler is about to remove nodes with this taint.
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

impl Node {
    /// Whether load balancers should send nobody here any more.
    pub fn is_leaving(&self) -> bool {
        let tainted = self.spec.taints.iter().any(|taint| taint.key == TO_BE_DELETED);
        tainted || self.metadata.deletion_timestamp.is_some()
    }

    pub fn internal_addresses(&self) -> Vec<IpAddr> {
        let internal = self.status.addresses.iter().filter(|entry| entry.kind == "InternalIP");
        addresses(internal.map(|entry| &entry.address))
            .into_iter()
            .take(MAX_NODE_ADDRESSES)
            .collect()
    }
}

impl EndpointSlice {
    /// The Service that the slice is of.
    pub fn service(&self) -> Option<Key> {
        let name = &self.metadata.labels.service_name;
        (!name.is_empty()).then(|| Key::new(&self.metadata.namespace, name))
    }
}

impl EndpointConditions {
    /// Not knowing counts as ready.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    pub fn is_serving(&self) -> bool {
        self.serving.unwrap_or(self.is_ready())
    }

    pub fn is_terminating(&self) -> bool {
        self.terminating.unwrap_or(false)
    }
}

impl Object for Node {
    fn decode(object: &bytes::Bytes) -> Result<Node, serde_json::Error> {
        serde_json::from_slice(object)
    }

    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Object for Service {
    fn decode(object: &bytes::Bytes) -> Result<Service, serde_json::Error> {
        serde_json::from_slice(object)
    }

    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Object for EndpointSlice {
    fn decode(object: &bytes::Bytes) -> Result<EndpointSlice, serde_json::Error> {
        serde_json::from_slice(object)
    }

    fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    fn name(&self) -> &str {
        &self.metadata.name
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

/// Go writes `null` for empty lists and texts.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// The addresses of a list of texts; what is none (a host name, an empty text) is left out.
pub fn addresses<'a>(texts: impl IntoIterator<Item = &'a String>) -> Vec<IpAddr> {
    texts.into_iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_labels_field_is_the_one_slices_carry() {
        let slice: EndpointSlice = serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "a", "labels": {"kubernetes.io/service-name": "web"}}, "endpoints": null,
            "ports": [{"name": null, "port": null, "protocol": "TCP"}],
        }))
        .unwrap();
        assert_eq!(slice.service().unwrap().as_str(), "a/web");
    }
}
