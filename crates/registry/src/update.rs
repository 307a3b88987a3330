//! Changing objects: one conditional loop for updates, patches and the subresources that change their parent.

use std::borrow::Cow;
use std::sync::Arc;

use admission::{Companion, Operation};
use api::{Error, FieldError, Reason, Resource, Value};
use bytes::Bytes;
use store::{Compare, Outcome, Transaction, Write};

use crate::allocate::Claims;
use crate::create::mark_of;
use crate::errors::store_error;
use crate::managers;
use crate::metadata::{self, text};
use crate::options::{Scope, WriteOptions};
use crate::registry::{MAX_CONFLICT_RETRIES, Registry};
use crate::remarks::warn;
use crate::served::{Served, Stored};

const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// Computes the wanted object from the current one. Called again when somebody else was faster.
pub type Change<'a> = dyn FnMut(&Value) -> Result<Value, Error> + Send + 'a;

/// What one attempt to update the object came to.
enum UpdateAttempt {
    Done(Stored),
    /// Somebody else was faster.
    Again,
}

impl Registry {
    pub async fn update(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        scope: Scope,
        options: &WriteOptions,
        change: &mut Change<'_>,
    ) -> Result<Stored, Error> {
        for attempt in 0..MAX_CONFLICT_RETRIES {
            // The first try may work on slightly old state: the compare finds out.
            let snapshot = match attempt {
                0 => self.store.snapshot(),
                _ => self.store.latest().await.map_err(store_error)?,
            };
            let stored = match self.get_at(&*snapshot, served, namespace, name) {
                Err(_) if attempt == 0 => self.get(served, namespace, name).await?,
                found => found?,
            };
            match self
                .update_once(served, namespace, name, scope, options, change, stored)
                .await?
            {
                UpdateAttempt::Done(stored) => return Ok(stored),
                UpdateAttempt::Again => {}
            }
        }
        Err(Error::conflict(served.resource, name, MODIFIED))
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one turn of the loop above, split out for reading"
    )]
    async fn update_once(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        scope: Scope,
        options: &WriteOptions,
        change: &mut Change<'_>,
        stored: Stored,
    ) -> Result<UpdateAttempt, Error> {
        let resource = served.resource;
        let old = stored.value(served)?;
        let mut new = change(&old)?;
        let key = self.key(served, namespace, name)?;
        // A dry run asks no store, and knows the key without its root.
        let shown = match options.dry_run {
            true => key.strip_prefix(&*self.services.root).unwrap_or(&key),
            false => &key,
        };
        check_preconditions(served, shown, &new, &old)?;
        metadata::check_name(&mut new, name)?;
        metadata::check_namespace(&mut new, resource, namespace)?;
        self.complete(served, &mut new)?;
        // Before anything is carried over or added: what the client did not change is not the client's.
        managers::track(served, Some(&old), &mut new, scope, options);
        let mut attributes = self.attributes(served, Operation::Update, options, (namespace, name));
        scope.subresource().clone_into(&mut attributes.subresource);
        attributes.object = new;
        attributes.old_object = old;
        if !options.admitted {
            self.admission.mutate(&mut attributes, &self.lookup()).await?;
        }
        // After admission, which sees what the client sent: no plugin and no webhook changes what the endpoint does not.
        prepare(served, scope, &mut attributes.object, &attributes.old_object);
        self.complete(served, &mut attributes.object)?;
        if moves_generation(resource, scope) {
            metadata::bump_generation(&mut attributes.object, &attributes.old_object, resource);
        }
        if scope == Scope::Main {
            self.services.check(resource, &attributes.object)?;
        }
        validate(served, scope, name, &attributes.object, &attributes.old_object)?;
        warn(warnings(resource, scope, &attributes.object, &attributes.old_object));
        if !options.admitted {
            self.admission.validate(&attributes, &self.lookup()).await?;
        }

        let mut turn = None;
        let companions = self.companion_writes(&attributes, &mut turn).await?;
        let (new, old) = (attributes.object, attributes.old_object);
        self.commit_change(
            served,
            namespace,
            name,
            new,
            (&old, &stored),
            companions,
            options.dry_run,
        )
        .await
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the object before and after, and where it is kept"
    )]
    async fn commit_change(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        mut new: Value,
        (old, stored): (&Value, &Stored),
        companions: Vec<Companion>,
        dry_run: bool,
    ) -> Result<UpdateAttempt, Error> {
        let snapshot = self.store.snapshot();
        let claims = self
            .services
            .claim(served.resource, &mut new, Some(old), &*snapshot, dry_run)?;
        let uid = text(&new, "uid").to_owned();
        let gone = is_ready_to_go(served.resource, &new);
        let mut released = Claims::default();
        if gone {
            released = self.services.release(served.resource, &new, &*snapshot);
        }
        managers::keep_times(&mut new, old);
        let bytes: Bytes = served.encode_stored(Cow::Owned(new))?;
        if bytes == stored.bytes && !gone {
            return Ok(UpdateAttempt::Done(stored.clone()));
        }
        if dry_run {
            return Ok(UpdateAttempt::Done(Stored {
                bytes,
                revision: stored.revision,
            }));
        }
        let key = self.key(served, namespace, name)?;
        let write = match gone {
            true => Write::Delete { key: key.clone() },
            false => Write::Put {
                key: key.clone(),
                value: bytes.clone(),
                ttl: None,
            },
        };
        let mut transaction = Transaction {
            compares: vec![Compare::Unchanged {
                key,
                mod_revision: stored.revision,
            }],
            writes: vec![write],
        };
        claims.add_to(&mut transaction);
        released.add_to(&mut transaction);
        self.add_companions(companions, &mut transaction)?;
        let operation = if gone {
            &served.figures().delete
        } else {
            &served.figures().update
        };
        let committed = operation.time(self.store.commit(transaction)).await;
        match committed.map_err(store_error)? {
            Outcome::Committed { revision } => {
                if served.resource.traces_updates {
                    trace::mark("apiserver/updated", mark_of(served, namespace, name), uid);
                }
                Ok(UpdateAttempt::Done(Stored { bytes, revision }))
            }
            Outcome::Conflict { .. } => Ok(UpdateAttempt::Again),
        }
    }
}

/// Takes over what an update through this endpoint cannot change, and what the kind sets itself.
fn prepare(served: &Served, scope: Scope, new: &mut Value, old: &Value) {
    let rules = served.resource.rules;
    metadata::carry_over(new, old);
    carry_over_parts(served, scope, new, old);
    match scope {
        Scope::Main => rules.prepare_update(new, old),
        Scope::Status => rules.prepare_status_update(new, old),
        Scope::Subresource(name) => rules.prepare_subresource_update(name, new, old),
    }
    if scope != Scope::Main {
        rules.stamp_conditions(new, old, &schema::time::format(schema::time::now()));
    }
}

/// Fails when the client asked for a certain object or revision and there is another one by now. What was computed from
/// the current object carries its revision, and passes.
fn check_preconditions(served: &Served, key: &str, new: &Value, old: &Value) -> Result<(), Error> {
    let name = text(old, "name");
    let (uid, old_uid) = (text(new, "uid"), text(old, "uid"));
    if !uid.is_empty() && uid != old_uid {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
             failed: UID in precondition: {uid}, UID in object meta: {old_uid}"
        );
        return Err(Error::conflict(served.resource, name, why));
    }
    let revision = text(new, "resourceVersion");
    if !revision.is_empty() && revision.parse::<u64>().is_err() {
        let message = format!("strconv.ParseUint: parsing {revision:?}: invalid syntax");
        return Err(Error::new(Reason::Unknown, message));
    }
    let any = revision.is_empty() || revision == "0";
    if any && served.resource.requires_revision {
        let path = api::Path::new("metadata").child("resourceVersion");
        let problem = FieldError::invalid(&path, 0, "must be specified for an update");
        let mut error = Error::invalid(served.resource, name, vec![problem]);
        // Upstream says this before it knows the kind.
        let (kind, plural) = (served.resource.kind, served.resource.plural);
        error.message = error.message.replacen(kind, plural, 1);
        error.details().kind = plural.to_owned();
        return Err(error);
    }
    if !any && revision != text(old, "resourceVersion") {
        return Err(Error::conflict(served.resource, name, MODIFIED));
    }
    Ok(())
}

/// What the client is warned about. People are not told again of what they did not change.
fn warnings(resource: &Resource, scope: Scope, new: &Value, old: &Value) -> Vec<String> {
    let rules = resource.rules;
    match scope {
        Scope::Main if rules.warns_on_update(new, old) => rules.warnings_on_update(new, old),
        Scope::Status => rules.status_warnings(new),
        Scope::Main | Scope::Subresource(_) => Vec::new(),
    }
}

/// Whether a write is a new wish of the user's; a binding, for one, is not.
fn moves_generation(resource: &Resource, scope: Scope) -> bool {
    match scope {
        Scope::Main => true,
        Scope::Status => false,
        Scope::Subresource(name) => resource.subresource(name).is_some_and(|found| found.moves_generation),
    }
}

/// Leaves everything as it is but some parts, and who owns what.
fn restore_all_except(new: &mut Value, old: &Value, parts: &[&[&str]]) {
    let wanted = std::mem::replace(new, old.clone());
    for path in parts.iter().chain(&[&["metadata", "managedFields"][..]]) {
        replace(new, &wanted, path);
    }
}

fn replace(target: &mut Value, source: &Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let (mut target, mut source) = (target, source);
    for parent in parents {
        target = &mut target[*parent];
        source = &source[*parent];
    }
    match source.get(*last) {
        Some(value) => target[*last] = value.clone(),
        None => {
            if let Some(object) = target.as_object_mut() {
                object.remove(*last);
            }
        }
    }
}

/// A write to the object leaves its status alone, and the reverse.
fn carry_over_parts(served: &Served, scope: Scope, new: &mut Value, old: &Value) {
    if let Scope::Subresource(name) = scope {
        if let Some(parts) = served.resource.subresource(name).and_then(|found| found.changes) {
            restore_all_except(new, old, parts);
        }
        return;
    }
    let Some(object) = new.as_object_mut() else { return };
    match scope {
        Scope::Main if served.resource.has_status() => {
            match old.get("status") {
                Some(status) => object.insert("status".to_owned(), status.clone()),
                None => object.remove("status"),
            };
        }
        Scope::Main | Scope::Subresource(_) => {}
        Scope::Status => {
            let status = object.remove("status");
            let metadata = object.remove("metadata");
            let mut kept = old.as_object().cloned().unwrap_or_default();
            keep_status_metadata(served, &mut kept, metadata);
            match status {
                Some(status) => kept.insert("status".to_owned(), status),
                None => kept.remove("status"),
            };
            *object = kept;
        }
    }
}

/// Labels and annotations may change together with the status; the rest of the metadata may not.
fn keep_status_metadata(served: &Served, kept: &mut serde_json::Map<String, Value>, written: Option<Value>) {
    let (Some(kept), Some(Value::Object(written))) = (kept.get_mut("metadata").and_then(Value::as_object_mut), written)
    else {
        return;
    };
    let changeable = |field: &&str| *field == "managedFields" || managers::status_may_change(served, field);
    for field in [
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "managedFields",
    ]
    .into_iter()
    .filter(changeable)
    {
        match written.get(field) {
            Some(value) => kept.insert(field.to_owned(), value.clone()),
            None => kept.remove(field),
        };
    }
}

fn validate(served: &Served, scope: Scope, name: &str, new: &Value, old: &Value) -> Result<(), Error> {
    let rules = served.resource.rules;
    // Upstream, too, looks at the metadata as a whole before it looks at what changed.
    let mut problems = api::validate_metadata(served.resource, new);
    problems.extend(api::validate_metadata_update(served.resource, new, old));
    match scope {
        Scope::Main => {
            problems.extend(served.validate(new, Some(old)));
            problems.extend(rules.validate_update(new, old));
        }
        Scope::Status if served.custom.is_some() => problems.extend(served.validate(new, Some(old))),
        Scope::Status => problems.extend(rules.validate_status_update(new, old)),
        Scope::Subresource(name) => {
            problems.extend(served.validate(new, Some(old)));
            problems.extend(rules.validate_subresource_update(name, new, old));
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::invalid(served.resource, name, problems)),
    }
}

/// The last finalizer of an object whose deletion was asked for is gone.
fn is_ready_to_go(resource: &Resource, new: &Value) -> bool {
    metadata::is_deleting(new)
        && metadata::finalizers(resource, new) == 0
        && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
}
