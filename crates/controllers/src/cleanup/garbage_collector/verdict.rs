//! What becomes of one object, given its owners and dependents. Pure.

use api::{ObjectMeta, Resource, Value};
use client::Propagation;
use serde_json::json;

use super::graph::{FOREGROUND, Node, ORPHAN, deletes_dependents};
use crate::plan::{Action, Delete, Patch, Plan};

/// All that matters for one object.
pub struct View {
    pub resource: Option<&'static Resource>,
    /// As the server has it now.
    pub metadata: ObjectMeta,
    /// The references as they are written.
    pub owner_references: Vec<Value>,
    /// The state of each owner, by UID.
    pub owners: Vec<(String, OwnerState)>,
    pub dependents: Vec<Dependent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It is there and keeps what it owns.
    Solid,
    /// It is there, but being deleted, and waits for what it owns to go first.
    Waiting,
    Absent,
}

pub struct Dependent {
    pub resource: Option<&'static Resource>,
    pub node: Node,
    /// The owner may not go before it.
    pub blocks: bool,
}

pub struct Verdict {
    pub plan: Plan,
    /// Objects to be looked at next.
    pub look_at: Vec<String>,
}

impl OwnerState {
    pub fn of(deletes_dependents: bool) -> OwnerState {
        if deletes_dependents {
            OwnerState::Waiting
        } else {
            OwnerState::Solid
        }
    }
}

pub fn plan(view: &View) -> Verdict {
    let mut verdict = Verdict {
        plan: Plan::default(),
        look_at: Vec::new(),
    };
    let Some(resource) = view.resource else { return verdict };
    let metadata = &view.metadata;
    if metadata.is_deleting() && has(metadata, ORPHAN) {
        verdict.plan.actions = orphan(view, resource);
        return verdict;
    }
    if deletes_dependents(metadata) {
        let blocking: Vec<&Dependent> = view.dependents.iter().filter(|dependent| dependent.blocks).collect();
        if blocking.is_empty() {
            verdict
                .plan
                .actions
                .push(without_finalizer(resource, metadata, FOREGROUND));
        } else {
            let alive = blocking.iter().filter(|dependent| !dependent.node.is_deleting);
            verdict.look_at = alive.map(|dependent| dependent.node.uid.clone()).collect();
        }
        return verdict;
    }
    if metadata.is_deleting() || view.owners.is_empty() {
        return verdict;
    }
    verdict.plan.actions.extend(by_owners(view, resource));
    verdict
}

/// An object with owners lives while one of them is solid, and then forgets the others.
fn by_owners(view: &View, resource: &'static Resource) -> Vec<Action> {
    let metadata = &view.metadata;
    let all = |state| view.owners.iter().filter(move |(_, known)| *known == state);
    let solid = all(OwnerState::Solid).count();
    if solid == view.owners.len() {
        return Vec::new();
    }
    if solid > 0 {
        let is_solid = |uid: &str| all(OwnerState::Solid).any(|(known, _)| known == uid);
        let kept = view.owner_references.iter();
        let kept: Vec<&Value> = kept
            .filter(|reference| reference["uid"].as_str().is_some_and(is_solid))
            .collect();
        let body = json!({"metadata": {"uid": metadata.uid, "ownerReferences": kept}});
        return vec![Action::Patch(
            Patch::new(resource, metadata, body).at_revision(metadata),
        )];
    }
    let waiting = all(OwnerState::Waiting).count() > 0;
    let mut actions = Vec::new();
    let propagation = if waiting && !view.dependents.is_empty() {
        // A circle of objects that wait for each other would never end.
        if view
            .dependents
            .iter()
            .any(|dependent| dependent.node.is_deleting_dependents)
        {
            actions.push(unblock(view, resource));
        }
        Propagation::Foreground
    } else if has(metadata, ORPHAN) {
        Propagation::Orphan
    } else if has(metadata, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let mut delete = Delete::new(resource, metadata);
    delete.propagation = Some(propagation);
    if actions.is_empty() {
        delete.only_at = metadata.resource_version.clone();
    }
    actions.push(Action::Delete(delete));
    actions
}

/// Lets the owners go before this object.
fn unblock(view: &View, resource: &'static Resource) -> Action {
    let mut references = view.owner_references.clone();
    for reference in &mut references {
        reference["blockOwnerDeletion"] = false.into();
    }
    let body = json!({"metadata": {"uid": view.metadata.uid, "ownerReferences": references}});
    Action::Patch(Patch::new(resource, &view.metadata, body).at_revision(&view.metadata))
}

/// Releases all dependents, then the object itself.
fn orphan(view: &View, resource: &'static Resource) -> Vec<Action> {
    let owner = &view.metadata.uid;
    let releases = view.dependents.iter().filter_map(|dependent| {
        let node = &dependent.node;
        let references = node.owners.iter().filter(|reference| reference.uid != *owner);
        let references: Vec<Value> = references.map(crate::claim::reference).collect();
        let metadata = ObjectMeta {
            namespace: node.namespace.clone(),
            name: node.name.clone(),
            ..ObjectMeta::default()
        };
        let body = json!({"metadata": {"uid": node.uid, "ownerReferences": references}});
        Some(Action::Patch(Patch::new(dependent.resource?, &metadata, body)))
    });
    let mut actions: Vec<Action> = releases.collect();
    actions.push(without_finalizer(resource, &view.metadata, ORPHAN));
    actions
}

fn without_finalizer(resource: &'static Resource, metadata: &ObjectMeta, finalizer: &str) -> Action {
    let others: Vec<&String> = metadata.finalizers.iter().filter(|name| *name != finalizer).collect();
    let body = json!({"metadata": {"finalizers": others}});
    Action::Patch(Patch::new(resource, metadata, body).at_revision(metadata))
}

fn has(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().any(|name| name == finalizer)
}

#[cfg(test)]
mod tests {
    use api::kinds::pod::POD;
    use api::kinds::replica_set::REPLICA_SET;
    use expect_test::{Expect, expect};

    use super::*;
    use crate::model::Metadata;
    use crate::testing::{object, values};

    fn check(resource: &'static Resource, yaml: &str, states: &[OwnerState], dependents: &[&str], expected: Expect) {
        let metadata = object::<Metadata>(yaml).metadata.clone();
        let references = values(yaml).remove(0)["metadata"]["ownerReferences"].take();
        let owners = metadata.owner_references.iter().map(|owner| owner.uid.clone());
        let dependents = dependents.iter().map(|yaml| {
            let node = Node::of(&POD, &object::<Metadata>(yaml).metadata);
            Dependent {
                resource: Some(&POD),
                blocks: node.owners.iter().any(|owner| owner.block_owner_deletion),
                node,
            }
        });
        let view = View {
            resource: Some(resource),
            owners: owners.zip(states.iter().copied()).collect(),
            dependents: dependents.collect(),
            owner_references: references.as_array().cloned().unwrap_or_default(),
            metadata,
        };
        let verdict = plan(&view);
        let next: Vec<String> = verdict.look_at.iter().map(|uid| format!("look at {uid}\n")).collect();
        expected.assert_eq(&format!("{}{}", verdict.plan, next.concat()));
    }

    const OWNED: &str = "
metadata:
  name: pod
  namespace: default
  uid: pod
  resourceVersion: '3'
  ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: a}, {apiVersion: v1, kind: B, name: b, uid: b, extra: kept}]
";
    const SET: &str = "metadata: {name: set, namespace: default, uid: set, resourceVersion: '8', deletionTimestamp: x, finalizers: [FINALIZER, other]}";
    const DEPENDENT: &str = "metadata: {name: pod, namespace: default, uid: pod, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: set, uid: set, blockOwnerDeletion: true}]}";

    #[test]
    fn an_object_goes_with_its_last_owner() {
        use OwnerState::{Absent, Solid};
        check(&POD, OWNED, &[Solid, Solid], &[], expect![""]);
        check(
            &POD,
            OWNED,
            &[Absent, Absent],
            &[],
            expect![[r#"
            delete pods default/pod (Background)
        "#]],
        );
        check(
            &POD,
            OWNED,
            &[Absent, Solid],
            &[],
            expect![[r#"
            patch pods default/pod: {"metadata":{"ownerReferences":[{"apiVersion":"v1","extra":"kept","kind":"B","name":"b","uid":"b"}],"resourceVersion":"3","uid":"pod"}}
        "#]],
        );
    }

    #[test]
    fn an_owner_in_foreground_deletion_waits_for_those_that_block_it() {
        let set = SET.replace("FINALIZER", "foregroundDeletion");
        check(
            &REPLICA_SET,
            &set,
            &[],
            &[DEPENDENT],
            expect![[r#"
            look at pod
        "#]],
        );
        check(
            &REPLICA_SET,
            &set,
            &[],
            &[],
            expect![[r#"
            patch replicasets default/set: {"metadata":{"finalizers":["other"],"resourceVersion":"8"}}
        "#]],
        );
        // The dependent, in turn, is deleted the same way if it has dependents of its own.
        check(
            &POD,
            &OWNED.replace(", {apiVersion: v1, kind: B, name: b, uid: b, extra: kept}", ""),
            &[OwnerState::Waiting],
            &[DEPENDENT],
            expect![[r#"
                delete pods default/pod (Foreground)
            "#]],
        );
    }

    #[test]
    fn orphaning_releases_the_dependents_and_then_the_owner() {
        let set = SET.replace("FINALIZER", "orphan");
        check(
            &REPLICA_SET,
            &set,
            &[],
            &[DEPENDENT],
            expect![[r#"
            patch pods default/pod: {"metadata":{"ownerReferences":[],"uid":"pod"}}
            patch replicasets default/set: {"metadata":{"finalizers":["other"],"resourceVersion":"8"}}
        "#]],
        );
    }
}
