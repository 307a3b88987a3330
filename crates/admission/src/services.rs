//! Where Services of the cluster can be reached from the API server, which need not be part of the pod network's
//! service rules.

use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::service::SERVICE;
use api::{Fields, Value};
use client::ServiceResolver;

use crate::Lookup;

/// Resolves Services to their ready endpoints by what is stored.
pub struct Services<'a>(pub &'a dyn Lookup);

impl ServiceResolver for Services<'_> {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
        let service = self.0.get(&SERVICE, namespace, name);
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        if service["spec"].text("type") == "ExternalName" {
            return Ok((service["spec"].text("externalName").to_owned(), port));
        }
        let ports = service["spec"].list("ports").iter();
        let found = ports
            .clone()
            .find(|candidate| candidate.number("port") == i64::from(port));
        let found = found.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
        endpoint(self.0, namespace, name, found.text("name"))
            .ok_or_else(|| format!("no endpoints available for service {name:?}"))
    }
}

/// A ready endpoint of a service's port, from its EndpointSlices; another one each time.
pub fn endpoint(lookup: &dyn Lookup, namespace: &str, service: &str, port: &str) -> Option<(String, u16)> {
    let slices = lookup.list(&ENDPOINT_SLICE, namespace);
    let of_service = slices
        .iter()
        .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
    let mut ready: Vec<(String, u16)> = of_service.flat_map(|slice| ready_addresses(slice, port)).collect();
    match ready.len() {
        0 => None,
        count => Some(ready.swap_remove(trace::now_us() as usize % count)),
    }
}

fn ready_addresses(slice: &Value, port: &str) -> Vec<(String, u16)> {
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
        .filter_map(|endpoint| Some((endpoint["addresses"][0].as_str()?.to_owned(), number)))
        .collect()
}
