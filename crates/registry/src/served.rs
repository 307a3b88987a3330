//! One resource as it is served: its row, where its objects are stored and how they are encoded.

use std::borrow::Cow;
use std::sync::Arc;

use ::metrics::Series;
use api::{Error, FieldError, Resource, Value};
use bytes::Bytes;
use schema::TypeRef;
use store::{Entry, Revision};

use crate::codec::STORED_AS_JSON;
use crate::custom::Custom;
use crate::metrics::{StoreFigures, StoreMetrics};
use crate::watch::{Follower, Hub, Ring, Topic};

/// Group, version and plural name.
pub(crate) type Address<'a> = (&'a str, &'a str, &'a str);

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

impl Served {
    pub(crate) fn new(resource: &'static Resource, hub: &Hub, root: &str, metrics: &StoreMetrics) -> Served {
        let types = schema::builtin();
        let prefix = format!("{root}/{}/", resource.storage);
        let storage_api_version = match resource.storage_version {
            None => resource.api_version(),
            Some(("", version)) => version.to_owned(),
            Some((group, version)) => format!("{group}/{version}"),
        };
        Served {
            ring: hub.ring(&prefix, resource.indexed_field),
            prefix,
            figures: metrics.for_resource(resource),
            custom: None,
            ty: types.kind(resource.group, resource.version, resource.kind),
            list_ty: types.kind(resource.group, resource.version, &format!("{}List", resource.kind)),
            api_version: resource.api_version(),
            storage_api_version,
            resource,
        }
    }

    /// A version of a custom resource.
    pub(crate) fn of_custom(
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
            figures: metrics.for_resource(resource),
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

    pub(crate) fn address(&self) -> Address<'static> {
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
pub(crate) fn row_address(resource: &Resource) -> usize {
    std::ptr::from_ref(resource).addr()
}
