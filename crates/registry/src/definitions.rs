//! Follows the definitions: accepts their names, keeps the table of what is served, and removes the objects of
//! definitions that go.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::custom::{CLEANUP_FINALIZER, Definition, naming};
use api::{Error, Reason, Value, kinds};
use client::ServiceResolver;
use store::Revision;
use tracing::warn;

use crate::customs::{Customs, Surroundings};
use crate::delete::DeleteOptions;
use crate::options::{Scope, WriteOptions};
use crate::registry::Registry;
use crate::served::{Served, Stored};

/// How long the objects of a deleted definition get to go before they are looked at again, and how soon a write that
/// failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// What a definition was parsed from, and what came of it.
struct Known {
    /// What decides how it is served; its other parts may change without anybody noticing.
    source: Value,
    parsed: Arc<Definition>,
}

struct Controller<F> {
    registry: Arc<Registry>,
    /// Called after the table of custom resources was replaced.
    changed: F,
    served: Arc<Served>,
    options: WriteOptions,
    known: HashMap<String, Known>,
    /// The definitions as they were stored when they were last read.
    read: HashMap<String, (Revision, Value)>,
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
        known: HashMap::new(),
        read: HashMap::new(),
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

impl<F: Fn() + Send + Sync> Controller<F> {
    /// Brings everything up to date with the stored definitions. Returns whether something is left to do without
    /// another change of a definition.
    async fn sync(&mut self) -> bool {
        self.read_all();
        let now = schema::time::format(schema::time::now());
        let mut statuses = Vec::new();
        let mut definitions = Vec::new();
        let names: Vec<String> = self.read.keys().cloned().collect();
        for name in names {
            let wanted = self.wanted(&name, &now);
            let Some((_, definition)) = self.read.get_mut(&name) else {
                continue;
            };
            if let Some(status) = wanted {
                definition["status"] = status.clone();
                statuses.push((name.clone(), status));
            }
            let definition = definition.clone();
            definitions.push(self.parsed(&name, &definition));
        }
        // Served first, announced second: whoever sees a definition established can use it.
        definitions.sort_by(|a, b| a.name.cmp(&b.name));
        self.publish(definitions.clone());
        let mut unfinished = false;
        for (name, status) in statuses {
            unfinished |= self.write_status(&name, status).await.is_err();
        }
        for definition in definitions.iter().filter(|definition| definition.deleting) {
            match self.clean_up(definition).await {
                Ok(done) => unfinished |= !done,
                Err(error) => {
                    warn!(%error, definition = definition.name, "objects of a deleted definition could not be removed");
                    unfinished = true;
                }
            }
        }
        unfinished
    }

    fn read_all(&mut self) {
        let snapshot = self.registry.snapshot();
        let mut read = HashMap::new();
        for entry in snapshot.range(&self.served.prefix, &self.served.prefix) {
            let name = entry.key[self.served.prefix.len()..].to_owned();
            let known = self.read.remove(&name);
            let value = match known {
                Some((revision, value)) if revision == entry.mod_revision => Some(value),
                _ => Stored::from(entry.clone()).value(&self.served).ok(),
            };
            if let Some(value) = value {
                read.insert(name, (entry.mod_revision, value));
            }
        }
        self.known.retain(|name, _| read.contains_key(name));
        self.read = read;
    }

    fn wanted(&self, name: &str, now: &str) -> Option<Value> {
        let (_, definition) = self.read.get(name)?;
        let group = &definition["spec"]["group"];
        let others: Vec<Value> = self
            .read
            .iter()
            .filter(|(other, (_, value))| other.as_str() != name && value["spec"]["group"] == *group)
            .map(|(_, (_, value))| value.clone())
            .collect();
        naming::status(definition, &others, now)
    }

    /// The parsed form, made anew only when something about it changed.
    fn parsed(&mut self, name: &str, definition: &Value) -> Arc<Definition> {
        let source = serde_json::json!([
            definition["spec"],
            definition["status"]["acceptedNames"],
            naming::is_true(definition, "Established"),
            definition["metadata"]["deletionTimestamp"].is_string(),
            definition["metadata"]["uid"],
        ]);
        match self.known.get(name) {
            Some(known) if known.source == source => known.parsed.clone(),
            _ => {
                let parsed = Arc::new(Definition::parse(definition));
                let known = Known {
                    source,
                    parsed: parsed.clone(),
                };
                self.known.insert(name.to_owned(), known);
                parsed
            }
        }
    }

    fn surroundings(&self) -> Surroundings<'_> {
        let services: Weak<dyn ServiceResolver> = Arc::downgrade(&self.registry) as Weak<dyn ServiceResolver>;
        Surroundings {
            hub: &self.registry.hub,
            root: self.registry.root(),
            metrics: &self.registry.metrics,
            services,
        }
    }

    fn publish(&self, definitions: Vec<Arc<Definition>>) {
        let registry = &self.registry;
        let before = registry.customs.load_full();
        let unchanged = before.definitions.len() == definitions.len()
            && before
                .definitions
                .iter()
                .zip(&definitions)
                .all(|(a, b)| Arc::ptr_eq(a, b));
        if unchanged {
            return;
        }
        let after = Arc::new(Customs::new(definitions, &before, &self.surroundings()));
        registry.customs.store(after.clone());
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
                warn!(%error, definition = name, "the status of a definition could not be written");
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Deletes the objects of a definition that goes, then lets the definition go. Returns whether nothing is left.
    async fn clean_up(&self, definition: &Arc<Definition>) -> Result<bool, Error> {
        let registry = &self.registry;
        let Some((_, value)) = self.read.get(&definition.name) else {
            return Ok(true);
        };
        let finalizers = value["metadata"]["finalizers"].as_array();
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
        let served = self.surroundings().serve(definition, at);
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
