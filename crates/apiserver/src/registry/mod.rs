//! The generic registry: every stored resource goes through the same few functions.
//!
//! Only this module writes to the store. Reads take a snapshot and never wait for writers. A write is decoded,
//! prepared, admitted and validated as a value, encoded once, and committed on condition of the revision it was made
//! from.

mod companions;
mod create;
mod delete;
mod labels;
mod list;
mod lookup;
mod managers;
mod metadata;
mod options;
mod patch;
mod update;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use api::{Error, FieldError, Reason, Resource, Value};
use arc_swap::ArcSwap;
use bytes::Bytes;
use client::destination::Destinations;
use schema::TypeRef;
use store::{Entry, Revision, Snapshot, Store, StoreError};

use crate::codec::STORED_AS_JSON;
use crate::custom::{Custom, Customs};
use ::metrics::Series;

use crate::metrics::{Stock, StoreFigures, StoreMetrics};
use crate::verbs::not_served;
use crate::watch::{Follower, Hub, IndexedField, Ring, Topic};

pub use delete::{DeleteOptions, Deleted, check_preconditions};
pub use labels::labels_of;
pub use list::{Continuation, ListBody, ListRequest, equal_to, list_metadata};
pub use lookup::Part;
pub use managers::{apply, forgotten_managers, track};
pub use metadata::{check_name, check_namespace};
pub use options::{FieldValidation, Scope, Tracking, WriteOptions, invalid_options, parse_int};
pub use patch::{PatchType, invalid_patch};
pub use update::is_part;

/// How often a write without a revision of its own is tried again when somebody else was faster.
const MAX_CONFLICT_RETRIES: usize = 32;

/// Group, version and plural name.
type Address<'a> = (&'a str, &'a str, &'a str);

/// A resource with everything the server needs to serve it.
pub struct Served {
    pub resource: &'static Resource,
    /// Keys of its objects start with this, with a trailing slash.
    pub prefix: String,
    pub ring: Arc<Ring>,
    figures: Arc<Series<StoreFigures>>,
    /// What a custom resource's definition adds; built-in ones have none.
    pub custom: Option<Custom>,
    ty: Option<TypeRef<'static>>,
    list_ty: Option<TypeRef<'static>>,
    api_version: String,
    storage_api_version: String,
}

/// An object as the store has it: JSON without a resourceVersion, and its revision.
#[derive(Clone, Debug)]
pub struct Stored {
    pub bytes: Bytes,
    pub revision: Revision,
}

pub struct Registry {
    pub store: Arc<dyn Store>,
    pub admission: admission::Chain,
    pub services: crate::allocate::Services,
    /// Where objects must not lead connections of this server.
    pub destinations: Destinations,
    /// Sorted by group, version and plural name.
    served: Vec<Arc<Served>>,
    /// The same by their names and by where their rows are: every request looks up many of them.
    by_names: HashMap<Address<'static>, Arc<Served>>,
    by_row: HashMap<usize, Arc<Served>>,
    /// The custom ones, replaced as a whole when a definition changes.
    pub customs: ArcSwap<Customs>,
    root: String,
    turns: companions::Turns,
    decoded: lookup::Decoded,
}

impl Registry {
    pub fn new(
        store: Arc<dyn Store>,
        hub: &Hub,
        root: &str,
        admission: admission::Chain,
        services: crate::allocate::Services,
        metrics: &StoreMetrics,
    ) -> Registry {
        let mut served: Vec<Arc<Served>> = api::kinds::all()
            .iter()
            .map(|resource| Arc::new(Served::new(resource, hub, root, metrics)))
            .collect();
        served.sort_by_key(|served| served.address());
        Registry {
            store,
            admission,
            destinations: Destinations {
                server: None,
                services: Some((services.network.base, services.network.prefix_length)),
            },
            services,
            by_names: served.iter().map(|served| (served.address(), served.clone())).collect(),
            by_row: served
                .iter()
                .map(|served| (row(served.resource), served.clone()))
                .collect(),
            served,
            customs: ArcSwap::default(),
            root: root.to_owned(),
            turns: companions::Turns::default(),
            decoded: lookup::Decoded::default(),
        }
    }

    /// A resource that is served, built in or custom.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        match built_in(&self.by_names, (group, version, plural)) {
            Some(served) => Some(served.clone()),
            None => self.customs.load().find(group, version, plural).cloned(),
        }
    }

    /// The served form of a resource, built in or custom.
    fn find_row(&self, resource: &Resource) -> Option<Arc<Served>> {
        match self.by_row.get(&row(resource)) {
            Some(served) => Some(served.clone()),
            None => self.find(resource.group, resource.version, resource.plural),
        }
    }

    /// The served form of a built-in resource.
    pub fn served(&self, resource: &'static Resource) -> Result<&Arc<Served>, Error> {
        self.by_row
            .get(&row(resource))
            .ok_or_else(|| Error::internal(format!("{} is not served", resource.qualified())))
    }

    /// Where an object is kept. A namespace that does not fit the resource is an error whoever gives it: an object of the
    /// cluster must never be reached through the rights in a namespace.
    pub fn key(&self, served: &Served, namespace: &str, name: &str) -> Result<Arc<str>, Error> {
        match (served.resource.namespaced, namespace) {
            (true, "") => Err(Error::bad_request("Namespace parameter required.")),
            (true, namespace) => Ok([&served.prefix, namespace, "/", name].concat().into()),
            (false, "") => Ok([&served.prefix, name].concat().into()),
            (false, _) => Err(not_served()),
        }
    }

    /// How many objects there are of each built-in and custom resource, one line for all its versions.
    pub fn stocks(&self) -> Vec<Stock> {
        let customs = self.customs.load();
        let all = self.served.iter().chain(customs.all());
        let stored = all.filter(|served| !served.resource.storage.is_empty());
        let mut stocks: Vec<Stock> = stored
            .map(|served| Stock {
                group: served.resource.group,
                resource: served.resource.plural,
                objects: served.ring.objects(),
                events: served.ring.events(),
            })
            .collect();
        stocks.sort_by_key(|stock| (stock.group, stock.resource));
        stocks.dedup_by_key(|stock| (stock.group, stock.resource));
        stocks
    }

    pub fn root(&self) -> &str {
        &self.root
    }

    /// One object, at least as new as every write acknowledged before the call.
    pub async fn get(&self, served: &Served, namespace: &str, name: &str) -> Result<Stored, Error> {
        let key = self.key(served, namespace, name)?;
        let asked = async { Ok(self.store.latest().await?.get(&key)) };
        let entry = served.figures().get.time(asked).await.map_err(store_error)?;
        found(entry, served, name)
    }

    pub fn get_at(
        &self,
        snapshot: &dyn Snapshot,
        served: &Served,
        namespace: &str,
        name: &str,
    ) -> Result<Stored, Error> {
        found(snapshot.get(&self.key(served, namespace, name)?), served, name)
    }
}

impl Served {
    fn new(resource: &'static Resource, hub: &Hub, root: &str, metrics: &StoreMetrics) -> Served {
        let types = schema::builtin();
        let prefix = format!("{root}/{}/", resource.storage);
        let storage_api_version = match resource.storage_version {
            None => resource.api_version(),
            Some(("", version)) => version.to_owned(),
            Some((group, version)) => format!("{group}/{version}"),
        };
        Served {
            ring: hub.ring(&prefix, IndexedField::of_storage(resource.storage)),
            prefix,
            figures: metrics.of(resource),
            custom: None,
            ty: types.kind(resource.group, resource.version, resource.kind),
            list_ty: types.kind(resource.group, resource.version, &format!("{}List", resource.kind)),
            api_version: resource.api_version(),
            storage_api_version,
            resource,
        }
    }

    /// A version of a custom resource.
    pub fn of_custom(
        resource: &'static Resource,
        custom: Custom,
        hub: &Hub,
        root: &str,
        metrics: &StoreMetrics,
    ) -> Served {
        let prefix = format!("{root}/{}/", resource.storage);
        let storage = &custom.definition.storage;
        Served {
            ring: hub.ring(&prefix, None),
            prefix,
            figures: metrics.of(resource),
            ty: None,
            list_ty: None,
            api_version: resource.api_version(),
            storage_api_version: format!("{}/{storage}", resource.group),
            resource,
            custom: Some(custom),
        }
    }

    /// What the store is asked for its objects.
    pub fn figures(&self) -> &StoreFigures {
        &self.figures.value
    }

    /// Every change of its objects after a revision.
    pub fn follow(&self, after: Revision) -> Follower {
        Follower::new(self.ring.clone(), Topic::Everything, after)
    }

    pub fn address(&self) -> Address<'static> {
        (self.resource.group, self.resource.version, self.resource.plural)
    }

    pub fn object_type(&self) -> Option<TypeRef<'static>> {
        self.ty
    }

    pub fn list_type(&self) -> Option<TypeRef<'static>> {
        self.list_ty
    }

    /// The type of objects, which every built-in kind has.
    pub fn required_type(&self) -> Result<TypeRef<'static>, Error> {
        self.ty
            .ok_or_else(|| Error::internal(format!("{} has no schema", self.resource.kind)))
    }

    /// The type of objects that upstream stores as protobuf, which are all but those of the extensions.
    fn stored_type(&self) -> Option<TypeRef<'static>> {
        match STORED_AS_JSON.contains(&self.resource.group) {
            true => None,
            false => schema::builtin().object(&self.storage_api_version, self.resource.kind),
        }
    }

    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Whether what is served may differ from what is stored: in its version, or because a custom resource's schema
    /// has changed since.
    pub fn converts(&self) -> bool {
        self.resource.storage_version.is_some() || self.custom.is_some()
    }

    /// What is wrong with an object, or with a change of it.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        match &self.custom {
            Some(custom) => custom.version().validate(object, old),
            None => self.resource.rules.validate(object),
        }
    }

    /// The value of a selectable field of an object in the served version.
    pub fn field(&self, object: &Value, path: &str) -> Option<String> {
        let metadata = &object["metadata"];
        let text = |field: &str| Some(metadata[field].as_str().unwrap_or_default().to_owned());
        match (path, &self.custom) {
            ("metadata.name", _) => text("name"),
            ("metadata.namespace", _) if self.resource.namespaced => text("namespace"),
            (_, Some(custom)) => custom.version().field(object, path),
            (_, None) => self.resource.rules.field(object, path),
        }
    }

    /// A stored object as a value in the served version, with its revision.
    pub fn decode_stored(&self, stored: &[u8], revision: Revision) -> Result<Value, Error> {
        let mut value = read_json(stored, revision)?;
        self.to_served(std::slice::from_mut(&mut value))?;
        Ok(value)
    }

    /// The same of many, which a webhook that converts them is asked about together.
    pub fn decode_all(&self, entries: &[Arc<Entry>]) -> Result<Vec<Value>, Error> {
        let values = entries.iter().map(|entry| read_json(&entry.value, entry.mod_revision));
        let mut values = values.collect::<Result<Vec<_>, _>>()?;
        self.to_served(&mut values)?;
        Ok(values)
    }

    fn to_served(&self, values: &mut [Value]) -> Result<(), Error> {
        match &self.custom {
            Some(custom) => custom.read_stored(values, &self.api_version)?,
            None if self.converts() => values
                .iter_mut()
                .for_each(|value| api::convert(value, &self.api_version)),
            None => {}
        }
        Ok(())
    }

    /// The bytes to store for a value in the served version. A borrowed one is copied only if it has to be changed.
    pub fn encode_stored(&self, mut value: Cow<'_, Value>) -> Result<Bytes, Error> {
        if value["metadata"].get("resourceVersion").is_some()
            && let Some(metadata) = value.to_mut()["metadata"].as_object_mut()
        {
            metadata.remove("resourceVersion");
        }
        match &self.custom {
            Some(custom) => custom.write_stored(value.to_mut(), &self.storage_api_version)?,
            None if self.converts() => api::convert(value.to_mut(), &self.storage_api_version),
            None => {}
        }
        let mut bytes = schema::encode_json(&value);
        if memchr::memmem::find(&bytes, b"[]").is_some()
            && let Some(ty) = self.stored_type()
        {
            schema::forget_empty_lists(ty, value.to_mut());
            bytes = schema::encode_json(&value);
        }
        // Kept for as long as the object is, so without the room that the buffer grew into.
        Ok(Bytes::copy_from_slice(&bytes))
    }
}

/// An object as it is stored, with its revision; a dry run has none to show.
fn read_json(stored: &[u8], revision: Revision) -> Result<Value, Error> {
    let mut value: Value = serde_json::from_slice(stored).map_err(Error::internal)?;
    if revision != 0 {
        value["metadata"]["resourceVersion"] = revision.to_string().into();
    }
    Ok(value)
}

impl Stored {
    pub fn value(&self, served: &Served) -> Result<Value, Error> {
        served.decode_stored(&self.bytes, self.revision)
    }
}

impl From<Arc<Entry>> for Stored {
    fn from(entry: Arc<Entry>) -> Stored {
        Stored {
            bytes: entry.value.clone(),
            revision: entry.mod_revision,
        }
    }
}

/// What tells a resource apart from all others, as no two rows are the same place.
fn row(resource: &Resource) -> usize {
    std::ptr::from_ref(resource).addr()
}

/// The map's keys live longer than what is asked for, which only a function of its own can forget.
fn built_in<'a>(map: &'a HashMap<Address<'a>, Arc<Served>>, address: Address<'a>) -> Option<&'a Arc<Served>> {
    map.get(&address)
}

fn found(entry: Option<Arc<Entry>>, served: &Served, name: &str) -> Result<Stored, Error> {
    entry
        .map(Stored::from)
        .ok_or_else(|| Error::not_found(served.resource, name))
}

/// What a failure of the store means to a client.
pub fn store_error(error: StoreError) -> Error {
    match error {
        StoreError::Compacted { .. } => Error::new(
            Reason::Expired,
            "The provided continue parameter is too old to display a consistent list result.",
        ),
        StoreError::Future { requested, current } => Error::new(
            Reason::Timeout,
            format!("Too large resource version: {requested}, current: {current}"),
        )
        .retry_after(1),
        StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::ReadOnly(_) => {
            Error::new(Reason::ServiceUnavailable, error.to_string()).retry_after(1)
        }
        StoreError::Corrupt(_) | StoreError::Io(_) | StoreError::Invalid(_) => Error::internal(error),
    }
}
