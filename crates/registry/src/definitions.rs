//! Follows the definitions: accepts their names, keeps the table of what is served, and removes the objects of
//! definitions that go.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::custom::{CLEANUP_FINALIZER, Definition, naming};
use api::{Error, Fields, Reason, Value, kinds};
use client::ServiceResolver;
use store::Revision;
use tracing::warn;

use crate::custom_resources::{CustomResourceContext, CustomResources};
use crate::delete::DeleteOptions;
use crate::options::{Scope, WriteOptions};
use crate::registry::Registry;
use crate::served::{Served, Stored};

/// How long the objects of a deleted definition get to go before they are looked at again, and how soon a write that
/// failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// A definition as it was last read.
struct KnownDefinition {
    revision: Revision,
    /// Everything but `spec.versions`: the schemas are large, and only the parsed form keeps them.
    outline: Value,
    /// A hash of the whole spec.
    spec: u64,
    /// The parsed form, and what it was made from.
    parsed: Option<(Source, Arc<Definition>)>,
}

/// What decides how a definition is served; its other parts may change without anybody noticing.
#[derive(PartialEq)]
struct Source {
    uid: String,
    spec: u64,
    accepted_names: Value,
    established: bool,
    deleting: bool,
}

/// What has changed since the definitions were read before.
#[derive(Default)]
struct Changes {
    /// New and changed definitions as they are stored, by name.
    whole: HashMap<String, Value>,
    /// The groups in which definitions came, changed or went. Names conflict only within a group, so that all others stay
    /// as they are.
    groups: HashSet<String>,
}

struct Controller<F> {
    registry: Arc<Registry>,
    /// Called after the table of custom resources was replaced.
    changed: F,
    served: Arc<Served>,
    options: WriteOptions,
    /// Sorted, so that of two definitions that want the same name always the same one gets it.
    known: BTreeMap<String, KnownDefinition>,
    hashing: RandomState,
}

/// Serves what the definitions say, for ever. The table is complete before this returns its task; `changed` is called
/// whenever it is replaced.
pub async fn follow_definitions<F: Fn() + Send + Sync>(
    registry: Arc<Registry>,
    changed: F,
) -> Result<impl Future<Output = ()> + Send, Error> {
    let served = registry
        .served(&kinds::custom_resource_definition::CUSTOM_RESOURCE_DEFINITION)?
        .clone();
    let mut controller = Controller {
        registry,
        changed,
        served,
        options: WriteOptions::of_controller("kube-apiserver"),
        known: BTreeMap::new(),
        hashing: RandomState::new(),
    };
    let from = controller.registry.snapshot().revision();
    let mut follower = controller.served.follow(from);
    let mut unfinished = controller.sync().await;
    Ok(async move {
        loop {
            tokio::select! {
                () = follower.changed() => {}
                () = tokio::time::sleep(AGAIN), if unfinished => {}
            }
            unfinished = controller.sync().await;
        }
    })
}

impl KnownDefinition {
    fn group(&self) -> &str {
        self.outline["spec"].text("group")
    }

    fn source(&self) -> Source {
        let definition = &self.outline;
        Source {
            uid: definition["metadata"].text("uid").to_owned(),
            spec: self.spec,
            accepted_names: definition["status"]["acceptedNames"].clone(),
            established: naming::is_true(definition, "Established"),
            deleting: definition["metadata"].has("deletionTimestamp"),
        }
    }
}

impl<F: Fn() + Send + Sync> Controller<F> {
    /// Brings everything up to date with the stored definitions. Returns whether something is left to do without
    /// another change of a definition.
    async fn sync(&mut self) -> bool {
        let mut changes = self.read_changes();
        let statuses = self.settle(&mut changes);
        drop(changes);
        // Served first, announced second: whoever sees a definition established can use it.
        let parsed = |known: &KnownDefinition| known.parsed.as_ref().map(|(_, definition)| definition.clone());
        let definitions: Vec<Arc<Definition>> = self.known.values().filter_map(parsed).collect();
        self.publish(definitions.clone());
        let mut unfinished = false;
        for (name, status) in statuses {
            unfinished |= self.write_status(&name, status).await.is_err();
        }
        for definition in definitions.iter().filter(|definition| definition.deleting) {
            match self.clean_up(definition).await {
                Ok(done) => unfinished |= !done,
                Err(error) => {
                    warn!(%error, definition = definition.name, "Failed to remove the objects of a deleted CustomResourceDefinition; retrying");
                    unfinished = true;
                }
            }
        }
        unfinished
    }

    /// Reads what was stored since the last time, and forgets what is gone.
    fn read_changes(&mut self) -> Changes {
        let snapshot = self.registry.snapshot();
        let mut changes = Changes::default();
        let mut before = std::mem::take(&mut self.known);
        for entry in snapshot.range(&self.served.prefix, &self.served.prefix) {
            let name = &entry.key[self.served.prefix.len()..];
            let known = before.remove(name);
            let known = match known {
                Some(known) if known.revision == entry.mod_revision => known,
                known => {
                    let Ok(value) = Stored::from(entry.clone()).value(&self.served) else {
                        continue;
                    };
                    let parsed = known.and_then(|known| known.parsed);
                    let known = self.outline(&value, entry.mod_revision, parsed);
                    changes.groups.insert(known.group().to_owned());
                    changes.whole.insert(name.to_owned(), value);
                    known
                }
            };
            self.known.insert(name.to_owned(), known);
        }
        changes
            .groups
            .extend(before.values().map(|gone| gone.group().to_owned()));
        changes
    }

    fn outline(&self, value: &Value, revision: Revision, parsed: Option<(Source, Arc<Definition>)>) -> KnownDefinition {
        let without = |value: &Value, field: &str| -> Value {
            let fields = value.as_object().into_iter().flatten();
            let kept = fields.filter(|(name, _)| *name != field);
            kept.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let mut outline = without(value, "spec");
        outline.set("spec", without(&value["spec"], "versions"));
        KnownDefinition {
            revision,
            outline,
            spec: self.hashing.hash_one(value["spec"].to_string()),
            parsed,
        }
    }

    /// Decides on the names of the definitions in groups that changed, and parses those that are now served otherwise.
    /// Returns the statuses to be written.
    fn settle(&mut self, changes: &mut Changes) -> Vec<(String, Value)> {
        let now = schema::time::format(schema::time::now());
        let in_group =
            |(name, known): (&String, &KnownDefinition)| changes.groups.contains(known.group()).then(|| name.clone());
        let affected: Vec<String> = self.known.iter().filter_map(in_group).collect();
        let mut statuses = Vec::new();
        for name in affected {
            let status = self.wanted_status(&name, &now);
            let Some(known) = self.known.get_mut(&name) else {
                continue;
            };
            if let Some(status) = status {
                known.outline.set("status", status.clone());
                statuses.push((name.clone(), status));
            }
            let source = known.source();
            if matches!(&known.parsed, Some((parsed, _)) if *parsed == source) {
                continue;
            }
            let status = known.outline["status"].clone();
            let Some(mut whole) = changes.whole.remove(&name).or_else(|| self.read_whole(&name)) else {
                continue;
            };
            whole.set("status", status);
            let parsed = Arc::new(Definition::parse(&whole));
            if let Some(known) = self.known.get_mut(&name) {
                known.parsed = Some((source, parsed));
            }
        }
        statuses
    }

    fn wanted_status(&self, name: &str, now: &str) -> Option<Value> {
        let definition = &self.known.get(name)?.outline;
        let group = definition["spec"].text("group");
        let others = self.known.iter().filter(|(other, _)| other.as_str() != name);
        let outlines = others.map(|(_, other)| &other.outline);
        naming::status(
            definition,
            outlines.filter(|other| other["spec"].text("group") == group),
            now,
        )
    }

    /// A definition that did not change itself, but whose names were taken or became free.
    fn read_whole(&self, name: &str) -> Option<Value> {
        let key = self.registry.key(&self.served, "", name).ok()?;
        let entry = self.registry.snapshot().get(&key)?;
        Stored::from(entry).value(&self.served).ok()
    }

    fn custom_resource_context(&self) -> CustomResourceContext<'_> {
        let services: Weak<dyn ServiceResolver> = Arc::downgrade(&self.registry) as Weak<dyn ServiceResolver>;
        CustomResourceContext {
            hub: &self.registry.hub,
            root: self.registry.root(),
            metrics: &self.registry.metrics,
            services,
        }
    }

    fn publish(&self, definitions: Vec<Arc<Definition>>) {
        let registry = &self.registry;
        let before = registry.custom_resources.load_full();
        let unchanged = before.definitions.len() == definitions.len()
            && before
                .definitions
                .iter()
                .zip(&definitions)
                .all(|(a, b)| Arc::ptr_eq(a, b));
        if unchanged {
            return;
        }
        let after = Arc::new(CustomResources::new(
            definitions,
            &before,
            &self.custom_resource_context(),
        ));
        registry.custom_resources.store(after.clone());
        before.retire_missing(&after);
        (self.changed)();
    }

    async fn write_status(&self, name: &str, status: Value) -> Result<(), Error> {
        let mut change = |current: &Value| {
            let mut changed = current.clone();
            changed["status"] = status.clone();
            Ok(changed)
        };
        let registry = &self.registry;
        let written = registry
            .update(&self.served, "", name, Scope::Status, &self.options, &mut change)
            .await;
        match written {
            Err(error) if error.reason != Reason::NotFound => {
                warn!(%error, definition = name, "Failed to write the status of a CustomResourceDefinition");
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Deletes the objects of a definition that goes, then lets the definition go. Returns whether nothing is left.
    async fn clean_up(&self, definition: &Arc<Definition>) -> Result<bool, Error> {
        let registry = &self.registry;
        let Some(known) = self.known.get(&definition.name) else {
            return Ok(true);
        };
        let finalizers = known.outline["metadata"]["finalizers"].as_array();
        if !finalizers.is_some_and(|finalizers| finalizers.iter().any(|one| one == CLEANUP_FINALIZER)) {
            return Ok(true);
        }
        let remaining = self.delete_objects(definition).await?;
        if remaining > 0 {
            return Ok(false);
        }
        let now = schema::time::format(schema::time::now());
        let mut change = |current: &Value| {
            let mut changed = current.clone();
            if let Some(finalizers) = changed["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|finalizer| finalizer != CLEANUP_FINALIZER);
            }
            changed["status"] = naming::with_condition(
                current,
                "Terminating",
                "False",
                "InstanceDeletionCompleted",
                "removed all instances",
                &now,
            );
            Ok(changed)
        };
        let scope = Scope::Subresource("");
        match registry
            .update(
                &self.served,
                "",
                &definition.name,
                scope,
                &WriteOptions::own(),
                &mut change,
            )
            .await
        {
            Err(error) if error.reason == Reason::NotFound => Ok(true),
            other => other.map(|_| true),
        }
    }

    /// Deletes what is there; returns how many objects still are.
    async fn delete_objects(&self, definition: &Arc<Definition>) -> Result<usize, Error> {
        let registry = &self.registry;
        let Some(at) = definition
            .versions
            .iter()
            .position(|version| version.name == definition.storage)
        else {
            return Ok(0);
        };
        let served = self.custom_resource_context().serve(definition, at);
        let snapshot = registry.latest().await?;
        let keys: Vec<String> = snapshot
            .range(&served.prefix, &served.prefix)
            .map(|entry| entry.key[served.prefix.len()..].to_owned())
            .collect();
        let delete = DeleteOptions::default();
        for key in &keys {
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            match registry.delete(&served, namespace, name, &delete, &self.options).await {
                Err(error) if error.reason != Reason::NotFound => return Err(error),
                _ => {}
            }
        }
        let snapshot = registry.latest().await?;
        Ok(snapshot.range(&served.prefix, &served.prefix).count())
    }
}
