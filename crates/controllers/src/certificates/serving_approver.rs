//! Approves what kubelets ask to serve with, if it is their own.
//!
//! A certificate of the cluster's authority is believed by all of its clients. A node that got one for the API server's
//! address, or for another node's, could stand in for those. What a Node says of its addresses is the node's own word, so
//! every address in a request is connected to: the kubelet there has to hold the very key that is to be certified.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use api::kinds::certificate_signing_request::CERTIFICATE_SIGNING_REQUEST;
use api::kinds::endpoints::ENDPOINTS;
use api::kinds::node::NODE;
use api::{Fields, ObjectMeta, Value};
use async_trait::async_trait;
use client::destination::Origin;
use client::{Cache, EventType, Key, ObjectReference, SERVING_CHALLENGE, Selection};
use serde::Deserialize;

use super::approver::approve;
use super::request::Wanted;
use super::{KUBELET_SERVING, SigningRequest};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Node, created, with_metadata};
use crate::plan::{Action, Event, Plan};
use crate::settings::KubeletServing;

/// The service account that approves. No role of upstream's may approve for this signer.
pub const APPROVER: &str = "karve-kubelet-serving-approver";

pub const ROW: Row = Row {
    name: "certificatesigningrequest-kubelet-serving-approving",
    account: APPROVER,
    queue: "kubelet_serving_certificate",
    workers: 2,
    start,
};

/// A kubelet may not be ready to show its key yet: it is looked for again and again, until it asks anew.
const AGAIN: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(900);
/// From when on it is told why a request waits.
const TELL: Duration = Duration::from_secs(10);

/// Where kubelets serve unless they are told otherwise.
const KUBELET_PORT: u16 = 10250;

/// What is nobody's to serve under but the API server's and Services'.
const RESERVED_NAMES: &[&str] = &["localhost", "kubernetes", "kubernetes.default"];

struct Controller {
    serving: Option<KubeletServing>,
    requests: Arc<Cache<SigningRequest>>,
    nodes: Arc<Cache<Node>>,
    servers: Arc<Cache<Endpoints>>,
}

/// Where API servers are.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoints {
    metadata: ObjectMeta,
    subsets: Vec<Value>,
}

with_metadata!(Endpoints);

/// What is known of a cluster when one of its nodes asks.
struct View<'a> {
    serving: &'a KubeletServing,
    nodes: &'a [Arc<Node>],
    /// The addresses of API servers.
    servers: Vec<IpAddr>,
}

/// What has to be shown before a request is approved.
#[derive(Debug, PartialEq, Eq)]
struct Proof {
    /// Where the kubelet has to hold the key.
    at: Vec<SocketAddr>,
    public_key: Vec<u8>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let requests = setup.cache::<SigningRequest>(&CERTIFICATE_SIGNING_REQUEST);
    let nodes = setup.cache::<Node>(&NODE);
    let own = Selection {
        namespace: "default".to_owned(),
        field_selector: "metadata.name=kubernetes".to_owned(),
        ..Selection::default()
    };
    let servers = setup.selected::<Endpoints>(&ENDPOINTS, own);
    let serving = setup.settings().kubelet_serving.clone();
    if serving.is_some() {
        setup.watch_own(&requests);
    }
    Box::new(Controller {
        serving,
        requests,
        nodes,
        servers,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        let (Some(request), Some(serving)) = (self.requests.get_key(key.as_str()), &self.serving) else {
            return Ok(Plan::nothing());
        };
        if request.is_decided() || request.spec.text("signerName") != KUBELET_SERVING {
            return Ok(Plan::nothing());
        }
        let view = View {
            serving,
            nodes: &self.nodes.all(),
            servers: self
                .servers
                .all()
                .iter()
                .flat_map(|servers| servers.addresses())
                .collect(),
        };
        let shown = match view.judge(&request) {
            Ok(proof) => proof.check().await,
            Err(why) => Err(why),
        };
        Ok(match shown {
            Ok(()) => approve(
                &request,
                "Auto approving kubelet serving certificate: the node serves there.",
                attempt.now,
            ),
            Err(why) => put_off(&request, why, attempt),
        })
    }
}

/// An administrator sees why a request waits, and may approve it.
fn put_off(request: &SigningRequest, why: String, attempt: &Attempt) -> Plan {
    let mut plan = Plan::default();
    let age = attempt.now.since(created(&request.metadata));
    if age < PATIENCE {
        plan.again_after(AGAIN);
    }
    if (TELL..TELL + AGAIN).contains(&age) || age >= PATIENCE {
        tracing::info!(request = request.metadata.name, %why, "Kubelet serving certificate is not approved");
        plan.actions.push(Action::Event(Event {
            about: ObjectReference::new(&CERTIFICATE_SIGNING_REQUEST, &request.metadata),
            kind: EventType::Warning,
            reason: "NotApproved",
            message: why,
        }));
    }
    plan
}

impl Endpoints {
    fn addresses(&self) -> Vec<IpAddr> {
        let lists = self.subsets.iter().flat_map(|subset| subset.list("addresses"));
        lists.filter_map(|address| address.text("ip").parse().ok()).collect()
    }
}

impl View<'_> {
    /// What must be shown for a request to be approved, or why it is not, whatever is shown.
    fn judge(&self, request: &SigningRequest) -> Result<Proof, String> {
        let pem = request.pem().ok_or("the request is not PEM")?;
        let wanted = Wanted::parse(&pem)?;
        wanted.check_kubelet_serving(&request.usages())?;
        let name = wanted.node().unwrap_or_default();
        let groups = request.spec.list("groups");
        if request.spec.text("username") != wanted.common_name || !groups.iter().any(|group| group == "system:nodes") {
            let user = request.spec.text("username");
            return Err(format!("{user:?} may not ask for a certificate of node {name:?}"));
        }
        let node = self.nodes.iter().find(|node| node.metadata.name == name);
        let node = node.ok_or_else(|| format!("there is no node {name:?}"))?;
        if let Some(other) = wanted.dns_names().find(|other| *other != name) {
            return Err(format!("{other:?} is not the name of node {name:?}"));
        }
        let is_servers = |name: &str| {
            self.serving
                .server_names
                .iter()
                .any(|own| own.eq_ignore_ascii_case(name))
        };
        if wanted.dns_names().any(|name| is_reserved(name) || is_servers(name)) {
            return Err(format!("{name:?} is a name of the API server or of Services"));
        }
        let port = u16::try_from(node.status.daemon_endpoints.kubelet_endpoint.port).unwrap_or_default();
        let at = wanted.addresses().map(|ip| self.own_address(node, ip, port));
        let at: Vec<SocketAddr> = at.collect::<Result<_, _>>()?;
        // A name alone proves nothing: node names are chosen by whoever joins.
        if at.is_empty() {
            return Err(format!(
                "the request names no address at which node {name:?} can show its key"
            ));
        }
        Ok(Proof {
            at,
            public_key: wanted.public_key.clone(),
        })
    }

    /// An address that the node claims and that is not known to be another's.
    fn own_address(&self, node: &Node, ip: IpAddr, port: u16) -> Result<SocketAddr, String> {
        let name = &node.metadata.name;
        if !claims(node, ip) {
            return Err(format!("{ip} is not in status.addresses of node {name:?}"));
        }
        // What answers at a machine's own kubelet port is its kubelet, which no pod can take the port from. Another node's
        // word must not keep it from its certificate; behind other ports both claims are doubtful.
        let is_other = |other: &&Arc<Node>| other.metadata.name != *name && claims(other, ip);
        if port != KUBELET_PORT
            && let Some(other) = self.nodes.iter().find(is_other)
        {
            return Err(format!("{ip} is an address of node {:?} too", other.metadata.name));
        }
        let address = SocketAddr::new(ip, port);
        let checked = self.serving.destinations.check(address, Origin::Object, &[]);
        checked.map_err(|refused| refused.to_string())?;
        let server = self.serving.destinations.server.map(|server| server.ip());
        let named = self.serving.server_names.iter().filter_map(|name| name.parse().ok());
        let servers: Vec<IpAddr> = named.chain(server).chain(self.servers.iter().copied()).collect();
        match servers.iter().any(|server| server.to_canonical() == ip.to_canonical()) {
            true => Err(format!("{ip} is an address of an API server")),
            false => Ok(address),
        }
    }
}

impl Proof {
    async fn check(&self) -> Result<(), String> {
        for address in &self.at {
            let shown = client::shown_certificate(*address, SERVING_CHALLENGE).await;
            let shown = shown.map_err(|error| format!("the kubelet does not show its key at {address}: {error}"))?;
            let (_, shown) = x509_parser::parse_x509_certificate(&shown)
                .map_err(|error| format!("what is shown at {address} is not a certificate: {error}"))?;
            if shown.public_key().raw != self.public_key {
                return Err(format!(
                    "what answers at {address} does not hold the key that is to be certified"
                ));
            }
        }
        Ok(())
    }
}

fn claims(node: &Node, ip: IpAddr) -> bool {
    let addresses = node.status.addresses.iter();
    let mut parsed = addresses
        .filter(|entry| matches!(entry.kind.as_str(), "InternalIP" | "ExternalIP"))
        .filter_map(|entry| entry.address.parse::<IpAddr>().ok());
    parsed.any(|address| address.to_canonical() == ip.to_canonical())
}

fn is_reserved(name: &str) -> bool {
    RESERVED_NAMES.contains(&name) || name.ends_with(".svc") || name.contains(".svc.")
}

#[cfg(test)]
mod tests;
