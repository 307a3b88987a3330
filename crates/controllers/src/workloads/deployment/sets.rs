//! The ReplicaSets of a Deployment while a plan is made: as they are, and as they will be.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::kinds::deployment::DEPLOYMENT;
use api::kinds::replica_set::REPLICA_SET;
use api::{Fields, Value};
use client::ObjectReference;
use client::when::Moment;
use serde_json::{Map, json};

use super::model::Deployment;
use crate::model::{ReplicaSet, created};
use crate::owner::controller_reference;
use crate::plan::{Action, Announce, Create, Patch};
use crate::workloads::template::{self, POD_TEMPLATE_HASH};

/// How many replicas the Deployment had, and could have had with its surge, when the set was last scaled.
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

pub struct Sets {
    /// By age, the oldest first.
    all: Vec<Set>,
    /// The one of the current template.
    current: Option<usize>,
}

#[derive(Clone)]
pub struct Set {
    /// `None` for a set that the plan creates.
    source: Option<Arc<ReplicaSet>>,
    pub name: String,
    pub created: Moment,
    /// The wanted number, changed by the plan.
    pub replicas: i64,
    min_ready_seconds: i64,
    annotations: BTreeMap<String, String>,
    pub status: SetStatus,
    /// The object to create.
    object: Value,
}

#[derive(Clone, Default)]
pub struct SetStatus {
    pub replicas: i64,
    pub ready: i64,
    pub available: i64,
    pub terminating: i64,
    pub conditions: Vec<Value>,
}

impl Sets {
    pub fn new(deployment: &Deployment, sets: Vec<Arc<ReplicaSet>>) -> Sets {
        let mut sets = sets;
        sets.sort_by_key(|set| (created(&set.metadata), set.metadata.name.clone()));
        let wanted = deployment.template();
        let current = sets.iter().position(|set| template::is_same(&set.template(), &wanted));
        Sets {
            all: sets.into_iter().map(Set::of).collect(),
            current,
        }
    }

    pub fn current(&self) -> Option<&Set> {
        self.current.map(|index| &self.all[index])
    }

    pub fn current_mut(&mut self) -> Option<&mut Set> {
        self.current.map(|index| &mut self.all[index])
    }

    pub fn all(&self) -> &[Set] {
        &self.all
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Set> {
        self.all.iter_mut()
    }

    pub fn old(&self) -> impl Iterator<Item = &Set> {
        let current = self.current;
        let all = self.all.iter().enumerate();
        all.filter(move |(index, _)| Some(*index) != current)
            .map(|(_, set)| set)
    }

    /// All but the current one, the oldest first.
    pub fn old_mut(&mut self) -> impl Iterator<Item = &mut Set> {
        let current = self.current;
        let all = self.all.iter_mut().enumerate();
        all.filter(move |(index, _)| Some(*index) != current)
            .map(|(_, set)| set)
    }

    pub fn total(&self) -> i64 {
        self.all.iter().map(|set| set.replicas).sum()
    }

    pub fn available(&self) -> i64 {
        self.all.iter().map(|set| set.status.available).sum()
    }

    /// Adds a set for the current template, with no replicas yet.
    pub fn create(&mut self, deployment: &Deployment, hash: &str) {
        self.all.push(Set::to_create(deployment, hash));
        self.current = Some(self.all.len() - 1);
    }

    /// The writes that make the sets what they were planned to be.
    pub fn actions(&self, deployment: &Deployment) -> Vec<Action> {
        self.all.iter().filter_map(|set| set.action(deployment)).collect()
    }
}

impl Set {
    fn of(source: Arc<ReplicaSet>) -> Set {
        let status = &source.status;
        Set {
            name: source.metadata.name.clone(),
            created: created(&source.metadata),
            replicas: source.replicas(),
            min_ready_seconds: source.spec.min_ready_seconds,
            annotations: BTreeMap::new(),
            status: SetStatus {
                replicas: status.number("replicas"),
                ready: status.number("readyReplicas"),
                available: status.number("availableReplicas"),
                terminating: status.number("terminatingReplicas"),
                conditions: status.list("conditions").to_vec(),
            },
            object: Value::Null,
            source: Some(source),
        }
    }

    fn to_create(deployment: &Deployment, hash: &str) -> Set {
        let mut template = deployment.template();
        template
            .ensure("metadata")
            .ensure("labels")
            .set(POD_TEMPLATE_HASH, hash);
        let mut selector = deployment.spec.selector.clone();
        selector.ensure("matchLabels").set(POD_TEMPLATE_HASH, hash);
        let name = format!("{}-{hash}", deployment.metadata.name);
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "labels": template["metadata"]["labels"],
                "ownerReferences": [controller_reference(&DEPLOYMENT, &deployment.metadata)],
            },
            "spec": {"selector": selector, "template": template},
        });
        Set {
            source: None,
            name,
            created: Moment::default(),
            replicas: 0,
            min_ready_seconds: deployment.spec.min_ready_seconds,
            annotations: BTreeMap::new(),
            status: SetStatus::default(),
            object,
        }
    }

    pub fn source(&self) -> Option<&ReplicaSet> {
        self.source.as_deref()
    }

    pub fn is_active(&self) -> bool {
        self.replicas > 0
    }

    /// The annotation as it will be.
    pub fn annotation(&self, name: &str) -> Option<String> {
        let known = || self.source()?.metadata.annotations.get(name);
        self.annotations.get(name).or_else(known).cloned()
    }

    pub fn annotate(&mut self, name: &str, value: &str) {
        if self.annotation(name).as_deref() != Some(value) {
            self.annotations.insert(name.to_owned(), value.to_owned());
        }
    }

    pub fn desired_replicas(&self) -> Option<i64> {
        self.annotation(DESIRED_REPLICAS)?.parse().ok()
    }

    pub fn max_replicas(&self) -> Option<i64> {
        self.annotation(MAX_REPLICAS)?.parse().ok()
    }

    /// Scales the set and remembers for which size of the Deployment that was.
    pub fn scale(&mut self, replicas: i64, deployment: &Deployment) {
        self.replicas = replicas;
        self.annotate_size(deployment);
    }

    pub fn annotate_size(&mut self, deployment: &Deployment) {
        let desired = deployment.replicas();
        self.annotate(DESIRED_REPLICAS, &desired.to_string());
        self.annotate(MAX_REPLICAS, &(desired + deployment.max_surge()).to_string());
    }

    pub fn set_min_ready_seconds(&mut self, seconds: i64) {
        self.min_ready_seconds = seconds;
    }

    fn action(&self, deployment: &Deployment) -> Option<Action> {
        let Some(source) = &self.source else {
            return Some(Action::Create(self.creation(deployment)));
        };
        let mut body = Map::new();
        let mut spec = Map::new();
        if self.replicas != source.replicas() {
            spec.insert("replicas".to_owned(), self.replicas.into());
        }
        if self.min_ready_seconds != source.spec.min_ready_seconds {
            spec.insert("minReadySeconds".to_owned(), self.min_ready_seconds.into());
        }
        if !spec.is_empty() {
            body.insert("spec".to_owned(), spec.into());
        }
        if !self.annotations.is_empty() {
            body.insert("metadata".to_owned(), json!({"annotations": self.annotations}));
        }
        if body.is_empty() {
            return None;
        }
        let mut patch = Patch::new(&REPLICA_SET, &source.metadata, body.into()).at_revision(&source.metadata);
        if self.replicas != source.replicas() {
            patch.announce = Some(self.announce(deployment, source.replicas()));
            patch.mark = Some("deployment-controller/replicaset-scaled");
        }
        Some(Action::Patch(patch))
    }

    fn creation(&self, deployment: &Deployment) -> Create {
        let mut object = self.object.clone();
        object["metadata"]["annotations"] = json!(self.annotations);
        object["spec"]["replicas"] = self.replicas.into();
        if self.min_ready_seconds > 0 {
            object["spec"]["minReadySeconds"] = self.min_ready_seconds.into();
        }
        let mut create = Create::new(&REPLICA_SET, &deployment.metadata.namespace, object);
        create.mark = Some("deployment-controller/replicaset-created");
        create.announce = (self.replicas > 0).then(|| self.announce(deployment, 0));
        create
    }

    fn announce(&self, deployment: &Deployment, before: i64) -> Announce {
        let direction = if self.replicas > before { "up" } else { "down" };
        let (name, after) = (&self.name, self.replicas);
        Announce {
            about: ObjectReference::new(&DEPLOYMENT, &deployment.metadata),
            success: (
                "ScalingReplicaSet",
                format!("Scaled {direction} replica set {name} from {before} to {after}"),
            ),
            failure: None,
        }
    }
}
