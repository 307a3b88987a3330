//! Endpoints that someone has written by hand, for a Service without a selector, as EndpointSlices: what reads slices
//! finds them too.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds::endpoint_slice::ENDPOINT_SLICE;
use api::kinds::endpoints::ENDPOINTS;
use api::kinds::service::SERVICE;
use api::{Fields, Value};
use async_trait::async_trait;
use client::{Cache, Key};
use serde_json::{Map, json};

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::owner::controller_reference;
use crate::plan::{Action, Create, Delete, Patch, Plan};
use crate::services::endpoint_slice::{MANAGED_BY, SERVICE_NAME, Slice};
use crate::services::endpoints::Endpoints;
use crate::services::service::Service;

pub const ROW: Row = Row {
    name: "endpointslice-mirroring",
    account: "endpointslicemirroring-controller",
    queue: "endpoint_slice_mirroring",
    workers: 5,
    start,
};

pub const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
/// The label by which Endpoints ask not to be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Old locks of leader elections are Endpoints too, with their state in this annotation.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Annotations of the Endpoints that say nothing about their slices.
const OWN_ANNOTATIONS: &[&str] = &[
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
];
/// Addresses of one subset that are mirrored at most.
const MAX_ADDRESSES: usize = 1000;

/// Files slices under the Endpoints that they mirror.
const MIRRORED: &str = "mirrored";

/// Keys are Endpoints, and Services of their names.
struct Controller {
    services: Arc<Cache<Service>>,
    endpoints: Arc<Cache<Endpoints>>,
    slices: Arc<Cache<Slice>>,
}

struct View {
    service: Option<Arc<Service>>,
    endpoints: Option<Arc<Endpoints>>,
    /// The slices that this controller has made.
    slices: Vec<Arc<Slice>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let services = setup.cache::<Service>(&SERVICE);
    let endpoints = setup.cache::<Endpoints>(&ENDPOINTS);
    let slices = setup.cache::<Slice>(&ENDPOINT_SLICE);
    slices.add_index(MIRRORED, |slice| {
        mirrored_key(slice).iter().map(Key::to_string).collect()
    });
    setup.watch_own(&services);
    setup.watch_own(&endpoints);
    setup.watch(&slices, mirrored_key);
    Box::new(Controller {
        services,
        endpoints,
        slices,
    })
}

/// The Endpoints that one of our slices mirrors.
fn mirrored_key(slice: &Slice) -> Vec<Key> {
    let labels = &slice.metadata.labels;
    match (labels.get(SERVICE_NAME), labels.get(MANAGED_BY).map(String::as_str)) {
        (Some(service), Some(MANAGER)) => vec![Key::new(&slice.metadata.namespace, service)],
        _ => Vec::new(),
    }
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        Ok(plan(&View {
            service: self.services.get_key(key.as_str()),
            endpoints: self.endpoints.get_key(key.as_str()),
            slices: self.slices.by(MIRRORED, key.as_str()),
        }))
    }
}

/// The content of a slice as it should be.
struct Content {
    address_type: &'static str,
    ports: Vec<Value>,
    endpoints: Vec<Value>,
}

fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    let mut spare: Vec<&Arc<Slice>> = view
        .slices
        .iter()
        .filter(|slice| !slice.metadata.is_deleting())
        .collect();
    let selects_nothing = view
        .service
        .as_ref()
        .is_some_and(|service| service.spec.selector.is_empty());
    if let Some(endpoints) = view
        .endpoints
        .as_ref()
        .filter(|endpoints| selects_nothing && is_mirrored(endpoints))
    {
        for content in contents(endpoints) {
            // A slice of the same ports is changed, so that most of it stays; then any of the same kind.
            let alike = |slice: &&Arc<Slice>| slice.address_type == content.address_type;
            let same = spare
                .iter()
                .position(|slice| alike(slice) && slice.ports.as_deref() == Some(&content.ports[..]));
            match same.or_else(|| spare.iter().position(alike)) {
                Some(index) => plan.actions.extend(update(endpoints, spare.remove(index), &content)),
                None => plan.actions.push(create(endpoints, content)),
            }
        }
    }
    let gone = spare
        .into_iter()
        .map(|slice| Action::Delete(Delete::new(&ENDPOINT_SLICE, &slice.metadata)));
    plan.actions.extend(gone);
    plan
}

fn is_mirrored(endpoints: &Endpoints) -> bool {
    let metadata = &endpoints.metadata;
    let skipped = metadata.labels.get(SKIP).is_some_and(|value| value == "true");
    !skipped && !metadata.annotations.contains_key(LEADER) && !metadata.is_deleting()
}

/// One slice for every set of ports and every family of addresses.
fn contents(endpoints: &Endpoints) -> Vec<Content> {
    let mut contents: Vec<Content> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let lists = [("addresses", true), ("notReadyAddresses", false)];
        let addresses = lists
            .into_iter()
            .flat_map(|(list, ready)| subset.list(list).iter().map(move |one| (one, ready)));
        for (address, ready) in addresses.take(MAX_ADDRESSES) {
            let address_type = if address.text("ip").contains(':') {
                "IPv6"
            } else {
                "IPv4"
            };
            let ports: Vec<Value> = subset.list("ports").iter().map(port).collect();
            let known = contents
                .iter()
                .position(|content| content.address_type == address_type && content.ports == ports);
            let index = known.unwrap_or_else(|| {
                contents.push(Content {
                    address_type,
                    ports,
                    endpoints: Vec::new(),
                });
                contents.len() - 1
            });
            contents[index].endpoints.push(endpoint(address, ready));
        }
    }
    contents
}

/// A slice's ports have a name and a protocol even where those of Endpoints have none.
fn port(port: &Value) -> Value {
    let mut port = port.clone();
    port.fill("protocol", "TCP");
    if !port.has("name") {
        port.set("name", "");
    }
    port
}

fn endpoint(address: &Value, ready: bool) -> Value {
    let mut endpoint = json!({"addresses": [address["ip"]], "conditions": {"ready": ready}});
    for field in ["hostname", "nodeName", "targetRef"] {
        if address.has(field) {
            endpoint.set(field, address[field].clone());
        }
    }
    endpoint
}

fn create(endpoints: &Endpoints, content: Content) -> Action {
    let metadata = &endpoints.metadata;
    let object = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": format!("{}-", metadata.name),
            "labels": labels(endpoints),
            "annotations": annotations(endpoints),
            "ownerReferences": [controller_reference(&ENDPOINTS, metadata)],
        },
        "addressType": content.address_type,
        "endpoints": content.endpoints,
        "ports": content.ports,
    });
    Action::Create(Create::new(&ENDPOINT_SLICE, &metadata.namespace, object))
}

fn update(endpoints: &Endpoints, slice: &Slice, content: &Content) -> Option<Action> {
    let mut body = Map::new();
    if slice.endpoints.as_deref().unwrap_or_default() != content.endpoints {
        body.insert("endpoints".to_owned(), content.endpoints.clone().into());
    }
    if slice.ports.as_deref().unwrap_or_default() != content.ports {
        body.insert("ports".to_owned(), content.ports.clone().into());
    }
    let mut metadata = Map::new();
    metadata.extend(changes("labels", &slice.metadata.labels, &labels(endpoints)));
    metadata.extend(changes(
        "annotations",
        &slice.metadata.annotations,
        &annotations(endpoints),
    ));
    if !metadata.is_empty() {
        body.insert("metadata".to_owned(), metadata.into());
    }
    if body.is_empty() {
        return None;
    }
    let patch = Patch::new(&ENDPOINT_SLICE, &slice.metadata, body.into());
    Some(Action::Patch(patch.at_revision(&slice.metadata).by_update()))
}

/// What turns one map into the other, as a field of a merge patch.
fn changes(
    field: &str,
    known: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
) -> Option<(String, Value)> {
    if known == wanted {
        return None;
    }
    let mut changes = json!(wanted);
    for gone in known.keys().filter(|key| !wanted.contains_key(*key)) {
        changes.set(gone, Value::Null);
    }
    Some((field.to_owned(), changes))
}

fn labels(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut labels = endpoints.metadata.labels.clone();
    labels.insert(SERVICE_NAME.to_owned(), endpoints.metadata.name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.metadata.annotations.clone();
    annotations.retain(|name, _| !OWN_ANNOTATIONS.contains(&name.as_str()));
    annotations
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{object, objects};

    const ENDPOINTS_YAML: &str = "
metadata: {name: db, namespace: default, uid: e, labels: {app: db}}
subsets:
- addresses: [{ip: 192.0.2.1}, {ip: '2001:db8::1'}]
  notReadyAddresses: [{ip: 192.0.2.2, nodeName: node-1}]
  ports: [{port: 5432, protocol: TCP}]
";
    const SLICE: &str = "
metadata:
  name: db-x
  namespace: default
  resourceVersion: '3'
  labels: {app: db, kubernetes.io/service-name: db, endpointslice.kubernetes.io/managed-by: endpointslicemirroring-controller.k8s.io}
addressType: IPv4
endpoints: [{addresses: [192.0.2.9], conditions: {ready: true}}]
ports: [{name: '', port: 5432, protocol: TCP}]
";

    fn check(service: Option<&str>, endpoints: Option<&str>, slices: &str, expected: Expect) {
        let view = View {
            service: service.map(object),
            endpoints: endpoints.map(object),
            slices: objects(slices),
        };
        expected.assert_eq(&plan(&view).to_string());
    }

    #[test]
    fn every_family_and_set_of_ports_has_a_slice() {
        let service = "metadata: {name: db, namespace: default}";
        check(
            Some(service),
            Some(ENDPOINTS_YAML),
            "",
            expect![[r#"
            create endpointslices in default: {"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":true}},{"addresses":["192.0.2.2"],"conditions":{"ready":false},"nodeName":"node-1"}],"kind":"EndpointSlice","metadata":{"annotations":{},"generateName":"db-","labels":{"app":"db","endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db"},"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Endpoints","name":"db","uid":"e"}]},"ports":[{"name":"","port":5432,"protocol":"TCP"}]}
            create endpointslices in default: {"addressType":"IPv6","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["2001:db8::1"],"conditions":{"ready":true}}],"kind":"EndpointSlice","metadata":{"annotations":{},"generateName":"db-","labels":{"app":"db","endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db"},"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Endpoints","name":"db","uid":"e"}]},"ports":[{"name":"","port":5432,"protocol":"TCP"}]}
        "#]],
        );
        check(
            Some(service),
            Some(ENDPOINTS_YAML),
            SLICE,
            expect![[r#"
            patch endpointslices default/db-x: {"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":true}},{"addresses":["192.0.2.2"],"conditions":{"ready":false},"nodeName":"node-1"}],"metadata":{"resourceVersion":"3"}}
            create endpointslices in default: {"addressType":"IPv6","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["2001:db8::1"],"conditions":{"ready":true}}],"kind":"EndpointSlice","metadata":{"annotations":{},"generateName":"db-","labels":{"app":"db","endpointslice.kubernetes.io/managed-by":"endpointslicemirroring-controller.k8s.io","kubernetes.io/service-name":"db"},"ownerReferences":[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":true,"kind":"Endpoints","name":"db","uid":"e"}]},"ports":[{"name":"","port":5432,"protocol":"TCP"}]}
        "#]],
        );
    }

    #[test]
    fn slices_go_with_their_endpoints_and_when_the_service_selects_pods() {
        check(
            None,
            Some(ENDPOINTS_YAML),
            SLICE,
            expect![[r#"
            delete endpointslices default/db-x
        "#]],
        );
        check(
            Some("metadata: {name: db}"),
            None,
            SLICE,
            expect![[r#"
            delete endpointslices default/db-x
        "#]],
        );
        check(
            Some("{metadata: {name: db}, spec: {selector: {app: db}}}"),
            Some(ENDPOINTS_YAML),
            SLICE,
            expect![[r#"
                delete endpointslices default/db-x
            "#]],
        );
        let skipped = ENDPOINTS_YAML.replace("app: db", "endpointslice.kubernetes.io/skip-mirror: 'true'");
        check(Some("metadata: {name: db}"), Some(&skipped), "", expect![[r#""#]]);
    }
}
