//! Endpoints: the addresses behind a Service in the old form, one object per Service, for those who still read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds::endpoints::ENDPOINTS;
use api::kinds::pod::POD;
use api::kinds::service::SERVICE;
use api::{ObjectMeta, Value};
use async_trait::async_trait;
use client::{Cache, Key};
use serde::Deserialize;
use serde_json::{Map, json};

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Pod, with_metadata};
use crate::plan::{Action, Create, Delete, Patch, Plan};
use crate::services::service::{self, HEADLESS, Service};

pub const ROW: Row = Row {
    name: "endpoint",
    account: "endpoint-controller",
    queue: "endpoint",
    workers: 5,
    start,
};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// More addresses than this do not fit into one object; EndpointSlices have them all.
const MAX_ADDRESSES: usize = 1000;

/// Keys are Services.
struct Controller {
    services: Arc<Cache<Service>>,
    pods: Arc<Cache<Pod>>,
    endpoints: Arc<Cache<Endpoints>>,
}

struct View {
    /// `None` when the service is gone.
    service: Option<Arc<Service>>,
    pods: Vec<Arc<Pod>>,
    endpoints: Option<Arc<Endpoints>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Endpoints {
    pub metadata: ObjectMeta,
    pub subsets: Option<Vec<Value>>,
}

with_metadata!(Endpoints);

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let services = setup.cache::<Service>(&SERVICE);
    let pods = setup.cache::<Pod>(&POD);
    let endpoints = setup.cache::<Endpoints>(&ENDPOINTS);
    setup.watch_own(&services);
    setup.watch_own(&endpoints);
    service::watch_pods(setup, &pods, &services);
    Box::new(Controller {
        services,
        pods,
        endpoints,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let service = self.services.get_key(key.as_str());
        let pods = service.as_ref().map(|service| service.selected(&self.pods));
        Ok(plan(&View {
            pods: pods.unwrap_or_default(),
            endpoints: self.endpoints.get_key(key.as_str()),
            service,
        }))
    }
}

fn plan(view: &View) -> Plan {
    let mut plan = Plan::default();
    let Some(service) = &view.service else {
        plan.actions.extend(view.endpoints.as_deref().and_then(abandoned));
        return plan;
    };
    if service.spec.selector.is_empty() || service.spec.kind == "ExternalName" || service.metadata.is_deleting() {
        return plan;
    }
    let (subsets, truncated) = subsets(service, &view.pods);
    let labels = labels(service);
    match &view.endpoints {
        None => plan.actions.push(create(service, subsets, labels, truncated)),
        Some(known) => plan.actions.extend(update(known, subsets, labels, truncated)),
    }
    plan
}

/// Endpoints that we made for a service that is gone.
fn abandoned(endpoints: &Endpoints) -> Option<Action> {
    let ours = endpoints.metadata.labels.get(MANAGED_BY).map(String::as_str) == Some(MANAGER);
    (ours && !endpoints.metadata.is_deleting()).then(|| Action::Delete(Delete::new(&ENDPOINTS, &endpoints.metadata)))
}

/// Addresses by their ports, ready ones apart from the others; and whether some had to be left out.
fn subsets(service: &Service, pods: &[Arc<Pod>]) -> (Vec<Value>, bool) {
    let unready = service.spec.publish_not_ready_addresses;
    let family = service.spec.ip_families.first().map_or("IPv4", String::as_str);
    let mut groups: BTreeMap<String, Subset> = BTreeMap::new();
    let counts = |pod: &&Arc<Pod>| !pod.is_finished() && (unready || !pod.metadata.is_deleting());
    let addressed = pods
        .iter()
        .filter(counts)
        .filter_map(|pod| Some((pod, pod.address(family)?)));
    let (mut total, mut truncated) = (0, false);
    for (pod, address) in addressed {
        let ports = service.ports_of(pod);
        if ports.is_empty() && !service.spec.ports.is_empty() {
            continue;
        }
        total += 1;
        if total > MAX_ADDRESSES {
            truncated = true;
            break;
        }
        let group = groups.entry(json!(ports).to_string()).or_default();
        group.ports = ports.into_iter().map(without_empty_name).collect();
        let ready = unready || pod.is_ready();
        let list = if ready { &mut group.ready } else { &mut group.not_ready };
        list.push(endpoint_address(service, pod, &address));
    }
    (groups.into_values().map(Subset::into_value).collect(), truncated)
}

#[derive(Default)]
struct Subset {
    ports: Vec<Value>,
    ready: Vec<Value>,
    not_ready: Vec<Value>,
}

impl Subset {
    fn into_value(mut self) -> Value {
        let mut subset = Map::new();
        for (field, mut addresses) in [
            ("addresses", std::mem::take(&mut self.ready)),
            ("notReadyAddresses", std::mem::take(&mut self.not_ready)),
        ] {
            addresses.sort_by_key(|address| address["ip"].to_string());
            if !addresses.is_empty() {
                subset.insert(field.to_owned(), addresses.into());
            }
        }
        if !self.ports.is_empty() {
            subset.insert("ports".to_owned(), self.ports.into());
        }
        subset.into()
    }
}

/// In this form a port without a name has no such field.
fn without_empty_name(mut port: Value) -> Value {
    if port["name"] == ""
        && let Some(fields) = port.as_object_mut()
    {
        fields.remove("name");
    }
    port
}

fn endpoint_address(service: &Service, pod: &Pod, address: &str) -> Value {
    let metadata = &pod.metadata;
    let mut value = json!({
        "ip": address,
        "targetRef": {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid},
    });
    if !pod.spec.node_name.is_empty() {
        value["nodeName"] = pod.spec.node_name.as_str().into();
    }
    if !pod.spec.hostname.is_empty() && pod.spec.subdomain == service.metadata.name {
        value["hostname"] = pod.spec.hostname.as_str().into();
    }
    value
}

fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone();
    labels.remove(HEADLESS);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if service.is_headless() {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels
}

fn create(service: &Service, subsets: Vec<Value>, labels: BTreeMap<String, String>, truncated: bool) -> Action {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": service.metadata.name, "labels": labels},
    });
    if !subsets.is_empty() {
        object["subsets"] = subsets.into();
    }
    if truncated {
        object["metadata"]["annotations"] = json!({OVER_CAPACITY: "truncated"});
    }
    Action::Create(Create::new(&ENDPOINTS, &service.metadata.namespace, object))
}

fn update(known: &Endpoints, subsets: Vec<Value>, labels: BTreeMap<String, String>, truncated: bool) -> Option<Action> {
    let mut body = Map::new();
    let mut metadata = Map::new();
    if known.subsets.as_deref().unwrap_or_default() != subsets {
        body.insert("subsets".to_owned(), subsets.into());
    }
    if known.metadata.labels != labels {
        let mut changes = json!(labels);
        for label in known
            .metadata
            .labels
            .keys()
            .filter(|label| !labels.contains_key(*label))
        {
            changes[label] = Value::Null;
        }
        metadata.insert("labels".to_owned(), changes);
    }
    if known.metadata.annotations.contains_key(OVER_CAPACITY) != truncated {
        let value = if truncated { "truncated".into() } else { Value::Null };
        metadata.insert("annotations".to_owned(), json!({OVER_CAPACITY: value}));
    }
    if !metadata.is_empty() {
        body.insert("metadata".to_owned(), metadata.into());
    }
    let patch = Patch::new(&ENDPOINTS, &known.metadata, body.clone().into())
        .at_revision(&known.metadata)
        .by_update();
    (!body.is_empty()).then_some(Action::Patch(patch))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{object, objects};

    const WEB: &str = "
metadata: {name: web, namespace: default, labels: {team: a}}
spec: {clusterIP: 10.96.0.7, ipFamilies: [IPv4], selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
";
    const PODS: &str = "
metadata: {name: a, namespace: default, uid: a-uid}
spec: {nodeName: one}
status: {phase: Running, podIP: 10.0.0.2, conditions: [{type: Ready, status: 'True'}]}
---
metadata: {name: b, namespace: default, uid: b-uid}
spec: {nodeName: one}
status: {phase: Running, podIP: 10.0.0.1, conditions: [{type: Ready, status: 'False'}]}
---
metadata: {name: going, namespace: default, uid: g-uid, deletionTimestamp: x}
status: {phase: Running, podIP: 10.0.0.3, conditions: [{type: Ready, status: 'True'}]}";

    fn check(service: Option<&str>, pods: &str, endpoints: Option<&str>, expected: Expect) {
        let view = View {
            service: service.map(object),
            pods: objects(pods),
            endpoints: endpoints.map(object),
        };
        expected.assert_eq(&plan(&view).to_string());
    }

    #[test]
    fn ready_and_other_addresses_are_kept_apart() {
        check(
            Some(WEB),
            PODS,
            None,
            expect![[r#"
            create endpoints in default: {"apiVersion":"v1","kind":"Endpoints","metadata":{"labels":{"endpoints.kubernetes.io/managed-by":"endpoint-controller","team":"a"},"name":"web"},"subsets":[{"addresses":[{"ip":"10.0.0.2","nodeName":"one","targetRef":{"kind":"Pod","name":"a","namespace":"default","uid":"a-uid"}}],"notReadyAddresses":[{"ip":"10.0.0.1","nodeName":"one","targetRef":{"kind":"Pod","name":"b","namespace":"default","uid":"b-uid"}}],"ports":[{"port":8080,"protocol":"TCP"}]}]}
        "#]],
        );
    }

    #[test]
    fn what_is_right_stays_and_what_is_abandoned_goes() {
        let empty = "metadata: {name: web, namespace: default, labels: {team: a, endpoints.kubernetes.io/managed-by: endpoint-controller}}";
        check(Some(WEB), "", Some(empty), expect![""]);
        check(
            None,
            "",
            Some(empty),
            expect![[r#"
            delete endpoints default/web
        "#]],
        );
        check(
            None,
            "",
            Some("metadata: {name: mine, namespace: default}"),
            expect![""],
        );
    }
}
