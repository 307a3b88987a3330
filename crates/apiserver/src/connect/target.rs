//! Where a request is passed on to.
//!
//! What a Node, a Pod or an EndpointSlice says of its address was written by a node or a user. It is resolved once, checked,
//! and connected to as it was checked.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use admission::Lookup;
use api::{Error, Fields, Reason, Value, kinds};
use client::destination::{self, DestinationError, Origin};
use http::Uri;
use registry::Served;

use super::proxy_name::ProxyName;
use crate::ApiServer;
use crate::dial::{self, Connection};
use crate::request::{Query, RequestInfo};

enum Scheme {
    /// Of the named node.
    Kubelet(String),
    Plain,
    /// Pods and services behind `https:` have certificates that nobody vouched for.
    Tls,
}

pub struct Target {
    scheme: Scheme,
    addresses: Vec<SocketAddr>,
    /// Whose machine must have been shown to have the address before anything is sent there.
    machine: Option<Kubelet>,
    pub host: String,
    pub uri: Uri,
}

/// Where a Node says that its kubelet answers.
struct Kubelet {
    node: String,
    host: String,
    port: u16,
}

impl Target {
    /// Where to; nowhere when there is nothing yet, as in the log of a pod that has no node.
    pub async fn find(
        server: &ApiServer,
        served: &Arc<Served>,
        info: &RequestInfo,
        query: &Query,
        raw_query: &str,
    ) -> Result<Option<Target>, Error> {
        let target = match (served.resource.plural, info.subresource.as_str()) {
            ("nodes", _) => Target::node_proxy(server, info, raw_query).await,
            ("pods", "proxy") => Target::pod_proxy(server, served, info, raw_query).await,
            ("services", _) => Target::service_proxy(server, served, info, raw_query).await,
            ("pods", subresource) => {
                let pod = stored(server, served, &info.namespace, &info.name).await?;
                let uri = kubelet_uri(info, subresource, &pod, query)?;
                match pod["spec"].text("nodeName") {
                    "" if subresource == "log" => return Ok(None),
                    "" => Err(Error::bad_request(format!(
                        "pod {} does not have a host assigned",
                        info.name
                    ))),
                    node => Kubelet::find(server, node).await?.target(server, uri, in_full).await,
                }
            }
            (other, _) => Err(Error::internal(format!("{other} cannot be connected to"))),
        };
        target.map(Some)
    }

    /// The kubelet of a node.
    pub async fn of_kubelet(server: &ApiServer, node: &str, uri: Uri) -> Result<Target, Error> {
        Kubelet::find(server, node).await?.target(server, uri, in_full).await
    }

    pub async fn dial(&self, server: &ApiServer) -> Result<Connection, Error> {
        let connected = self.connect(server).await;
        connected.map_err(|error| {
            Error::new(
                Reason::ServiceUnavailable,
                format!("error trying to reach {}: {error}", self.host),
            )
        })
    }

    async fn connect(&self, server: &ApiServer) -> Result<Connection, String> {
        if let Scheme::Kubelet(node) = &self.scheme {
            return Ok(Box::new(server.kubelets.dial(node, &self.addresses).await?));
        }
        let addresses = match &self.machine {
            Some(machine) => machine.proved(server, self.addresses.clone()).await?,
            None => self.addresses.clone(),
        };
        let connected: std::io::Result<Connection> = match (&self.scheme, addresses.first()) {
            (Scheme::Tls, Some(first)) => {
                let name = first.ip().to_string();
                let connected = dial::tls(server.insecure_tls.clone(), &name, &addresses).await;
                connected.map(|stream| Box::new(stream) as Connection)
            }
            _ => dial::plain(&addresses)
                .await
                .map(|stream| Box::new(stream) as Connection),
        };
        connected.map_err(|error| error.to_string())
    }

    async fn node_proxy(server: &ApiServer, info: &RequestInfo, raw_query: &str) -> Result<Target, Error> {
        let wanted = ProxyName::parse(&info.name, "node")?;
        let kubelet = Kubelet::find(server, &wanted.name).await?;
        let uri = super::uri(&format!("/{}", info.rest), raw_query)?;
        let port = match wanted.port.as_str() {
            "" => kubelet.port,
            text => text
                .parse()
                .map_err(|_| Error::bad_request(format!("invalid node request {:?}", info.name)))?,
        };
        if port == kubelet.port {
            return kubelet.target(server, uri, in_brief).await;
        }
        // Another server of the node's machine. The node must be there, for who may ask for one node must not reach another
        // by the address that the first one claims.
        let addresses = resolve(&kubelet.host, port).await?;
        check(server, &addresses).map_err(in_brief)?;
        Ok(Target {
            scheme: wanted.scheme(),
            host: format!("{}:{port}", kubelet.host),
            addresses,
            machine: Some(kubelet),
            uri,
        })
    }

    async fn pod_proxy(
        server: &ApiServer,
        served: &Arc<Served>,
        info: &RequestInfo,
        raw_query: &str,
    ) -> Result<Target, Error> {
        let wanted = ProxyName::parse(&info.name, "pod")?;
        let pod = stored(server, served, &info.namespace, &wanted.name).await?;
        let not_allowed = || Error::bad_request("address not allowed");
        let ip: IpAddr = pod["status"].text("podIP").parse().map_err(|_| not_allowed())?;
        let port = match wanted.port.as_str() {
            "" => container_ports(&pod)
                .next()
                .and_then(|port| port["containerPort"].as_u64())
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or(80),
            text => named_container_port(&pod, text)
                .ok_or_else(|| Error::bad_request(format!("pod {} has no port {text:?}", wanted.name)))?,
        };
        let uri = super::uri(&format!("/{}", info.rest), raw_query)?;
        let at = SocketAddr::new(ip, port);
        Target::of_pod(server, &pod, at, wanted.scheme(), uri).await
    }

    async fn service_proxy(
        server: &ApiServer,
        served: &Arc<Served>,
        info: &RequestInfo,
        raw_query: &str,
    ) -> Result<Target, Error> {
        let wanted = ProxyName::parse(&info.name, "service")?;
        let service = stored(server, served, &info.namespace, &wanted.name).await?;
        let unavailable = || {
            Error::new(
                Reason::ServiceUnavailable,
                format!("no endpoints available for service {:?}", info.name),
            )
        };
        let ports = service["spec"].list("ports");
        let port = match wanted.port.as_str() {
            "" => ports.first(),
            text => ports
                .iter()
                .find(|port| port["name"] == text || text.parse().is_ok_and(|number: u64| port["port"] == number)),
        };
        let port_name = port.ok_or_else(unavailable)?.text("name");
        let lookup = server.registry.lookup();
        let slices = lookup.list(&kinds::endpoint_slice::ENDPOINT_SLICE, &info.namespace);
        let is_own = |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == wanted.name;
        // A service that nobody has looked for endpoints of yet is as good as none.
        if !slices.iter().any(is_own) {
            return Err(Error::not_found(served.resource, &wanted.name));
        }
        let mut left = admission::endpoints(&lookup, &info.namespace, &wanted.name, port_name);
        while let Some(endpoint) = admission::take_one(&mut left) {
            // Slices are written by users. Only pods are proxied to, at addresses that they have.
            let Some((pod, at)) = pod_of(&lookup, &info.namespace, &endpoint) else {
                continue;
            };
            let uri = super::uri(&format!("/{}", info.rest), raw_query)?;
            if let Ok(target) = Target::of_pod(server, &pod, at, wanted.scheme(), uri).await {
                return Ok(target);
            }
        }
        Err(unavailable())
    }

    /// A server in a pod. One on the host's network has an address of its node, and that may be this server's machine: then
    /// the node must be here.
    async fn of_pod(
        server: &ApiServer,
        pod: &Value,
        at: SocketAddr,
        scheme: Scheme,
        uri: Uri,
    ) -> Result<Target, Error> {
        let mut target = Target {
            scheme,
            addresses: vec![at],
            machine: None,
            host: at.to_string(),
            uri,
        };
        let node = node_of_host_pod(pod);
        match (server.registry.lookup().check_destination(at, Origin::Object), node) {
            (Ok(()), _) => {}
            (Err(DestinationError::OwnMachine(_)), Some(node)) => {
                target.machine = Some(Kubelet::find(server, &node).await?);
            }
            (Err(refused), _) => return Err(in_brief(refused)),
        }
        Ok(target)
    }
}

impl Kubelet {
    async fn find(server: &ApiServer, node: &str) -> Result<Kubelet, Error> {
        let served = server.registry.served(&kinds::node::NODE)?;
        let object = stored(server, served, "", node).await?;
        let host = ["InternalIP", "ExternalIP", "Hostname"]
            .iter()
            .find_map(|kind| node_address(&object, kind));
        let host = host.ok_or_else(|| {
            Error::new(
                Reason::ServiceUnavailable,
                format!("node {node:?} has no address in status.addresses"),
            )
        })?;
        let port = object["status"]["daemonEndpoints"]["kubeletEndpoint"].number("Port");
        Ok(Kubelet {
            node: node.to_owned(),
            host,
            port: match u16::try_from(port) {
                Ok(port @ 1..) => port,
                _ => KUBELET_PORT,
            },
        })
    }

    /// Those of some addresses of which the kubelet there has shown that they are this node's.
    async fn proved(&self, server: &ApiServer, mut addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
        let with_port = |address: &SocketAddr| SocketAddr::new(address.ip(), self.port);
        let asked: Vec<SocketAddr> = addresses.iter().map(with_port).collect();
        if let Some(proved) = server.kubelets.prove(&self.node, &asked).await? {
            addresses.retain(|address| address.ip() == proved);
        }
        Ok(addresses)
    }

    async fn target(self, server: &ApiServer, uri: Uri, tell: fn(DestinationError) -> Error) -> Result<Target, Error> {
        let addresses = resolve(&self.host, self.port).await?;
        // The kubelet in this process may be on loopback, where the machine has no network; nobody else has one there.
        let is_local = |local: &crate::LocalNode| local.name == self.node && addresses == [local.kubelet];
        if !server.facts.local_node.as_ref().is_some_and(is_local) {
            check(server, &addresses).map_err(tell)?;
        }
        Ok(Target {
            scheme: Scheme::Kubelet(self.node),
            host: format!("{}:{}", self.host, self.port),
            addresses,
            machine: None,
            uri,
        })
    }
}

/// Used where a Node does not say at which port its kubelet answers.
const KUBELET_PORT: u16 = 10250;

impl ProxyName {
    fn scheme(&self) -> Scheme {
        if self.tls { Scheme::Tls } else { Scheme::Plain }
    }
}

async fn stored(server: &ApiServer, served: &Arc<Served>, namespace: &str, name: &str) -> Result<Value, Error> {
    server.registry.get(served, namespace, name).await?.value(served)
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let resolved = destination::resolve(host, port).await;
    resolved.map_err(|error| Error::bad_request(error.to_string()))
}

/// The addresses of an endpoint of a Service. One on this machine must show by its certificate who it is, or be a pod on
/// the network of a node that is here.
pub async fn resolve_endpoint(
    server: &ApiServer,
    namespace: &str,
    endpoint: &admission::Endpoint,
    shows_certificate: bool,
) -> Result<Vec<SocketAddr>, String> {
    let resolved = destination::resolve(&endpoint.address, endpoint.port).await;
    let addresses = resolved.map_err(|error| error.to_string())?;
    let mut machine = None;
    for address in &addresses {
        let lookup = server.registry.lookup();
        match lookup.check_destination(*address, Origin::Object) {
            Ok(()) => {}
            Err(DestinationError::OwnMachine(_)) if shows_certificate => {}
            Err(refused @ DestinationError::OwnMachine(_)) => {
                let node = pod_of(&lookup, namespace, endpoint).and_then(|(pod, _)| node_of_host_pod(&pod));
                machine = Some(node.ok_or_else(|| refused.to_string())?);
            }
            Err(refused) => return Err(refused.to_string()),
        }
    }
    match machine {
        None => Ok(addresses),
        Some(node) => {
            let kubelet = Kubelet::find(server, &node).await.map_err(|error| error.message)?;
            kubelet.proved(server, addresses).await
        }
    }
}

/// The node of a pod that is on its host's network.
fn node_of_host_pod(pod: &Value) -> Option<String> {
    let node = pod["spec"].text("nodeName");
    (pod["spec"].flag("hostNetwork") && !node.is_empty()).then(|| node.to_owned())
}

/// Whether the server may connect to what a Node named. Nodes may well be on the server's own machine.
fn check(server: &ApiServer, addresses: &[SocketAddr]) -> Result<(), DestinationError> {
    let lookup = server.registry.lookup();
    for address in addresses {
        match lookup.check_destination(*address, Origin::Object) {
            Ok(()) | Err(DestinationError::OwnMachine(_)) => {}
            Err(refused) => return Err(refused),
        }
    }
    Ok(())
}

fn in_full(refused: DestinationError) -> Error {
    Error::bad_request(refused.to_string())
}

/// In upstream's words, where it refuses too.
fn in_brief(refused: DestinationError) -> Error {
    match refused {
        DestinationError::Special { .. } => Error::bad_request("address not allowed"),
        refused => in_full(refused),
    }
}

/// The pod that an endpoint is, if it is one and has that address.
fn pod_of(lookup: &dyn Lookup, namespace: &str, endpoint: &admission::Endpoint) -> Option<(Arc<Value>, SocketAddr)> {
    let pod = lookup.get(&kinds::pod::POD, namespace, endpoint.pod.as_deref()?)?;
    let mut addresses = pod["status"].list("podIPs").iter();
    addresses.find(|address| address.text("ip") == endpoint.address)?;
    let ip: IpAddr = endpoint.address.parse().ok()?;
    Some((pod, SocketAddr::new(ip, endpoint.port)))
}

/// The kubelet's path for a pod's subresource, with the options under the names the kubelet knows them by.
fn kubelet_uri(info: &RequestInfo, subresource: &str, pod: &Value, query: &Query) -> Result<Uri, Error> {
    let (namespace, name) = (&info.namespace, &info.name);
    if subresource == "portforward" {
        let ports: Vec<String> = query.all("ports").iter().map(|port| format!("port={port}")).collect();
        return super::uri(&format!("/portForward/{namespace}/{name}"), &ports.join("&"));
    }
    let container = container_name(pod, query.text("container"), name)?;
    let (verb, renamed): (&str, &[(&str, &str)]) = match subresource {
        "log" => ("containerLogs", &LOG_OPTIONS),
        "exec" => ("exec", &STREAM_OPTIONS),
        _ => ("attach", &STREAM_OPTIONS),
    };
    let mut pairs = Vec::new();
    for (from, to) in renamed {
        for value in query.all(from) {
            let value = match value.as_str() {
                "true" if subresource != "log" => "1",
                other => other,
            };
            pairs.push(format!("{to}={}", percent_encode(value)));
        }
    }
    super::uri(&format!("/{verb}/{namespace}/{name}/{container}"), &pairs.join("&"))
}

const STREAM_OPTIONS: [(&str, &str); 5] = [
    ("command", "command"),
    ("stdin", "input"),
    ("stdout", "output"),
    ("stderr", "error"),
    ("tty", "tty"),
];

const LOG_OPTIONS: [(&str, &str); 8] = [
    ("follow", "follow"),
    ("previous", "previous"),
    ("sinceSeconds", "sinceSeconds"),
    ("sinceTime", "sinceTime"),
    ("timestamps", "timestamps"),
    ("tailLines", "tailLines"),
    ("limitBytes", "limitBytes"),
    ("stream", "stream"),
];

/// The container a request means: the named one, the only one beside init containers, or the annotated default.
fn container_name(pod: &Value, wanted: Option<&str>, pod_name: &str) -> Result<String, Error> {
    let names_in = |list: &&str| -> Vec<String> {
        let containers = pod["spec"].list(list).iter();
        containers.map(|container| container.text("name").to_owned()).collect()
    };
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let names: Vec<String> = lists.iter().flat_map(names_in).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let annotated = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    if let (None, [only]) = (wanted, names_in(&"containers").as_slice()) {
        return Ok(only.clone());
    }
    match (wanted, names.as_slice()) {
        (Some(wanted), names) if names.contains(&wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => Err(Error::bad_request(format!(
            "container {wanted} is not valid for pod {pod_name}"
        ))),
        (None, names) if annotated.is_some_and(|name| names.contains(&name)) => {
            Ok(annotated.unwrap_or_default().to_owned())
        }
        (None, names) => Err(Error::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: [{}]",
            names.join(" ")
        ))),
    }
}

fn node_address(node: &Value, kind: &str) -> Option<String> {
    let mut addresses = node["status"].list("addresses").iter();
    let found = addresses.find(|address| address["type"] == kind)?;
    Some(found.text("address").to_owned()).filter(|address| !address.is_empty())
}

fn container_ports(pod: &Value) -> impl Iterator<Item = &Value> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers.flat_map(|container| container["ports"].as_array().into_iter().flatten())
}

fn named_container_port(pod: &Value, text: &str) -> Option<u16> {
    match text.parse() {
        Ok(port) => Some(port),
        Err(_) => container_ports(pod).find(|port| port["name"] == text)?["containerPort"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok()),
    }
}

pub fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => encoded.push(byte as char),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn without_a_name_the_only_container_is_meant_whatever_prepares_it() {
        let mut pod = json!({"spec": {"initContainers": [{"name": "init"}], "containers": [{"name": "main"}]}});
        let name = |pod: &Value, wanted: Option<&str>| container_name(pod, wanted, "web");
        assert_eq!(name(&pod, None).unwrap(), "main");
        assert_eq!(name(&pod, Some("init")).unwrap(), "init");
        assert!(name(&pod, Some("other")).is_err());
        pod["spec"]["containers"] = json!([{"name": "main"}, {"name": "side"}]);
        assert_eq!(
            name(&pod, None).unwrap_err().to_string(),
            "a container name must be specified for pod web, choose one of: [init main side]"
        );
    }
}
