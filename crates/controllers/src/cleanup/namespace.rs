//! Namespaces that are being deleted: their content goes, pods first, and then they do.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use api::kinds::namespace::NAMESPACE;
use api::kinds::pod::POD;
use api::{Fields, Resource, Value, Verb};
use async_trait::async_trait;
use client::when::Moment;
use client::{Cache, Client, Key, ListOptions};
use futures_util::future::join_all;
use serde_json::json;

use crate::conditions::{self, Condition};
use crate::driver::{Attempt, Reconcile, Row, Setup};
use crate::model::{Metadata, Namespace, Pod};
use crate::plan::{Action, Plan, Put};
use crate::status;

pub const ROW: Row = Row {
    name: "namespace",
    account: "namespace-controller",
    queue: "namespace",
    workers: 10,
    start,
};

/// The finalizer that stands for this controller.
const FINALIZER: &str = "kubernetes";
/// What is read of a resource to see what is left of it.
const PAGE: u32 = 500;
/// Lists under way at a time.
const MAX_LISTS: usize = 16;
/// When to look again after something was deleted, and while only waiting.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);

struct Controller {
    client: Client,
    namespaces: Arc<Cache<Namespace>>,
}

struct View {
    namespace: Arc<Namespace>,
    /// The namespace as the server has it now.
    live: Value,
    remaining: Vec<Remaining>,
    /// Why the content could not be found out.
    error: Option<String>,
}

/// What is left of one resource.
struct Remaining {
    resource: &'static Resource,
    count: usize,
    /// How many of them are not being deleted yet.
    untouched: usize,
    /// On how many each finalizer is.
    finalizers: BTreeMap<String, usize>,
}

fn start(setup: &mut Setup<'_>) -> Box<dyn Reconcile> {
    let namespaces = setup.cache::<Namespace>(&NAMESPACE);
    let pods = setup.cache::<Pod>(&POD);
    setup.watch_own(&namespaces);
    // The last pod of a namespace is what its deletion waits for most.
    let (queue, known) = (setup.queue(), namespaces.clone());
    pods.on_change(move |old, new| {
        if let (Some(pod), None) = (old, new)
            && let Some(namespace) = known.get("", &pod.metadata.namespace)
            && namespace.metadata.is_deleting()
        {
            queue.add(Key::new("", &pod.metadata.namespace));
        }
    });
    Box::new(Controller {
        client: setup.client(),
        namespaces,
    })
}

#[async_trait]
impl Reconcile for Controller {
    async fn plan(&self, key: &Key, attempt: &Attempt) -> client::Result<Plan> {
        Ok(match self.view(key).await? {
            Some(view) => plan(&view, attempt.now),
            None => Plan::nothing(),
        })
    }
}

impl Controller {
    async fn view(&self, key: &Key) -> client::Result<Option<View>> {
        let is_ours = |namespace: &Arc<Namespace>| {
            namespace.metadata.is_deleting() && namespace.spec.finalizers.iter().any(|name| name == FINALIZER)
        };
        let Some(namespace) = self.namespaces.get_key(key.as_str()).filter(is_ours) else {
            return Ok(None);
        };
        let live: Value = match self.client.resource(&NAMESPACE).get(key.name()).await {
            Ok(live) => live,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let (remaining, error) = match self.remaining(key.name()).await {
            Ok(remaining) => (remaining, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Ok(Some(View {
            namespace,
            live,
            remaining,
            error,
        }))
    }

    async fn remaining(&self, namespace: &str) -> client::Result<Vec<Remaining>> {
        let resources = self.client.discover().await?;
        let content =
            |resource: &&&Resource| resource.namespaced && resource.allows(Verb::List) && resource.allows(Verb::Delete);
        let resources: Vec<&'static Resource> = resources.iter().filter(content).copied().collect();
        let mut remaining = Vec::new();
        for some in resources.chunks(MAX_LISTS) {
            for found in join_all(some.iter().map(|resource| self.remaining_of(resource, namespace))).await {
                remaining.extend(found?);
            }
        }
        Ok(remaining)
    }

    async fn remaining_of(&self, resource: &'static Resource, namespace: &str) -> client::Result<Option<Remaining>> {
        let options = ListOptions {
            limit: PAGE,
            ..ListOptions::default()
        };
        let api = self.client.resource(resource).in_namespace(namespace);
        let list = match api.list::<Metadata>(&options).await {
            Ok(list) => list,
            // Discovery can be older than the removal of a custom resource.
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut finalizers = BTreeMap::new();
        for name in list.items.iter().flat_map(|object| &object.metadata.finalizers) {
            *finalizers.entry(name.clone()).or_default() += 1;
        }
        let untouched = list
            .items
            .iter()
            .filter(|object| !object.metadata.is_deleting())
            .count();
        Ok((!list.items.is_empty()).then_some(Remaining {
            resource,
            count: list.items.len(),
            untouched,
            finalizers,
        }))
    }
}

fn plan(view: &View, now: Moment) -> Plan {
    let mut plan = Plan::default();
    let metadata = &view.namespace.metadata;
    if view.error.is_none() && view.remaining.is_empty() {
        plan.actions.push(finalize(view));
        return plan;
    }
    // While there are pods nothing else is deleted: they may need their secrets and services to shut down well.
    let is_pods = |remaining: &&Remaining| std::ptr::eq(remaining.resource, &POD);
    let has_pods = view.remaining.iter().any(|remaining| is_pods(&remaining));
    let turn = view
        .remaining
        .iter()
        .filter(|remaining| !has_pods || is_pods(remaining));
    plan.actions.extend(
        turn.filter(|remaining| remaining.untouched > 0)
            .map(|remaining| Action::DeleteCollection {
                resource: remaining.resource,
                namespace: metadata.name.clone(),
            }),
    );
    plan.again_after(if plan.actions.is_empty() { LATER } else { SOON });
    let mut conditions = view.live["status"].list("conditions").to_vec();
    for wanted in conditions_of(view) {
        if !conditions::says(&conditions, &wanted) || message_of(&conditions, wanted.kind) != wanted.message {
            conditions::set(&mut conditions, &wanted, now);
        }
    }
    let wanted = json!({"phase": "Terminating", "conditions": conditions});
    plan.status = status::patch(&NAMESPACE, metadata, &view.live["status"], wanted);
    if let Some(status) = &mut plan.status {
        status.body["metadata"]["resourceVersion"] = view.live["metadata"]["resourceVersion"].clone();
    }
    plan
}

/// Takes our finalizer off; the server removes a namespace that has none left.
fn finalize(view: &View) -> Action {
    let mut object = view.live.clone();
    let others = object["spec"]
        .list("finalizers")
        .iter()
        .filter(|name| *name != FINALIZER);
    let others: Vec<Value> = others.cloned().collect();
    object["spec"]["finalizers"] = others.into();
    Action::Put(Put {
        resource: &NAMESPACE,
        namespace: String::new(),
        name: view.namespace.metadata.name.clone(),
        subresource: "finalize",
        object,
        announce: None,
    })
}

fn message_of<'a>(conditions: &'a [Value], kind: &str) -> &'a str {
    conditions::find(conditions, kind).map_or("", |condition| condition.text("message"))
}

/// What is told about the deletion, in upstream's words.
fn conditions_of(view: &View) -> Vec<Condition<'static>> {
    let condition = |kind, status, reason, message: String| Condition {
        kind,
        status,
        reason,
        message,
    };
    let discovery = match &view.error {
        Some(error) => condition(
            "NamespaceDeletionDiscoveryFailure",
            "True",
            "DiscoveryFailed",
            format!("Discovery failed for some groups: {error}"),
        ),
        None => condition(
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
    };
    vec![
        discovery,
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization".to_owned(),
        ),
        content_condition(view),
        finalizer_condition(view),
    ]
}

fn content_condition(view: &View) -> Condition<'static> {
    let mut message = "Some resources are remaining: ".to_owned();
    for (number, remaining) in view.remaining.iter().enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        let group = remaining.resource.group;
        let name = format!("{}.{group}", remaining.resource.plural);
        // Writing to a string cannot fail.
        let _ = write!(message, "{comma}{name} has {} resource instances", remaining.count);
    }
    let remains = !view.remaining.is_empty();
    Condition {
        kind: "NamespaceContentRemaining",
        status: if remains { "True" } else { "False" },
        reason: if remains {
            "SomeResourcesRemain"
        } else {
            "ContentRemoved"
        },
        message: if remains {
            message
        } else {
            "All content successfully removed".to_owned()
        },
    }
}

fn finalizer_condition(view: &View) -> Condition<'static> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, count) in view.remaining.iter().flat_map(|remaining| &remaining.finalizers) {
        *counts.entry(name).or_default() += count;
    }
    let texts: Vec<String> = counts
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    let remains = !texts.is_empty();
    Condition {
        kind: "NamespaceFinalizersRemaining",
        status: if remains { "True" } else { "False" },
        reason: if remains {
            "SomeFinalizersRemain"
        } else {
            "ContentHasNoFinalizers"
        },
        message: if remains {
            let list = texts.join(", ");
            format!("Some content in the namespace has finalizers remaining: {list}")
        } else {
            "All content-preserving finalizers finished".to_owned()
        },
    }
}

#[cfg(test)]
mod tests {
    use api::kinds::config_map::CONFIG_MAP;
    use expect_test::{Expect, expect};

    use super::*;
    use crate::testing::{noon, object, values};

    const TEAM: &str = "
metadata: {name: team, resourceVersion: '4', deletionTimestamp: '2026-01-01T11:00:00Z'}
spec: {finalizers: [kubernetes, mine]}
status: {phase: Terminating}
";

    fn remaining(resource: &'static Resource, count: usize, untouched: usize, finalizer: &str) -> Remaining {
        let finalizers = (!finalizer.is_empty()).then(|| (finalizer.to_owned(), count));
        Remaining {
            resource,
            count,
            untouched,
            finalizers: finalizers.into_iter().collect(),
        }
    }

    fn check(remaining: Vec<Remaining>, expected: Expect) {
        let view = View {
            namespace: object(TEAM),
            live: values(TEAM).remove(0),
            remaining,
            error: None,
        };
        let plan = plan(&view, noon());
        let conditions = plan
            .status
            .iter()
            .flat_map(|patch| patch.body["status"].list("conditions"));
        let told: Vec<String> = conditions
            .filter(|condition| condition["status"] == "True")
            .map(|condition| format!("{}: {}\n", condition.text("type"), condition.text("message")))
            .collect();
        let actions: Vec<String> = plan.actions.iter().map(|action| format!("{action}\n")).collect();
        expected.assert_eq(&format!("{}{}", actions.concat(), told.concat()));
    }

    #[test]
    fn pods_go_first() {
        check(
            vec![remaining(&CONFIG_MAP, 2, 2, ""), remaining(&POD, 3, 1, "")],
            expect![[r#"
                delete all pods in team
                NamespaceContentRemaining: Some resources are remaining: configmaps. has 2 resource instances, pods. has 3 resource instances
            "#]],
        );
    }

    #[test]
    fn then_the_rest_and_what_holds_it_is_told() {
        check(
            vec![remaining(&CONFIG_MAP, 2, 2, "example.com/keep")],
            expect![[r#"
                delete all configmaps in team
                NamespaceContentRemaining: Some resources are remaining: configmaps. has 2 resource instances
                NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining: example.com/keep in 2 resource instances
            "#]],
        );
    }

    #[test]
    fn an_empty_namespace_loses_our_finalizer() {
        check(
            Vec::new(),
            expect![[r#"
                put namespaces team/finalize: {"metadata":{"deletionTimestamp":"2026-01-01T11:00:00Z","name":"team","resourceVersion":"4"},"spec":{"finalizers":["mine"]},"status":{"phase":"Terminating"}}
            "#]],
        );
    }
}
