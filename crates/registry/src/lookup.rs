//! What admission may read: the server's own state.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use admission::{Attributes, Lookup, Operation};
use api::kinds::namespace::NAMESPACE;
use api::{Error, Fields, Resource, Value, kinds};
use async_trait::async_trait;
use client::ServiceResolver;
use client::destination::{DestinationError, Origin};
use serde_json::json;

use crate::labels::labels_of;
use crate::options::WriteOptions;
use crate::registry::Registry;
use crate::remarks;
use crate::served::{Served, Stored};

/// The body of a subresource, and what it was before if it could be read.
pub struct Part<'a> {
    pub operation: Operation,
    /// Of the object that it belongs to.
    pub name: &'a str,
    pub subresource: &'a str,
    pub object: Value,
    pub old_object: Value,
}

/// Reads for admission plugins, from the newest state this process knows of.
pub struct StoreLookup<'a>(&'a Registry);

impl Registry {
    /// Asks admission about a subresource whose body is an object of another kind than the resource, or about a
    /// connection with its options as the object; what came of it.
    pub async fn admit_part(
        &self,
        served: &Served,
        namespace: &str,
        part: Part<'_>,
        options: &WriteOptions,
    ) -> Result<Value, Error> {
        let mut attributes = self.attributes(served, part.operation, options, (namespace, part.name));
        part.subresource.clone_into(&mut attributes.subresource);
        attributes.object = part.object;
        attributes.old_object = part.old_object;
        self.admission.mutate(&mut attributes, &self.lookup()).await?;
        self.admission.validate(&attributes, &self.lookup()).await?;
        Ok(attributes.object)
    }

    pub fn lookup(&self) -> StoreLookup<'_> {
        StoreLookup(self)
    }

    pub(crate) fn attributes(
        &self,
        served: &Served,
        operation: Operation,
        options: &WriteOptions,
        (namespace, name): (&str, &str),
    ) -> Attributes {
        // Namespaces are in themselves, as those see it whom admission asks.
        let namespace = match std::ptr::eq(served.resource, &NAMESPACE) {
            true => name,
            false => namespace,
        };
        Attributes {
            user: (*options.user).clone(),
            operation,
            resource: served.resource,
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            object: Value::Null,
            old_object: Value::Null,
            dry_run: options.dry_run,
            options: operation_options(operation, options),
            remarks: remarks::current(),
            reinvocation: Default::default(),
        }
    }
}

/// The options of an operation as webhooks are told them.
fn operation_options(operation: Operation, options: &WriteOptions) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut given = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if options.dry_run {
        given["dryRun"] = json!(["All"]);
    }
    given
}

impl StoreLookup<'_> {
    /// Where the API servers of the cluster are reached, as they have written it themselves.
    fn api_servers(&self) -> Vec<SocketAddr> {
        let Some(endpoints) = self.get(&kinds::endpoints::ENDPOINTS, "default", "kubernetes") else {
            return Vec::new();
        };
        let mut servers = Vec::new();
        for subset in endpoints.list("subsets") {
            let ports = subset.list("ports").iter().map(|port| port.number("port"));
            let ports: Vec<u16> = ports.filter_map(|port| u16::try_from(port).ok()).collect();
            let addresses = subset.list("addresses").iter();
            let addresses = addresses.filter_map(|address| address.text("ip").parse::<IpAddr>().ok());
            servers.extend(addresses.flat_map(|ip| ports.iter().map(move |port| SocketAddr::new(ip, *port))));
        }
        servers
    }

    fn served(&self, resource: &Resource) -> Option<Arc<Served>> {
        self.0.find_row(resource)
    }
}

/// How long a request waits for an object that a controller is about to create, and how often it looks.
const SOON_PAUSE: Duration = Duration::from_millis(20);
const SOON_TRIES: usize = 75;

#[async_trait]
impl Lookup for StoreLookup<'_> {
    fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let served = self.served(resource)?;
        let entry = self
            .0
            .store
            .snapshot()
            .get(&self.0.key(&served, namespace, name).ok()?)?;
        self.0.decoded.get(&served, entry)
    }

    fn labels(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        let served = self.served(resource)?;
        let entry = self
            .0
            .store
            .snapshot()
            .get(&self.0.key(&served, namespace, name).ok()?)?;
        Some(labels_of(&entry.value)?.into_iter().collect())
    }

    fn list(&self, resource: &'static Resource, namespace: &str) -> Vec<Value> {
        let Some(served) = self.served(resource) else {
            return Vec::new();
        };
        let prefix = match namespace {
            "" => served.prefix.clone(),
            namespace => format!("{}{namespace}/", served.prefix),
        };
        let snapshot = self.0.store.snapshot();
        snapshot
            .range(&prefix, &prefix)
            .filter_map(|entry| Stored::from(Arc::clone(entry)).value(&served).ok())
            .collect()
    }

    /// Over the revisions of what is stored: cheap, because there are few objects of the kinds that are asked for.
    fn fingerprint(&self, resource: &'static Resource) -> u64 {
        let Some(served) = self.served(resource) else {
            return 0;
        };
        let mut hasher = std::hash::DefaultHasher::new();
        let snapshot = self.0.store.snapshot();
        for entry in snapshot.range(&served.prefix, &served.prefix) {
            entry.mod_revision.hash(&mut hasher);
        }
        hasher.finish()
    }

    fn equivalents(&self, resource: &'static Resource) -> Vec<&'static Resource> {
        let Some(own) = self.served(resource) else {
            return Vec::new();
        };
        if own.custom.is_some() {
            let custom_resources = self.0.custom_resources.load();
            let same = |other: &&Resource| {
                (other.group, other.plural) == (resource.group, resource.plural) && other.version != resource.version
            };
            return custom_resources.resources().filter(same).collect();
        }
        let others = self.0.served.iter().filter(|other| other.prefix == own.prefix);
        let others = others.filter(|other| !std::ptr::eq(other.resource, resource) && !resource.storage.is_empty());
        others.map(|other| other.resource).collect()
    }

    fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
        let custom_resources = self.0.custom_resources.load();
        let built_in = self.0.served.iter().map(|served| served.resource);
        let wanted = |resource: &&'static Resource| {
            (resource.group, resource.version, resource.kind) == (group, version, kind) && !resource.storage.is_empty()
        };
        built_in.chain(custom_resources.resources()).find(wanted)
    }

    async fn convert(&self, mut object: Value, to: &'static Resource) -> Result<Value, Error> {
        match self.served(to).as_ref().and_then(|served| served.custom.as_ref()) {
            Some(custom) => custom.read_stored(std::slice::from_mut(&mut object), &to.api_version())?,
            None => api::convert(&mut object, &to.api_version()),
        }
        Ok(object)
    }

    fn check_destination(&self, address: SocketAddr, origin: Origin) -> Result<(), DestinationError> {
        self.0.destinations.check(address, origin, &self.api_servers())
    }

    fn complete(&self, resource: &'static Resource, object: &mut Value) -> Result<(), Error> {
        match self.served(resource) {
            Some(served) => self.0.complete(&served, object),
            None => Ok(()),
        }
    }

    async fn get_soon(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        for _ in 0..SOON_TRIES {
            if let Some(found) = self.get(resource, namespace, name) {
                return Some(found);
            }
            tokio::time::sleep(SOON_PAUSE).await;
        }
        self.get(resource, namespace, name)
    }
}

/// Webhooks that convert custom resources are reached like those that admission calls.
impl ServiceResolver for Registry {
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
        admission::Services(&self.lookup()).resolve(namespace, name, port)
    }

    fn check(&self, address: SocketAddr, origin: Origin) -> Result<(), DestinationError> {
        self.lookup().check_destination(address, origin)
    }
}
