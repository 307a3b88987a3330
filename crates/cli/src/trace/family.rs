//! A workload and everything that was made for it, as the API shows it.

use std::collections::{BTreeSet, HashSet};

use ::trace::Mark;
use anyhow::{Context, Result};
use api::kinds::{deployment::DEPLOYMENT, endpoint_slice::ENDPOINT_SLICE, pod::POD, replica_set::REPLICA_SET};
use api::{ObjectMeta, Resource};
use client::{Client, ListOptions};
use serde::Deserialize;

#[derive(Debug, Default)]
pub struct Family {
    members: Vec<Member>,
    /// ReplicaSets that were made.
    pub sets: usize,
    pub pods: Vec<TracedPod>,
}

#[derive(Debug, Default)]
pub struct TracedPod {
    /// Empty while it has none.
    pub node: String,
    pub is_ready: bool,
}

#[derive(Debug)]
struct Member {
    /// As marks name it.
    object: String,
    uid: String,
}

/// Any object, as far as traces need it.
#[derive(Deserialize)]
struct Object {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Family {
    pub async fn of_pod(client: &Client, namespace: &str, name: &str) -> Result<Family> {
        let mut family = Family::default();
        family.add_pod(&read(client, &POD, namespace, name).await?);
        Ok(family)
    }

    pub async fn of_deployment(client: &Client, namespace: &str, name: &str) -> Result<Family> {
        let mut family = Family::default();
        let deployment = read(client, &DEPLOYMENT, namespace, name).await?;
        family.add(&DEPLOYMENT, &deployment.metadata);
        let owner = HashSet::from([deployment.metadata.uid]);
        let sets = owned(client, &REPLICA_SET, namespace, &owner).await?;
        let owners = sets.iter().map(|set| set.metadata.uid.clone()).collect();
        family.sets = sets.len();
        sets.iter().for_each(|set| family.add(&REPLICA_SET, &set.metadata));
        let pods = owned(client, &POD, namespace, &owners).await?;
        pods.iter().for_each(|pod| family.add_pod(pod));
        let slices = all(client, &ENDPOINT_SLICE, namespace).await?;
        let is_of = |slice: &&Object| {
            let service = slice.metadata.labels.get("kubernetes.io/service-name");
            service.is_some_and(|service| service == name)
        };
        let slices = slices.iter().filter(is_of);
        slices.for_each(|slice| family.add(&ENDPOINT_SLICE, &slice.metadata));
        Ok(family)
    }

    /// Drops the marks of everything else.
    pub fn keep_own(&self, marks: &mut Vec<Mark>) {
        let uids: HashSet<&str> = self.members.iter().map(|member| member.uid.as_str()).collect();
        let names: HashSet<&str> = self.members.iter().map(|member| member.object.as_str()).collect();
        marks.retain(|mark| match mark.uid.as_str() {
            "" => names.contains(mark.object.as_str()),
            uid => uids.contains(uid),
        });
    }

    /// Where its pods are.
    pub fn nodes(&self) -> BTreeSet<&str> {
        let nodes = self.pods.iter().map(|pod| pod.node.as_str());
        nodes.filter(|node| !node.is_empty()).collect()
    }

    fn add(&mut self, resource: &Resource, meta: &ObjectMeta) {
        self.members.push(Member {
            object: format!("{}/{}/{}", resource.plural, meta.namespace, meta.name),
            uid: meta.uid.clone(),
        });
    }

    fn add_pod(&mut self, pod: &Object) {
        self.add(&POD, &pod.metadata);
        let is_ready = |condition: &Condition| condition.kind == "Ready" && condition.status == "True";
        self.pods.push(TracedPod {
            node: pod.spec.node_name.clone(),
            is_ready: pod.status.conditions.iter().any(is_ready),
        });
    }
}

async fn owned(
    client: &Client,
    resource: &'static Resource,
    namespace: &str,
    owners: &HashSet<String>,
) -> Result<Vec<Object>> {
    let mut objects = all(client, resource, namespace).await?;
    objects.retain(|object| {
        let references = &object.metadata.owner_references;
        references.iter().any(|owner| owners.contains(&owner.uid))
    });
    Ok(objects)
}

async fn all(client: &Client, resource: &'static Resource, namespace: &str) -> Result<Vec<Object>> {
    let api = client.resource(resource).in_namespace(namespace);
    let list = api.list::<Object>(&ListOptions::default()).await;
    let list = list.with_context(|| format!("cannot list {}", resource.qualified()))?;
    Ok(list.items)
}

async fn read(client: &Client, resource: &'static Resource, namespace: &str, name: &str) -> Result<Object> {
    let api = client.resource(resource).in_namespace(namespace);
    let found = api.get::<Object>(name).await;
    found.with_context(|| format!("cannot read {} {name}", resource.singular))
}
