//! The fields of NetworkPolicies, Pods, Namespaces and EndpointSlices that are read here.

use std::collections::BTreeMap;

use api::{LabelSelector, ObjectMeta};
use client::WithMetadata;
use serde::{Deserialize, Deserializer};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NetworkPolicy {
    pub metadata: ObjectMeta,
    pub spec: PolicySpec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicySpec {
    pub pod_selector: LabelSelector,
    #[serde(deserialize_with = "or_default")]
    pub policy_types: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub ingress: Vec<IngressRule>,
    #[serde(deserialize_with = "or_default")]
    pub egress: Vec<EgressRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IngressRule {
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<PolicyPort>,
    #[serde(deserialize_with = "or_default")]
    pub from: Vec<PolicyPeer>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EgressRule {
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<PolicyPort>,
    #[serde(deserialize_with = "or_default")]
    pub to: Vec<PolicyPeer>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPort {
    pub protocol: Option<String>,
    pub port: Option<PortReference>,
    pub end_port: Option<u16>,
}

/// A port by number, or by the name that a container gives it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum PortReference {
    Number(u16),
    Name(String),
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyPeer {
    pub pod_selector: Option<LabelSelector>,
    pub namespace_selector: Option<LabelSelector>,
    pub ip_block: Option<IpBlock>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct IpBlock {
    pub cidr: String,
    #[serde(deserialize_with = "or_default")]
    pub except: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: String,
    pub host_network: bool,
    #[serde(deserialize_with = "or_default")]
    pub containers: Vec<Container>,
    /// Sidecars are among them, and have ports as other containers do.
    #[serde(deserialize_with = "or_default")]
    pub init_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Container {
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    pub name: String,
    pub container_port: u16,
    pub protocol: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    #[serde(rename = "podIPs", deserialize_with = "or_default")]
    pub pod_ips: Vec<PodIp>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodIp {
    pub ip: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}

/// An EndpointSlice of the Service that names are asked of.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EndpointSlice {
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<EndpointPort>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    pub target_ref: Option<TargetRef>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TargetRef {
    pub kind: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    pub name: String,
    pub protocol: Option<String>,
    pub port: Option<u16>,
}

impl WithMetadata for NetworkPolicy {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl WithMetadata for Pod {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl WithMetadata for Namespace {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl WithMetadata for EndpointSlice {
    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

pub type Labels = BTreeMap<String, String>;

/// Go writes an empty list as null.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
