//! The endpoints of the built-in cluster DNS: one EndpointSlice of the kube-dns Service for each node whose name server
//! answers, made from the Nodes.
//!
//! Only this controller writes them, so that a node can lead nobody's questions astray but those of its own pods: a
//! slice is made of the addresses that its own Node has, and the Service keeps to the client's node. Slices of the
//! Service that say anything else are mended or removed.

use std::net::IpAddr;
use std::sync::Arc;

use api::Value;
use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::node::NODE;
use api::kinds::service::SERVICE;
use async_trait::async_trait;
use client::{Cache, Key};
use serde_json::{Map, json};

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::Node;
use crate::plan::{Action, Create, Delete, Patch, Plan};
use crate::services::endpoint_slice::{MANAGED_BY, SERVICE_NAME, Slice};
use crate::services::endpoint_slice_mirroring;
use crate::services::service::Service;

pub const ROW: Row = Row {
    name: "cluster-dns",
    account: "endpointslice-controller",
    queue: "cluster_dns",
    workers: 1,
    start,
};

/// A Node with this annotation runs a part of the built-in name server, at its internal address and this port.
pub const DNS_PORT: &str = "karve/dns-port";

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";
const MANAGER: &str = "karve-dns";
/// Longer names of objects are refused.
const LONGEST_NAME: usize = 253;
/// Files slices under the Service they name, whoever made them.
const OF_SERVICE: &str = "of-service";

/// The only key is the Service.
struct Controller {
    /// The address of the built-in name server; without it somebody else's is used.
    address: Option<IpAddr>,
    services: Arc<Cache<Service>>,
    nodes: Arc<Cache<Node>>,
    slices: Arc<Cache<Slice>>,
}

struct View {
    address: IpAddr,
    service: Option<Arc<Service>>,
    nodes: Vec<Arc<Node>>,
    /// All slices of the Service.
    slices: Vec<Arc<Slice>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let services = setup.cache::<Service>(&SERVICE);
    let nodes = setup.cache::<Node>(&NODE);
    let slices = setup.cache::<Slice>(&ENDPOINT_SLICE);
    let address = setup.settings().cluster_dns;
    if address.is_some() {
        slices.add_index(OF_SERVICE, |slice| {
            service_key(slice).iter().map(Key::to_string).collect()
        });
        let is_ours = |key: &Key| *key == Key::new(NAMESPACE, NAME);
        setup.watch(&services, move |service| {
            Some(client::Object::key(service)).filter(is_ours).into_iter().collect()
        });
        setup.watch(&slices, move |slice| {
            service_key(slice).into_iter().filter(is_ours).collect()
        });
        watch_nodes(setup, &nodes);
    }
    Box::new(Controller {
        address,
        services,
        nodes,
        slices,
    })
}

/// Kubelets write their status often; only what a slice shows of it matters.
fn watch_nodes(setup: &Setup<'_>, nodes: &Cache<Node>) {
    let queue = setup.queue();
    nodes.on_change(move |old, new| {
        let shown = |node: Option<&Arc<Node>>| {
            node.map(|node| {
                (
                    node.metadata.annotations.get(DNS_PORT).cloned(),
                    node.status.addresses.clone(),
                )
            })
        };
        if shown(old) != shown(new) {
            queue.add(Key::new(NAMESPACE, NAME));
        }
    });
}

fn service_key(slice: &Slice) -> Option<Key> {
    let name = slice.metadata.labels.get(SERVICE_NAME)?;
    Some(Key::new(&slice.metadata.namespace, name))
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let Some(address) = self.address else {
            return Ok(Plan::nothing());
        };
        Ok(plan(&View {
            address,
            service: self.services.get_key(key.as_str()),
            nodes: self.nodes.all(),
            slices: self.slices.by(OF_SERVICE, key.as_str()),
        }))
    }
}

fn plan(view: &View) -> Plan {
    let mut wanted: Vec<Value> = match view.is_ours() {
        true => view.nodes.iter().filter_map(|node| view.slice(node)).collect(),
        false => Vec::new(),
    };
    let mut plan = Plan::default();
    let mut changes = Vec::new();
    for found in view.slices.iter().filter(|slice| !slice.metadata.is_deleting()) {
        let fits = |wanted: &Value| {
            wanted["metadata"]["name"] == found.metadata.name.as_str()
                && wanted["addressType"] == found.address_type.as_str()
        };
        match wanted.iter().position(fits) {
            Some(index) => changes.extend(update(found, &wanted.swap_remove(index))),
            None if view.removes(found) => {
                let delete = Delete::new(&ENDPOINT_SLICE, &found.metadata);
                plan.actions.push(Action::Delete(delete));
            }
            None => {}
        }
    }
    plan.actions.extend(changes);
    let create = |slice| Action::Create(Create::new(&ENDPOINT_SLICE, NAMESPACE, slice));
    plan.actions.extend(wanted.into_iter().map(create));
    plan
}

impl View {
    /// An administrator may put another name server in the place of the built-in one.
    fn is_ours(&self) -> bool {
        let ours = |service: &Arc<Service>| {
            service.spec.selector.is_empty() && service.spec.cluster_ip == self.address.to_string()
        };
        self.service.as_ref().is_some_and(ours)
    }

    /// The slice of one node, if its name server can be reached.
    fn slice(&self, node: &Node) -> Option<Value> {
        let name = slice_name(node);
        let address = internal_address(node, self.address.is_ipv4())?;
        let port = match node.metadata.annotations.get(DNS_PORT) {
            Some(text) => text.parse().ok(),
            None => self.known_port(&name),
        };
        let port = port.filter(|port| *port != 0 && name.len() <= LONGEST_NAME)?;
        Some(slice_object(&name, &node.metadata.name, address, port))
    }

    /// Nodes used to write their slices themselves. One that still runs the program that did keeps its port until it
    /// is started anew.
    fn known_port(&self, name: &str) -> Option<u16> {
        let is_own = |slice: &&Arc<Slice>| {
            let manager = slice.metadata.labels.get(MANAGED_BY).map(String::as_str);
            slice.metadata.name == name && manager == Some(MANAGER)
        };
        let port = &self.slices.iter().find(is_own)?.ports.as_ref()?.first()?["port"];
        port.as_u64().and_then(|port| port.try_into().ok())
    }

    /// Whether a slice that no node stands for must go. Those that mirror Endpoints have their own controller, which
    /// removes the ones that only pretend to.
    fn removes(&self, slice: &Slice) -> bool {
        let manager = slice.metadata.labels.get(MANAGED_BY).map(String::as_str);
        match self.is_ours() {
            true => manager != Some(endpoint_slice_mirroring::MANAGER),
            false => manager == Some(MANAGER),
        }
    }
}

fn slice_name(node: &Node) -> String {
    format!("{NAME}-{}", node.metadata.name)
}

fn slice_object(name: &str, node_name: &str, address: IpAddr, port: u16) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {SERVICE_NAME: NAME, MANAGED_BY: MANAGER}},
        "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{
            "addresses": [address],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "nodeName": node_name,
        }],
        "ports": [
            {"name": "dns", "port": port, "protocol": "UDP"},
            {"name": "dns-tcp", "port": port, "protocol": "TCP"},
        ],
    })
}

/// The node says itself what its address is; what no machine can have is no endpoint.
fn internal_address(node: &Node, ipv4: bool) -> Option<IpAddr> {
    let internal = node.status.addresses.iter().filter(|entry| entry.kind == "InternalIP");
    let mut parsed = internal.filter_map(|entry| entry.address.parse::<IpAddr>().ok());
    parsed.find(|address| address.is_ipv4() == ipv4 && is_of_a_machine(address))
}

/// Whether a machine of the cluster can have an address.
pub fn is_of_a_machine(address: &IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
    };
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || link_local)
}

fn update(found: &Slice, wanted: &Value) -> Option<Action> {
    let mut body = Map::new();
    for (field, known) in [("endpoints", &found.endpoints), ("ports", &found.ports)] {
        if wanted[field].as_array() != known.as_ref() {
            body.insert(field.to_owned(), wanted[field].clone());
        }
    }
    let labels = &wanted["metadata"]["labels"];
    if json!(found.metadata.labels) != *labels {
        let mut changes = labels.clone();
        for label in found
            .metadata
            .labels
            .keys()
            .filter(|label| labels.get(label.as_str()).is_none())
        {
            changes[label] = Value::Null;
        }
        body.insert("metadata".to_owned(), json!({"labels": changes}));
    }
    (!body.is_empty()).then(|| {
        let patch = Patch::new(&ENDPOINT_SLICE, &found.metadata, body.into());
        Action::Patch(patch.at_revision(&found.metadata).by_update())
    })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{object, objects};

    const SERVICE_YAML: &str = "metadata: {name: kube-dns, namespace: kube-system}\nspec: {clusterIP: 10.96.0.10}";

    fn node(name: &str, port: &str, address: &str) -> String {
        format!(
            "metadata: {{name: {name}, annotations: {{karve/dns-port: '{port}'}}}}\n\
             status: {{addresses: [{{type: Hostname, address: {name}}}, {{type: InternalIP, address: '{address}'}}]}}"
        )
    }

    fn found(name: &str, manager: &str, address: &str) -> String {
        format!(
            "metadata: {{name: {name}, namespace: kube-system, resourceVersion: '3', labels: {{\
             kubernetes.io/service-name: kube-dns, endpointslice.kubernetes.io/managed-by: {manager}}}}}\n\
             addressType: IPv4\n\
             endpoints: [{{addresses: [{address}], conditions: {{ready: true, serving: true, terminating: false}}, nodeName: one}}]\n\
             ports: [{{name: dns, port: 10053, protocol: UDP}}, {{name: dns-tcp, port: 10053, protocol: TCP}}]"
        )
    }

    fn check(service: Option<&str>, nodes: &[String], slices: &[String], expected: Expect) {
        let view = View {
            address: "10.96.0.10".parse().unwrap(),
            service: service.map(object),
            nodes: objects(&nodes.join("\n---\n")),
            slices: objects(&slices.join("\n---\n")),
        };
        expected.assert_eq(&plan(&view).to_string());
    }

    #[test]
    fn every_node_with_a_name_server_has_its_slice() {
        check(
            Some(SERVICE_YAML),
            &[
                node("one", "10053", "192.0.2.1"),
                node("two", "10054", "192.0.2.2"),
                "metadata: {name: three}".into(),
            ],
            &[found("kube-dns-one", "karve-dns", "192.0.2.1")],
            expect![[r#"
                create endpointslices in kube-system: {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["192.0.2.2"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"two"}],"kind":"EndpointSlice","metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"karve-dns","kubernetes.io/service-name":"kube-dns"},"name":"kube-dns-two","namespace":"kube-system"},"ports":[{"name":"dns","port":10054,"protocol":"UDP"},{"name":"dns-tcp","port":10054,"protocol":"TCP"}]}
            "#]],
        );
    }

    #[test]
    fn a_wrong_slice_is_mended_and_a_foreign_one_removed() {
        check(
            Some(SERVICE_YAML),
            &[node("one", "10053", "192.0.2.1")],
            &[
                found("kube-dns-one", "somebody", "203.0.113.66"),
                found("kube-dns-evil", "karve-dns", "203.0.113.66"),
                found("evil", "endpointslice-controller.k8s.io", "203.0.113.66"),
                found("mirrored", "endpointslicemirroring-controller.k8s.io", "192.0.2.9"),
            ],
            expect![[r#"
                delete endpointslices kube-system/kube-dns-evil
                delete endpointslices kube-system/evil
                patch endpointslices kube-system/kube-dns-one: {"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"one"}],"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"karve-dns","kubernetes.io/service-name":"kube-dns"},"resourceVersion":"3"}}
            "#]],
        );
    }

    #[test]
    fn a_node_that_wrote_its_slice_itself_keeps_its_port_and_no_foreign_address() {
        let node = node("one", "10053", "192.0.2.1").replace("karve/dns-port: '10053'", "");
        check(
            Some(SERVICE_YAML),
            std::slice::from_ref(&node),
            &[found("kube-dns-one", "karve-dns", "192.0.2.1")],
            expect![""],
        );
        check(
            Some(SERVICE_YAML),
            &[node],
            &[found("kube-dns-one", "karve-dns", "203.0.113.66")],
            expect![[r#"
                patch endpointslices kube-system/kube-dns-one: {"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"one"}],"metadata":{"resourceVersion":"3"}}
            "#]],
        );
    }

    #[test]
    fn what_no_machine_can_have_is_no_endpoint() {
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "169.254.169.254",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "fe80::1",
            "x",
        ] {
            check(Some(SERVICE_YAML), &[node("one", "10053", address)], &[], expect![""]);
        }
        for port in ["0", "65536", "-1", "dns", ""] {
            check(Some(SERVICE_YAML), &[node("one", port, "192.0.2.1")], &[], expect![""]);
        }
        check(
            Some(SERVICE_YAML),
            &[node(&"n".repeat(250), "10053", "192.0.2.1")],
            &[],
            expect![""],
        );
    }

    #[test]
    fn another_name_server_is_left_alone() {
        let slices = [
            found("kube-dns-one", "karve-dns", "192.0.2.1"),
            found("kube-dns-x7f3", "endpointslice-controller.k8s.io", "10.244.0.7"),
        ];
        let of_pods = SERVICE_YAML.replace("spec: {", "spec: {selector: {k8s-app: kube-dns}, ");
        for service in [Some(of_pods.as_str()), None] {
            check(
                service,
                &[node("one", "10053", "192.0.2.1")],
                &slices,
                expect![[r#"
                    delete endpointslices kube-system/kube-dns-one
                "#]],
            );
        }
    }
}
