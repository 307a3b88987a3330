//! Telling the cluster where DNS is: a Service with a fixed address, written by the server that the cluster begins with.
//!
//! The Service has no selector and keeps to the client's own node, so that any proxy, ours or upstream's, leads a
//! node's pods to that node's server. Its endpoints are made from the Nodes, by a controller.

use std::net::IpAddr;

use api::Resource;
use api::kinds::role::ROLE;
use api::kinds::role_binding::ROLE_BINDING;
use api::kinds::service::SERVICE;
use client::{Client, DeleteOptions};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";
/// What nodes and name servers were once allowed: to create Services and to change every EndpointSlice of
/// [`NAMESPACE`], which led all names of the cluster wherever any of them liked.
const WITHDRAWN: &[&str] = &["karve:node-dns", "karve:dns-advertiser"];

/// Creates the Service unless it is there: an administrator may have put another in its place.
pub async fn publish(client: &Client, address: IpAddr) -> Result<(), client::Error> {
    let services = client.resource(&SERVICE).in_namespace(NAMESPACE);
    match services.create::<IgnoredAny>(&service(address)).await {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

/// Takes back the rights that earlier versions gave to all nodes.
pub async fn withdraw(client: &Client) -> Result<(), client::Error> {
    let resources: [&'static Resource; 2] = [&ROLE_BINDING, &ROLE];
    for resource in resources {
        let api = client.resource(resource).in_namespace(NAMESPACE);
        for name in WITHDRAWN {
            match api.delete(name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

fn service(ip: IpAddr) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": NAMESPACE,
            "name": NAME,
            "labels": {"k8s-app": NAME, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS"},
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
