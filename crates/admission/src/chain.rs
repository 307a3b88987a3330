//! What admission is asked and in which order its plugins answer.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use api::{Error, Fields, Resource, Value};
use async_trait::async_trait;
use auth::User;
use client::destination::{DestinationError, Destinations, Origin};

use crate::{Reinvocation, Remarks};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// One request as admission sees it.
#[derive(Clone)]
pub struct Attributes {
    pub user: User,
    pub operation: Operation,
    pub resource: &'static Resource,
    /// Empty for the resource itself.
    pub subresource: String,
    pub namespace: String,
    /// Empty while a generated name is not yet known.
    pub name: String,
    /// The object after the request; null for a deletion.
    pub object: Value,
    /// The object before the request; null for a creation.
    pub old_object: Value,
    pub dry_run: bool,
    /// The options of the operation (`CreateOptions`, …); null for a connection.
    pub options: Value,
    /// Where warnings and annotations for the audit log go.
    pub remarks: Arc<Remarks>,
    pub reinvocation: Reinvocation,
}

/// Another object as it must become together with the request's own, or not at all. It is written on condition that it
/// is still at the revision it was read at.
pub struct Companion {
    pub resource: &'static Resource,
    pub object: Value,
}

/// Reads of the server's own state, as new as this process knows it.
#[async_trait]
pub trait Lookup: Send + Sync {
    fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Arc<Value>>;
    /// The labels of an object, null or empty when it has none. Where only they matter the rest need not be read.
    fn labels(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        Some(self.get(resource, namespace, name)?["metadata"]["labels"].clone())
    }

    /// All objects of a namespace, or of all namespaces when it is empty.
    fn list(&self, resource: &'static Resource, namespace: &str) -> Vec<Value>;

    /// An object that a controller is about to create: waits a little for it if it is not there yet. The default does
    /// not wait.
    async fn get_soon(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.get(resource, namespace, name)
    }

    /// A number that changes whenever an object of the resource does.
    fn fingerprint(&self, resource: &'static Resource) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        for object in self.list(resource, "") {
            schema::encode_json(&object).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The other served versions of the same objects.
    fn equivalents(&self, _resource: &'static Resource) -> Vec<&'static Resource> {
        Vec::new()
    }

    /// The served resource of a kind.
    fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
        let wanted = |resource: &&&Resource| {
            (resource.group, resource.version, resource.kind) == (group, version, kind) && !resource.storage.is_empty()
        };
        api::kinds::all().iter().find(wanted).copied()
    }

    /// The object in an equivalent version.
    async fn convert(&self, mut object: Value, to: &'static Resource) -> Result<Value, Error> {
        api::convert(&mut object, &to.api_version());
        Ok(object)
    }

    /// Whether the server may connect to an address that others than administrators chose.
    fn check_destination(&self, address: SocketAddr, origin: Origin) -> Result<(), DestinationError> {
        Destinations::default().check(address, origin, &[])
    }

    /// Fills in defaults and restores the normal form after a change from outside.
    fn complete(&self, _resource: &'static Resource, _object: &mut Value) -> Result<(), Error> {
        Ok(())
    }
}

/// One rule. Both phases see the whole request; only the first may change the object.
#[async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// Whether the plugin looks at such a request at all. It is asked first because most requests concern few plugins.
    fn handles(&self, _attributes: &Attributes) -> bool {
        true
    }

    async fn mutate(&self, _attributes: &mut Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        Ok(())
    }

    async fn validate(&self, _attributes: &Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        Ok(())
    }

    /// What else changes with the object. Asked last, just before the object is stored, and again when somebody else
    /// was faster.
    fn companions(&self, _attributes: &Attributes, _lookup: &dyn Lookup) -> Result<Vec<Companion>, Error> {
        Ok(Vec::new())
    }
}

/// The plugins in the order in which they run.
#[derive(Default)]
pub struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
}

impl Chain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>) -> Chain {
        Chain { plugins }
    }

    /// The same plugins, each put into something around it.
    pub fn wrapped(self, wrap: impl FnMut(Box<dyn Plugin>) -> Box<dyn Plugin>) -> Chain {
        Chain::new(self.plugins.into_iter().map(wrap).collect())
    }

    /// Adds a rule that is not one of the plugins.
    pub fn push(&mut self, plugin: Box<dyn Plugin>) {
        self.plugins.push(plugin);
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.plugins.iter().map(|plugin| plugin.name()).collect()
    }

    /// Runs the mutating phase, and once more if a plugin changed what another one that asked for it had seen.
    pub async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        self.mutate_once(attributes, lookup).await?;
        if attributes.reinvocation.wanted {
            attributes.reinvocation.again = true;
            self.mutate_once(attributes, lookup).await?;
        }
        Ok(())
    }

    async fn mutate_once(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        for plugin in &self.plugins {
            if plugin.handles(attributes) {
                plugin.mutate(attributes, lookup).await?;
            }
        }
        Ok(())
    }

    pub async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        for plugin in &self.plugins {
            if plugin.handles(attributes) {
                plugin.validate(attributes, lookup).await?;
            }
        }
        Ok(())
    }

    pub fn companions(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<Vec<Companion>, Error> {
        let mut companions = Vec::new();
        for plugin in self.plugins.iter().filter(|plugin| plugin.handles(attributes)) {
            companions.extend(plugin.companions(attributes, lookup)?);
        }
        Ok(companions)
    }
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

impl Attributes {
    /// The name in the request, or the one a new object gives itself.
    pub fn object_name(&self) -> &str {
        match self.name.as_str() {
            "" => self.object["metadata"].text("name"),
            name => name,
        }
    }

    /// Whether the request concerns this resource and subresource, whichever the version.
    pub fn is(&self, resource: &Resource, subresource: &str) -> bool {
        self.concerns(resource) && self.subresource == subresource
    }

    /// Whether the request concerns this resource or one of its subresources.
    pub fn concerns(&self, resource: &Resource) -> bool {
        (self.resource.group, self.resource.plural) == (resource.group, resource.plural)
    }

    /// The group, version and kind of the object where the subresource has one of its own.
    pub fn body(&self) -> Option<(&'static str, &'static str, &'static str)> {
        self.resource.subresource(&self.subresource)?.body
    }

    /// Brings an object into form that was changed from outside.
    pub fn complete(&self, lookup: &dyn Lookup, object: &mut Value) -> Result<(), Error> {
        let Some((group, version, kind)) = self.body() else {
            return lookup.complete(self.resource, object);
        };
        match schema::builtin().kind(group, version, kind) {
            Some(ty) => schema::normalize(ty, object)
                .map(drop)
                .map_err(|error| Error::bad_request(error.to_string())),
            None => Ok(()),
        }
    }

    /// A refusal that names the object, or the start of its name while it has none.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> Error {
        let metadata = &self.object["metadata"];
        let names = [
            self.name.as_str(),
            metadata.text("name"),
            metadata.text("generateName"),
            "Unknown",
        ];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Error::forbidden(self.resource, name, why)
    }
}
