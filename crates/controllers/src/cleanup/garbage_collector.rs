//! The garbage collector: objects whose owners are gone go too.
//!
//! `monitor` follows the metadata of every deletable resource, `graph` knows who owns whom, `verdict` decides purely what
//! becomes of one object. Before anything is deleted, the object itself and every owner that the graph does not know
//! are read live: a slow watch must never cost an object.

mod graph;
mod monitor;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use api::{ObjectMeta, Resource, Value};
use async_trait::async_trait;
use client::{Client, Key, WorkQueue};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::plan::Plan;
use graph::{Graph, Node};
use monitor::Monitor;
use verdict::{Dependent, OwnerState, View};

pub const ROW: Row = Row {
    name: "garbage-collector",
    account: "generic-garbage-collector",
    queue: "garbage_collector_attempt_to_delete",
    workers: 20,
    start,
};

/// How often an object is looked at that no watch has told of, only its dependents. It may be deleted between the moment in
/// which it is read and the list with which the watch of its kind begins; then no watch ever tells of its deletion.
const UNOBSERVED_RECHECK: Duration = Duration::from_secs(30);

/// Keys are UIDs.
struct Controller {
    client: Client,
    graph: Arc<Mutex<Graph>>,
    monitor: Monitor,
    queue: Arc<WorkQueue<Key>>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let graph = Arc::new(Mutex::new(Graph::default()));
    Box::new(Controller {
        client: setup.client(),
        monitor: Monitor::start(setup.client(), graph.clone(), setup.queue()),
        queue: setup.queue(),
        graph,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, _attempt: &Attempt) -> client::Result<Plan> {
        let node = self.graph.lock().node(key.name());
        let Some(node) = node else {
            return Ok(Plan::nothing());
        };
        // References can be wrong for ever: to a kind that nobody serves, to a version that is none, or from an object
        // outside of namespaces into one. Asking again would not help; the monitor asks when a new kind appears.
        let Some(resource) = self.resource_of(&node).filter(|resource| is_in_reach(resource, &node)) else {
            tracing::debug!(
                kind = node.kind,
                api_version = node.api_version,
                name = node.name,
                "an owner reference leads nowhere; remove it from the objects that have it"
            );
            return Ok(Plan::nothing());
        };
        let Some(live) = self.read_live(resource, &node).await? else {
            // What was only known from its dependents, or whose deletion the watch has yet to tell, is gone.
            let touched = self.graph.lock().remove(&node.uid);
            self.enqueue(touched);
            return Ok(Plan::nothing());
        };
        let view = self.view(&node, live).await?;
        let mut verdict = verdict::plan(&view);
        self.enqueue(verdict.look_at);
        if !node.is_observed() {
            verdict.plan.again_after(UNOBSERVED_RECHECK);
        }
        Ok(verdict.plan)
    }
}

impl Controller {
    fn enqueue(&self, uids: Vec<String>) {
        uids.into_iter().for_each(|uid| self.queue.add(Key::new("", &uid)));
    }

    /// The object as the server has it, unless it is gone or another has taken its name.
    async fn read_live(&self, resource: &'static Resource, node: &Node) -> client::Result<Option<Value>> {
        let api = self.client.resource(resource).in_namespace(node.namespace.clone());
        match api.get::<Value>(&node.name).await {
            Ok(live) if live["metadata"]["uid"] == node.uid.as_str() => Ok(Some(live)),
            Ok(_) => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn resource_of(&self, node: &Node) -> Option<&'static Resource> {
        node.resource
            .or_else(|| self.monitor.resource(&node.api_version, &node.kind))
    }

    async fn view(&self, node: &Node, live: Value) -> client::Result<View> {
        let metadata = ObjectMeta::deserialize(&live["metadata"]).unwrap_or_default();
        let mut owners = Vec::new();
        for owner in &metadata.owner_references {
            owners.push((owner.uid.clone(), self.owner_state(&metadata, owner).await?));
        }
        let dependents = self.graph.lock().dependents(&node.uid);
        let dependents = dependents.into_iter().map(|dependent| Dependent {
            resource: dependent.resource,
            blocks: dependent
                .owners
                .iter()
                .any(|owner| owner.uid == node.uid && owner.block_owner_deletion),
            node: dependent,
        });
        Ok(View {
            resource: self.resource_of(node),
            metadata,
            owner_references: live["metadata"]["ownerReferences"]
                .as_array()
                .cloned()
                .unwrap_or_default(),
            owners,
            dependents: dependents.collect(),
        })
    }

    /// What is known of an owner.
    async fn owner_state(&self, of: &ObjectMeta, owner: &api::OwnerReference) -> client::Result<OwnerState> {
        let resource = self.monitor.resource(&owner.api_version, &owner.kind);
        let Some(resource) = resource.filter(|resource| !resource.namespaced || !of.namespace.is_empty()) else {
            // Unknown kinds, and owners in a namespace of objects without one, cannot be looked up; they stand.
            return Ok(OwnerState::Solid);
        };
        let namespace = if resource.namespaced { of.namespace.as_str() } else { "" };
        let known = self.graph.lock().node(&owner.uid);
        if let Some(known) = known.filter(|known| known.is_observed() && known.namespace == namespace) {
            return Ok(OwnerState::of(known.is_deleting_dependents));
        }
        let api = self.client.resource(resource).in_namespace(namespace);
        match api.get::<Value>(&owner.name).await {
            Ok(live) if live["metadata"]["uid"] == owner.uid.as_str() => {
                let metadata = ObjectMeta::deserialize(&live["metadata"]).unwrap_or_default();
                Ok(OwnerState::of(graph::deletes_dependents(&metadata)))
            }
            Ok(_) => Ok(OwnerState::Absent),
            Err(error) if error.is_not_found() => Ok(OwnerState::Absent),
            Err(error) => Err(error),
        }
    }
}

/// Whether an object can be looked up: one in a namespace needs to have one.
fn is_in_reach(resource: &Resource, node: &Node) -> bool {
    !resource.namespaced || !node.namespace.is_empty()
}

#[cfg(test)]
mod tests {
    use api::kinds::job::JOB;
    use api::kinds::pod::POD;
    use bytes::Bytes;
    use client::{Body, Transport, TransportError, Upgrade};
    use http::{Request, Response, StatusCode};
    use serde_json::json;

    use super::*;

    /// A server that has the Job of the tests, or not.
    struct Server(Mutex<bool>);

    #[async_trait]
    impl Transport for Server {
        async fn send(&self, _: Request<Bytes>) -> Result<Response<Body>, TransportError> {
            let (status, body) = match *self.0.lock() {
                true => (
                    StatusCode::OK,
                    json!({"metadata": {"name": "job", "namespace": "default", "uid": "job"}}),
                ),
                false => (
                    StatusCode::NOT_FOUND,
                    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
                ),
            };
            let mut response = Response::new(client::body_from_bytes(Bytes::from(body.to_string())));
            *response.status_mut() = status;
            Ok(response)
        }

        async fn upgrade(&self, _: Request<Bytes>) -> Result<Upgrade, TransportError> {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn an_owner_that_goes_before_it_is_followed_is_noticed() {
        let server = Arc::new(Server(Mutex::new(true)));
        let controller = Controller {
            client: Client::new(server.clone()),
            graph: Arc::default(),
            monitor: Monitor::of_resources(&[&JOB, &POD]),
            queue: Arc::new(WorkQueue::default()),
        };
        let owner = api::OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: "job".to_owned(),
            uid: "job".to_owned(),
            ..api::OwnerReference::default()
        };
        let pod = ObjectMeta {
            namespace: "default".to_owned(),
            name: "pod".to_owned(),
            uid: "pod".to_owned(),
            owner_references: vec![owner],
            ..ObjectMeta::default()
        };
        controller.graph.lock().set(Node::of(&POD, &pod));
        let key = Key::new("", "job");
        let plan = controller.plan(&key, &Attempt::default()).await.unwrap();
        assert_eq!(
            plan.requeue,
            Some(UNOBSERVED_RECHECK),
            "it is there, but no watch has told of it"
        );
        *server.0.lock() = false;
        controller.plan(&key, &Attempt::default()).await.unwrap();
        assert_eq!(controller.queue.next().await.name(), "pod");
    }
}
