//! The fields of Services and EndpointSlices that names are made of.

use std::net::IpAddr;

use client::{Key, Object};
use serde::{Deserialize, Deserializer};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub name: String,
    pub namespace: String,
    pub resource_version: String,
    pub labels: Labels,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Labels {
    #[serde(rename = "kubernetes.io/service-name")]
    pub service_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: Metadata,
    pub spec: ServiceSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    #[serde(rename = "clusterIPs", deserialize_with = "or_default")]
    pub cluster_ips: Vec<String>,
    pub external_name: String,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Port {
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub protocol: String,
    pub port: Option<u16>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EndpointSlice {
    pub metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub endpoints: Vec<Endpoint>,
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<String>,
    pub conditions: Conditions,
    pub hostname: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Conditions {
    pub ready: Option<bool>,
}

impl Service {
    /// The Service's own addresses; none if it is headless or a name for something outside.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let one = std::slice::from_ref(&self.spec.cluster_ip);
        let texts = if self.spec.cluster_ips.is_empty() {
            one
        } else {
            &self.spec.cluster_ips
        };
        texts.iter().filter_map(|text| text.parse().ok()).collect()
    }

    /// What the Service is a name for, if it is one for something outside.
    pub fn external_name(&self) -> Option<String> {
        let name = self.spec.external_name.trim_end_matches('.').to_ascii_lowercase();
        (self.spec.kind == "ExternalName" && !name.is_empty()).then_some(name)
    }
}

impl EndpointSlice {
    /// The Service that the slice is of.
    pub fn service(&self) -> Option<Key> {
        let name = &self.metadata.labels.service_name;
        (!name.is_empty()).then(|| Key::new(&self.metadata.namespace, name))
    }
}

impl Endpoint {
    /// Not knowing counts as ready.
    pub fn is_ready(&self) -> bool {
        self.conditions.ready.unwrap_or(true)
    }

    pub fn address(&self) -> Option<IpAddr> {
        self.addresses.first()?.parse().ok()
    }

    /// The endpoint's label below its Service: the pod's hostname, or its address with dashes.
    pub fn label(&self) -> String {
        match self.hostname.as_deref() {
            Some(hostname) if !hostname.is_empty() => hostname.to_ascii_lowercase(),
            _ => self
                .addresses
                .first()
                .map(|text| text.replace(['.', ':'], "-"))
                .unwrap_or_default(),
        }
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
