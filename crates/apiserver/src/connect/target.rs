//! Where a request is passed on to.

use std::sync::Arc;

use admission::Lookup;
use api::{Error, Reason, Value, kinds};
use http::Uri;

use super::dial::{self, Connection};
use crate::ApiServer;
use crate::registry::Served;
use crate::request::{Query, RequestInfo};

enum Way {
    Kubelet,
    Plain,
    /// Pods and services behind `https:` have certificates that nobody vouched for.
    Tls,
}

pub struct Target {
    way: Way,
    address: String,
    port: u16,
    pub host: String,
    pub uri: Uri,
}

/// `[scheme:]name[:port]`, as a proxy path names its target.
struct ProxyName {
    tls: bool,
    name: String,
    port: String,
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
            ("nodes", _) => {
                let path = format!("/{}", info.rest);
                Target::kubelet(
                    server,
                    &ProxyName::parse(&info.name)?.name,
                    super::uri(&path, raw_query)?,
                )
                .await
            }
            ("pods", "proxy") => Target::pod_proxy(server, served, info, raw_query).await,
            ("services", _) => Target::service_proxy(server, served, info, raw_query).await,
            ("pods", subresource) => {
                let pod = server
                    .registry
                    .get(served, &info.namespace, &info.name)
                    .await?
                    .value(served)?;
                let uri = kubelet_uri(info, subresource, &pod, query)?;
                match pod["spec"]["nodeName"].as_str().unwrap_or_default() {
                    "" if subresource == "log" => return Ok(None),
                    "" => Err(Error::bad_request(format!(
                        "pod {} does not have a host assigned",
                        info.name
                    ))),
                    node => Target::kubelet(server, node, uri).await,
                }
            }
            (other, _) => Err(Error::internal(format!("{other} cannot be connected to"))),
        };
        target.map(Some)
    }

    pub async fn dial(&self, server: &ApiServer) -> Result<Connection, Error> {
        let dialled = match self.way {
            Way::Kubelet => server.kubelets.dial(&self.address, self.port).await,
            Way::Plain => dial::plain(&self.address, self.port).await,
            Way::Tls => dial::tls(server.insecure_tls.clone(), &self.address, self.port).await,
        };
        dialled.map_err(|error| {
            Error::new(
                Reason::ServiceUnavailable,
                format!("error trying to reach {}: {error}", self.host),
            )
        })
    }

    async fn kubelet(server: &ApiServer, node: &str, uri: Uri) -> Result<Target, Error> {
        let served = server.registry.served(&kinds::node::NODE)?;
        let node = server.registry.get(served, "", node).await?.value(served)?;
        let address = ["InternalIP", "ExternalIP", "Hostname"]
            .iter()
            .find_map(|kind| node_address(&node, kind));
        let address = address.ok_or_else(|| {
            Error::new(
                Reason::ServiceUnavailable,
                format!("node {} has no address", node["metadata"]["name"]),
            )
        })?;
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
            .as_u64()
            .unwrap_or(10250) as u16;
        Ok(Target {
            way: Way::Kubelet,
            host: format!("{address}:{port}"),
            address,
            port,
            uri,
        })
    }

    async fn pod_proxy(
        server: &ApiServer,
        served: &Arc<Served>,
        info: &RequestInfo,
        raw_query: &str,
    ) -> Result<Target, Error> {
        let wanted = ProxyName::parse(&info.name)?;
        let pod = server
            .registry
            .get(served, &info.namespace, &wanted.name)
            .await?
            .value(served)?;
        let Some(ip) = pod["status"]["podIP"].as_str().filter(|ip| !ip.is_empty()) else {
            return Err(Error::bad_request("address not allowed"));
        };
        let port = match wanted.port.as_str() {
            "" => container_ports(&pod)
                .next()
                .and_then(|port| port["containerPort"].as_u64())
                .unwrap_or(80) as u16,
            text => named_container_port(&pod, text)
                .ok_or_else(|| Error::bad_request(format!("pod {} has no port {text:?}", wanted.name)))?,
        };
        Ok(wanted.target(ip, port, super::uri(&format!("/{}", info.rest), raw_query)?))
    }

    async fn service_proxy(
        server: &ApiServer,
        served: &Arc<Served>,
        info: &RequestInfo,
        raw_query: &str,
    ) -> Result<Target, Error> {
        let wanted = ProxyName::parse(&info.name)?;
        let service = server
            .registry
            .get(served, &info.namespace, &wanted.name)
            .await?
            .value(served)?;
        let unavailable = || {
            Error::new(
                Reason::ServiceUnavailable,
                format!("no endpoints available for service {:?}", info.name),
            )
        };
        let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        let port = match wanted.port.as_str() {
            "" => ports.first(),
            text => ports
                .iter()
                .find(|port| port["name"] == text || text.parse().is_ok_and(|number: u64| port["port"] == number)),
        };
        let port_name = port.ok_or_else(unavailable)?["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let lookup = server.registry.lookup();
        let slices = lookup.list(&kinds::endpoint_slice::ENDPOINT_SLICE, &info.namespace);
        let is_own = |slice: &Value| slice["metadata"]["labels"]["kubernetes.io/service-name"] == wanted.name;
        // A service that nobody has looked for endpoints of yet is as good as none.
        if !slices.iter().any(is_own) {
            return Err(Error::not_found(served.resource, &wanted.name));
        }
        let (ip, port) =
            admission::endpoint(&lookup, &info.namespace, &wanted.name, &port_name).ok_or_else(unavailable)?;
        Ok(wanted.target(&ip, port, super::uri(&format!("/{}", info.rest), raw_query)?))
    }
}

impl ProxyName {
    fn parse(text: &str) -> Result<ProxyName, Error> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme, name, port] => (*scheme, *name, *port),
            _ => return Err(Error::bad_request(format!("invalid proxy target {text:?}"))),
        };
        if !matches!(scheme, "" | "http" | "https") {
            return Err(Error::bad_request(format!("invalid proxy scheme {scheme:?}")));
        }
        Ok(ProxyName {
            tls: scheme == "https",
            name: name.to_owned(),
            port: port.to_owned(),
        })
    }

    fn target(&self, ip: &str, port: u16, uri: Uri) -> Target {
        let way = if self.tls { Way::Tls } else { Way::Plain };
        Target {
            way,
            address: ip.to_owned(),
            port,
            host: format!("{ip}:{port}"),
            uri,
        }
    }
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

/// The container a request means: the named one, the annotated default, or the only one there is.
fn container_name(pod: &Value, wanted: Option<&str>, pod_name: &str) -> Result<String, Error> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let names: Vec<&str> = lists
        .iter()
        .flat_map(|list| pod["spec"][*list].as_array().into_iter().flatten())
        .filter_map(|container| container["name"].as_str())
        .collect();
    let annotated = pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    match (wanted, names.as_slice()) {
        (Some(wanted), names) if names.contains(&wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => Err(Error::bad_request(format!(
            "container {wanted} is not valid for pod {pod_name}"
        ))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, names) if annotated.is_some_and(|name| names.contains(&name)) => {
            Ok(annotated.unwrap_or_default().to_owned())
        }
        (None, names) => Err(Error::bad_request(format!(
            "a container name must be specified for pod {pod_name}, choose one of: {names:?}"
        ))),
    }
}

fn node_address(node: &Value, kind: &str) -> Option<String> {
    let addresses = node["status"]["addresses"].as_array()?;
    let found = addresses.iter().find(|address| address["type"] == kind)?;
    found["address"].as_str().map(str::to_owned)
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
            .map(|p| p as u16),
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
