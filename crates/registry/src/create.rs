//! Creating objects.

use std::borrow::Cow;
use std::sync::Arc;

use admission::{Attributes, Operation};
use api::{Error, Reason, Requester, Resource, Value};
use auth::User;
use store::{Compare, Outcome, Transaction, Write};

use crate::allocate::{Claims, Services};
use crate::errors::store_error;
use crate::managers;
use crate::metadata::{self, text};
use crate::options::{Scope, WriteOptions};
use crate::registry::{MAX_CONFLICT_RETRIES, Registry};
use crate::remarks::warn;
use crate::served::{Served, Stored};

/// How often another name is tried when a generated one is taken.
const MAX_NAME_RETRIES: usize = 8;

/// Whether whoever asks may create.
pub type CreateCheck<'a> = dyn Fn() -> Result<(), Error> + Send + Sync + 'a;

impl Registry {
    /// Creates an object from a decoded, normalised value in the served version.
    pub async fn create(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        value: Value,
        options: &WriteOptions,
    ) -> Result<Stored, Error> {
        self.create_if(served, namespace, value, options, &|| Ok(())).await
    }

    /// The same for those who asked for something else, and of whom it is not yet known whether they may create: that is
    /// asked when the object is known to be sound, as upstream does.
    pub async fn create_if(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        value: Value,
        options: &WriteOptions,
        may: &CreateCheck<'_>,
    ) -> Result<Stored, Error> {
        let generated = text(&value, "name").is_empty() && !text(&value, "generateName").is_empty();
        let mut tries = if generated { MAX_NAME_RETRIES } else { 1 };
        loop {
            tries -= 1;
            if tries == 0 {
                return self.create_once(served, namespace, value, options, may).await;
            }
            match self.create_once(served, namespace, value.clone(), options, may).await {
                Err(error) if error.reason == api::Reason::AlreadyExists => {}
                result => return result,
            }
        }
    }

    async fn create_once(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        mut value: Value,
        options: &WriteOptions,
        may: &CreateCheck<'_>,
    ) -> Result<Stored, Error> {
        let resource = served.resource;
        let revision = check_new_revision(&value, options.dry_run)?;
        metadata::fill_new(&mut value, resource, namespace)?;
        drop_status(&mut value, resource);
        resource.rules.fill_requester(&mut value, &requester(&options.user));
        self.complete(served, &mut value)?;
        // Before admission: what plugins add is not the client's.
        managers::track(served, None, &mut value, Scope::Main, options);
        let given_name = text(&value, "name").to_owned();
        let mut attributes = self.attributes(served, Operation::Create, options, (namespace, &given_name));
        attributes.object = value;
        self.admission.mutate(&mut attributes, &self.lookup()).await?;
        // After admission, because what the server derives (a pod's class of service) follows from what plugins set.
        metadata::generate_name(&mut attributes.object, resource);
        drop_status(&mut attributes.object, resource);
        warn(resource.rules.early_warnings(&attributes.object));
        resource.rules.prepare_create(&mut attributes.object);
        self.complete(served, &mut attributes.object)?;

        let name = text(&attributes.object, "name").to_owned();
        self.services.check(resource, &attributes.object)?;
        let mut problems = api::validate_metadata(resource, &attributes.object);
        problems.extend(served.validate(&attributes.object, None));
        problems.extend(resource.rules.validate_create(&attributes.object));
        if !problems.is_empty() {
            let shown = if name.is_empty() {
                text(&attributes.object, "generateName")
            } else {
                &name
            };
            return Err(Error::invalid(resource, shown, problems));
        }
        may()?;
        attributes.name.clone_from(&name);
        warn(resource.rules.warnings(&attributes.object));
        self.admission.validate(&attributes, &self.lookup()).await?;
        let stored = self.commit_new(served, namespace, &name, attributes, options).await?;
        Ok(match revision {
            0 => stored,
            revision => Stored { revision, ..stored },
        })
    }

    /// A complete object of the server's own making, without asking admission.
    pub(crate) fn prepare_seed(&self, served: &Served, mut value: Value, namespace: &str) -> Result<Value, Error> {
        value["apiVersion"] = served.api_version().into();
        value["kind"] = served.resource.kind.into();
        metadata::fill_new(&mut value, served.resource, namespace)?;
        self.complete(served, &mut value)?;
        let status = value.get("status").cloned();
        served.resource.rules.prepare_create(&mut value);
        if let Some(status) = status {
            value["status"] = status;
        }
        self.complete(served, &mut value)?;
        Ok(value)
    }

    /// Fills in defaults and restores the normal form.
    pub(crate) fn complete(&self, served: &Served, value: &mut Value) -> Result<(), Error> {
        if let Some(custom) = &served.custom {
            custom.version().normalize(value)?;
            custom.version().complete(value);
            return Ok(());
        }
        let ty = served.required_type()?;
        schema::apply_table_defaults(ty, value);
        served.resource.rules.default(value);
        let problems = schema::normalize(ty, value);
        problems
            .map(drop)
            .map_err(|error| Error::bad_request(error.to_string()))
    }

    async fn commit_new(
        &self,
        served: &Arc<Served>,
        namespace: &str,
        name: &str,
        attributes: Attributes,
        options: &WriteOptions,
    ) -> Result<Stored, Error> {
        let mut turn = None;
        let key = self.key(served, namespace, name)?;
        let ttl = served.resource.time_to_live;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let snapshot = self.store.snapshot();
            if snapshot.get(&key).is_some() {
                return Err(Error::already_exists(served.resource, name));
            }
            let companions = self.companion_writes(&attributes, &mut turn).await?;
            let mut value = Cow::Borrowed(&attributes.object);
            let claims = match Services::concerns(served.resource) {
                true => {
                    let value = value.to_mut();
                    self.services
                        .claim(served.resource, value, None, &*snapshot, options.dry_run)?
                }
                false => Claims::default(),
            };
            let uid = text(&value, "uid").to_owned();
            let bytes = served.encode_stored(value)?;
            if options.dry_run {
                return Ok(Stored { bytes, revision: 0 });
            }
            let mut transaction = Transaction {
                compares: vec![Compare::Absent { key: key.clone() }],
                writes: vec![Write::Put {
                    key: key.clone(),
                    value: bytes.clone(),
                    ttl,
                }],
            };
            claims.add_to(&mut transaction);
            self.add_companions(companions, &mut transaction)?;
            let committed = served.figures().create.time(self.store.commit(transaction)).await;
            match committed.map_err(store_error)? {
                Outcome::Committed { revision } => {
                    let object = mark_of(served, namespace, name);
                    trace::mark_at(options.received_us, "apiserver/received", object.clone(), uid.clone());
                    trace::mark("apiserver/stored", object, uid);
                    return Ok(Stored { bytes, revision });
                }
                Outcome::Conflict { current } if current.first().is_some_and(Option::is_some) => {
                    return Err(Error::already_exists(served.resource, name));
                }
                Outcome::Conflict { .. } => drop(self.store.latest().await.map_err(store_error)?),
            }
        }
        Err(Error::conflict(
            served.resource,
            name,
            "too many concurrent allocations; please try again",
        ))
    }
}

/// Only the endpoint of the status sets it, where there is one.
fn drop_status(value: &mut Value, resource: &Resource) {
    if resource.has_status()
        && !resource.rules.keeps_status_on_create()
        && let Some(object) = value.as_object_mut()
    {
        object.remove("status");
    }
}

/// What does not exist yet has no revision. A dry run shows the one that it was given.
fn check_new_revision(value: &Value, dry_run: bool) -> Result<u64, Error> {
    let given = text(value, "resourceVersion").parse::<u64>().unwrap_or(0);
    if given != 0 && !dry_run {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(Error::new(Reason::Unknown, message));
    }
    Ok(given)
}

fn requester(user: &User) -> Requester<'_> {
    Requester {
        name: &user.name,
        uid: &user.uid,
        groups: &user.groups,
        extra: &user.extra,
    }
}

/// The name under which marks know an object.
pub fn mark_of(served: &Served, namespace: &str, name: &str) -> String {
    match served.resource.namespaced {
        true => format!("{}/{namespace}/{name}", served.resource.plural),
        false => format!("{}/{name}", served.resource.plural),
    }
}
