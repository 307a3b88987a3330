//! Telling the cluster where DNS is: a Service with a fixed address, and an EndpointSlice for each node's server.
//!
//! The Service has no selector and keeps to the client's own node, so that any proxy, ours or upstream's, leads a
//! node's pods to that node's server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use api::kinds;
use client::{Client, Patch};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";
const SERVICE: &str = "kube-dns";
/// How often to try again when it is refused, and after what time.
const MAX_REFUSALS: u32 = 100;
const AFTER_REFUSAL: Duration = Duration::from_millis(10);

/// One node's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The address that all pods' `resolv.conf` names.
    pub service_ip: IpAddr,
    pub node_name: String,
    /// Where the server of that node answers; an address that pods can reach.
    pub server: SocketAddr,
}

/// Creates what is missing, and points the node's slice at its server. Rights that were only just granted may still be
/// unknown to the server, so refusals are not taken for an answer at once.
pub async fn advertise(client: &Client, advertisement: &Advertisement) -> Result<(), client::Error> {
    for _ in 0..MAX_REFUSALS {
        match advertise_once(client, advertisement).await {
            Err(error) if error.is_forbidden() => tokio::time::sleep(AFTER_REFUSAL).await,
            done => return done,
        }
    }
    advertise_once(client, advertisement).await
}

async fn advertise_once(client: &Client, advertisement: &Advertisement) -> Result<(), client::Error> {
    let services = client.resource(&kinds::service::SERVICE).in_namespace(NAMESPACE);
    match services.create::<IgnoredAny>(&service(advertisement.service_ip)).await {
        Err(error) if !error.is_already_exists() => return Err(error),
        _ => {}
    }
    let slices = client
        .resource(&kinds::endpoint_slice::ENDPOINT_SLICE)
        .in_namespace(NAMESPACE);
    let slice = slice(advertisement);
    match slices.create::<IgnoredAny>(&slice).await {
        Err(error) if error.is_already_exists() => {
            let name = slice_name(&advertisement.node_name);
            let change = json!({"endpoints": slice["endpoints"], "ports": slice["ports"]});
            slices.patch::<IgnoredAny>(&name, Patch::merge(&change)).await?;
            Ok(())
        }
        other => other.map(|_| ()),
    }
}

fn slice_name(node_name: &str) -> String {
    format!("{SERVICE}-{node_name}")
}

fn service(ip: IpAddr) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": NAMESPACE,
            "name": SERVICE,
            "labels": {"k8s-app": SERVICE, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
        },
        "spec": {
            "clusterIP": ip,
            "internalTrafficPolicy": "Local",
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        },
    })
}

fn slice(advertisement: &Advertisement) -> Value {
    let server = advertisement.server;
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": NAMESPACE,
            "name": slice_name(&advertisement.node_name),
            "labels": {"kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": "karve-dns"},
        },
        "addressType": if server.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{
            "addresses": [server.ip()],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": advertisement.node_name,
        }],
        "ports": [
            {"name": "dns", "port": server.port(), "protocol": "UDP"},
            {"name": "dns-tcp", "port": server.port(), "protocol": "TCP"},
        ],
    })
}
