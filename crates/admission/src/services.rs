//! Where Services of the cluster can be reached from the API server, which need not be part of the pod network's
//! service rules.

use std::net::SocketAddr;

use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::service::SERVICE;
use api::{Fields, Value};
use client::ServiceResolver;
use client::destination::{DestinationError, Origin};

use crate::Lookup;

/// Resolves Services to their ready endpoints by what is stored.
pub struct Services<'a>(pub &'a dyn Lookup);

/// Where a Service's port can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// An address; of Services with an external name, that name.
    pub address: String,
    pub port: u16,
    /// The pod of the Service's namespace that the endpoint is said to be.
    pub pod: Option<String>,
}

impl Services<'_> {
    /// One of the places behind a Service's port, by number.
    pub fn endpoint(&self, namespace: &str, name: &str, port: u16) -> Result<Endpoint, String> {
        let service = self.0.get(&SERVICE, namespace, name);
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        if service["spec"].text("type") == "ExternalName" {
            return Ok(Endpoint {
                address: service["spec"].text("externalName").to_owned(),
                port,
                pod: None,
            });
        }
        let mut ports = service["spec"].list("ports").iter();
        let found = ports.find(|candidate| candidate.number("port") == i64::from(port));
        let found = found.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
        take_one(&mut endpoints(self.0, namespace, name, found.text("name")))
            .ok_or_else(|| format!("no endpoints available for service {name:?}"))
    }
}

impl ServiceResolver for Services<'_> {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
        let Endpoint { address, port, .. } = self.endpoint(namespace, name, port)?;
        Ok((address, port))
    }

    fn check(&self, address: SocketAddr, origin: Origin) -> Result<(), DestinationError> {
        self.0.check_destination(address, origin)
    }
}

/// The ready endpoints of a service's port, from its EndpointSlices.
pub fn endpoints(lookup: &dyn Lookup, namespace: &str, service: &str, port: &str) -> Vec<Endpoint> {
    let slices = lookup.list(&ENDPOINT_SLICE, namespace);
    let of_service = slices
        .iter()
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service)
        // Names that a slice holds are for others to resolve: nothing routes traffic to them.
        .filter(|slice| slice.text("addressType") != "FQDN");
    of_service
        .flat_map(|slice| ready_endpoints(slice, namespace, port))
        .collect()
}

/// Takes one of them, another one each time.
pub fn take_one(endpoints: &mut Vec<Endpoint>) -> Option<Endpoint> {
    match endpoints.len() {
        0 => None,
        count => Some(endpoints.swap_remove(trace::now_us() as usize % count)),
    }
}

fn ready_endpoints(slice: &Value, namespace: &str, port: &str) -> Vec<Endpoint> {
    let number = slice
        .list("ports")
        .iter()
        .find(|candidate| candidate.text("name") == port);
    let Some(number) = number.and_then(|port| u16::try_from(port.number("port")).ok()) else {
        return Vec::new();
    };
    let ready = slice.list("endpoints").iter();
    ready
        .filter(|endpoint| endpoint["conditions"]["ready"] != false)
        .filter_map(|endpoint| {
            let target = &endpoint["targetRef"];
            let is_pod = target.text("kind") == "Pod" && target.text("namespace") == namespace;
            Some(Endpoint {
                address: endpoint["addresses"][0].as_str()?.to_owned(),
                port: number,
                pod: is_pod.then(|| target.text("name").to_owned()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::Cluster;

    fn slice(kind: &str, address: &str, target: Value) -> Value {
        json!({
            "metadata": {"namespace": "team", "name": "web", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": kind, "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": [address], "targetRef": target}],
        })
    }

    fn found(slice: Value) -> Vec<Endpoint> {
        endpoints(&Cluster(vec![(&ENDPOINT_SLICE, slice)]), "team", "web", "http")
    }

    #[test]
    fn an_endpoint_is_the_pod_of_its_own_namespace_that_it_refers_to() {
        let target = |namespace: &str| json!({"kind": "Pod", "namespace": namespace, "name": "web-0"});
        let pods = |namespace| found(slice("IPv4", "10.0.0.7", target(namespace))).remove(0).pod;
        assert_eq!(pods("team").as_deref(), Some("web-0"));
        assert_eq!(pods("other"), None);
    }

    /// The names of such a slice would be resolved here, by whoever answers for them.
    #[test]
    fn names_in_slices_lead_nowhere() {
        assert_eq!(found(slice("FQDN", "127.0.0.1", Value::Null)), []);
        assert_eq!(found(slice("IPv4", "10.0.0.7", Value::Null)).len(), 1);
    }
}
