//! The servers that names are asked of, where they are no pods.

use std::net::IpAddr;

use crate::model::{PodFacts, PublishedPort, protocol};
use crate::objects::EndpointSlice;

/// The Service that names are asked of. Where it leads to machines' own addresses, its endpoints are treated as the pods
/// that users know it by.
pub const DNS_NAMESPACE: &str = "kube-system";
pub const DNS_SERVICE: &str = "kube-dns";
const DNS_PORT: u16 = 53;

/// The servers that a slice of the name service leads to at machines' own addresses, if there are any.
pub fn dns_servers(slice: &EndpointSlice) -> Option<PodFacts> {
    let machines = slice.endpoints.iter().filter(|endpoint| {
        let target = endpoint.target_ref.as_ref();
        target.is_none_or(|target| target.kind != "Pod")
    });
    let addresses: Vec<IpAddr> = machines
        .flat_map(|endpoint| &endpoint.addresses)
        .filter_map(|text| text.parse().ok())
        .collect();
    let published = slice.ports.iter().filter_map(|port| {
        let is_dns = port.name == "dns" || port.name == "dns-tcp";
        Some(PublishedPort {
            protocol: protocol(port.protocol.as_deref())?,
            name: port.name.clone(),
            known_as: if is_dns { DNS_PORT } else { port.port? },
            port: port.port?,
        })
    });
    let published: Vec<PublishedPort> = published.collect();
    let is_server = slice.metadata.namespace == DNS_NAMESPACE && !addresses.is_empty() && !published.is_empty();
    is_server.then(|| PodFacts {
        namespace: DNS_NAMESPACE.to_owned(),
        labels: [("k8s-app".to_owned(), DNS_SERVICE.to_owned())].into(),
        addresses,
        published,
        ..PodFacts::default()
    })
}
