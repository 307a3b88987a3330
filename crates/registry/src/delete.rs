//! Deleting objects: at once, after a grace period, or when the last finalizer is gone.

use std::borrow::Cow;
use std::sync::Arc;

use admission::Operation;
use api::{Error, Resource, Value};
use serde::Deserialize;
use store::{Compare, Outcome, Transaction, Write};

use crate::create::mark_of;
use crate::errors::store_error;
use crate::metadata::{self, text};
use crate::options::WriteOptions;
use crate::registry::{MAX_CONFLICT_RETRIES, Registry};
use crate::served::{Served, Stored};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeleteOptions {
    pub grace_period_seconds: Option<i64>,
    pub preconditions: Option<Preconditions>,
    pub orphan_dependents: Option<bool>,
    pub propagation_policy: Option<String>,
    pub dry_run: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

pub enum Deleted {
    /// The object is gone; this is its last state.
    Gone(Stored),
    /// The object stays until its grace period is over and its finalizers are gone.
    Pending(Stored),
}

impl DeleteOptions {
    /// Whether it is left to the kind what becomes of dependents.
    pub fn has_policy(&self) -> bool {
        self.orphan_dependents.is_some() || self.propagation_policy.is_some()
    }

    /// Adds what was asked for to the options that admission sees.
    fn describe(&self, options: &mut Value) {
        if let Some(seconds) = self.grace_period_seconds {
            options["gracePeriodSeconds"] = seconds.into();
        }
        if let Some(policy) = &self.propagation_policy {
            options["propagationPolicy"] = policy.as_str().into();
        }
        if let Some(orphan) = self.orphan_dependents {
            options["orphanDependents"] = orphan.into();
        }
        if let Some(preconditions) = &self.preconditions {
            for (field, value) in [
                ("uid", &preconditions.uid),
                ("resourceVersion", &preconditions.resource_version),
            ] {
                if let Some(value) = value {
                    options["preconditions"][field] = value.as_str().into();
                }
            }
        }
    }

    pub fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// The finalizers an object has while it waits for its dependents.
    fn finalizers(&self, resource: &Resource, current: &Value) -> Vec<Value> {
        let mut finalizers: Vec<Value> = current["metadata"]["finalizers"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let wanted = match (self.orphan_dependents, self.propagation_policy.as_deref()) {
            (Some(true), _) | (_, Some("Orphan")) => Some(ORPHAN),
            (_, Some("Foreground")) => Some(FOREGROUND),
            (Some(false), _) | (_, Some("Background")) => None,
            _ if finalizers.iter().any(|name| name == ORPHAN || name == FOREGROUND) => return finalizers,
            _ if resource.orphans_dependents => Some(ORPHAN),
            _ => return finalizers,
        };
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        finalizers.extend(wanted.map(Value::from));
        finalizers
    }
}

impl Registry {
    pub async fn delete(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        delete: &DeleteOptions,
        options: &WriteOptions,
    ) -> Result<Deleted, Error> {
        for _ in 0..MAX_CONFLICT_RETRIES {
            let stored = self.get(served, namespace, name).await?;
            let current = stored.value(served)?;
            check_preconditions(served, name, &current, delete)?;
            let mut attributes = self.attributes(served, Operation::Delete, options, (namespace, name));
            attributes.old_object = current;
            delete.describe(&mut attributes.options);
            if !options.admitted {
                self.admission.mutate(&mut attributes, &self.lookup()).await?;
                self.admission.validate(&attributes, &self.lookup()).await?;
            }
            let current = attributes.old_object;
            let deleted = match pending_state(served, &current, delete) {
                Next::Remove => {
                    let removed = self
                        .remove(served, namespace, name, &current, &stored, delete.is_dry_run())
                        .await?;
                    removed
                        .map(|removed| last_state(served, &current, removed))
                        .transpose()?
                }
                Next::Keep => Some(Deleted::Pending(stored)),
                Next::Wait(waiting) => {
                    self.mark_deleting(served, namespace, name, *waiting, &stored, delete.is_dry_run())
                        .await?
                }
            };
            if let Some(deleted) = deleted {
                return Ok(deleted);
            }
        }
        Err(Error::conflict(
            served.resource,
            name,
            "the object keeps changing; please try again",
        ))
    }

    async fn remove(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        current: &Value,
        stored: &Stored,
        dry_run: bool,
    ) -> Result<Option<Deleted>, Error> {
        if dry_run {
            return Ok(Some(Deleted::Gone(stored.clone())));
        }
        let key = self.key(served, namespace, name)?;
        let mut transaction = Transaction {
            compares: vec![Compare::Unchanged {
                key: key.clone(),
                mod_revision: stored.revision,
            }],
            writes: vec![Write::Delete { key }],
        };
        self.services
            .release(served.resource, current, &*self.store.snapshot())
            .add_to(&mut transaction);
        let committed = served.figures().delete.time(self.store.commit(transaction)).await;
        match committed.map_err(store_error)? {
            Outcome::Committed { revision } => {
                trace::mark(
                    "apiserver/deleted",
                    mark_of(served, namespace, name),
                    text(current, "uid"),
                );
                Ok(Some(Deleted::Gone(Stored {
                    bytes: stored.bytes.clone(),
                    revision,
                })))
            }
            Outcome::Conflict { .. } => Ok(None),
        }
    }

    async fn mark_deleting(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        waiting: Value,
        stored: &Stored,
        dry_run: bool,
    ) -> Result<Option<Deleted>, Error> {
        let bytes = served.encode_stored(Cow::Owned(waiting))?;
        if dry_run {
            return Ok(Some(Deleted::Pending(Stored {
                bytes,
                revision: stored.revision,
            })));
        }
        let key = self.key(served, namespace, name)?;
        let transaction = Transaction {
            compares: vec![Compare::Unchanged {
                key: key.clone(),
                mod_revision: stored.revision,
            }],
            writes: vec![Write::Put {
                key,
                value: bytes.clone(),
                ttl: None,
            }],
        };
        let committed = served.figures().update.time(self.store.commit(transaction)).await;
        match committed.map_err(store_error)? {
            Outcome::Committed { revision } => Ok(Some(Deleted::Pending(Stored { bytes, revision }))),
            Outcome::Conflict { .. } => Ok(None),
        }
    }
}

/// A pod that goes at once is shown as one whose grace period ended the moment it was deleted.
fn last_state(served: &Served, current: &Value, removed: Deleted) -> Result<Deleted, Error> {
    let Deleted::Gone(mut stored) = removed else {
        return Ok(removed);
    };
    if served.resource.rules.ends_grace_when_removed() && !metadata::is_deleting(current) {
        let mut shown = current.clone();
        shown["metadata"]["deletionTimestamp"] = deadline_after(0).into();
        shown["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        let generation = current["metadata"]["generation"].as_i64().unwrap_or(0);
        shown["metadata"]["generation"] = (generation + 1).into();
        stored.bytes = served.encode_stored(Cow::Owned(shown))?;
    }
    Ok(Deleted::Gone(stored))
}

/// What a deletion does to an object in its present state.
enum Next {
    Remove,
    /// It is already on its way and nothing changes.
    Keep,
    Wait(Box<Value>),
}

fn pending_state(served: &Served, current: &Value, delete: &DeleteOptions) -> Next {
    let mut current = current.clone();
    if !metadata::is_deleting(&current) {
        let now = schema::time::format(schema::time::now());
        served.resource.rules.prepare_deletion(&mut current, &now);
    }
    let current = &current;
    let grace = served
        .resource
        .rules
        .deletion_grace_seconds(current, delete.grace_period_seconds)
        .unwrap_or(0)
        .max(0);
    let finalizers = delete.finalizers(served.resource, current);
    let rules = served.resource.rules;
    if grace == 0 && finalizers.is_empty() && rules.other_finalizers(current).is_empty() {
        return Next::Remove;
    }
    let mut waiting = current.clone();
    if metadata::is_deleting(current) {
        let left = current["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if grace >= left && current["metadata"]["finalizers"].as_array().map_or(0, Vec::len) == finalizers.len() {
            return Next::Keep;
        }
    }
    let deadline = deadline_after(grace);
    waiting["metadata"]["deletionTimestamp"] = deadline.into();
    if served.resource.records_grace_period {
        waiting["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }
    if let Some(generation) = current["metadata"]["generation"].as_i64()
        && !metadata::is_deleting(current)
        && served.resource.records_grace_period
    {
        waiting["metadata"]["generation"] = (generation + 1).into();
    }
    match finalizers.is_empty() {
        true => waiting["metadata"]
            .as_object_mut()
            .and_then(|metadata| metadata.remove("finalizers")),
        false => waiting["metadata"]
            .as_object_mut()
            .and_then(|m| m.insert("finalizers".to_owned(), finalizers.into())),
    };
    rules.prepare_termination(&mut waiting);
    Next::Wait(Box::new(waiting))
}

fn deadline_after(grace_seconds: i64) -> String {
    let mut deadline = schema::time::now();
    deadline.seconds = deadline.seconds.saturating_add(grace_seconds);
    schema::time::format(deadline)
}

/// Whether an object is the one that is to be deleted.
pub fn check_preconditions(served: &Served, name: &str, current: &Value, delete: &DeleteOptions) -> Result<(), Error> {
    let Some(preconditions) = &delete.preconditions else {
        return Ok(());
    };
    let checks = [
        ("UID", preconditions.uid.as_deref(), text(current, "uid")),
        (
            "ResourceVersion",
            preconditions.resource_version.as_deref(),
            text(current, "resourceVersion"),
        ),
    ];
    for (what, wanted, found) in checks {
        if let Some(wanted) = wanted
            && wanted != found
        {
            let happened = match what {
                "UID" => "deleted and then recreated",
                _ => "modified",
            };
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). The object \
                 might have been {happened}"
            );
            return Err(kind_conflict(served.resource, name, &why));
        }
    }
    Ok(())
}

/// A conflict that names the kind where others name the resource.
fn kind_conflict(resource: &Resource, name: &str, why: &str) -> Error {
    let qualified = match resource.group {
        "" => resource.kind.to_owned(),
        group => format!("{}.{group}", resource.kind),
    };
    let mut error = Error::conflict(resource, name, why);
    error.message = format!("Operation cannot be fulfilled on {qualified} {name:?}: {why}");
    error.details().kind = resource.kind.to_owned();
    error
}
