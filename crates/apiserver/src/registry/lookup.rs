//! What admission may read: the server's own state.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use admission::{Attributes, Lookup, Operation};
use api::kinds::namespace::NAMESPACE;
use api::{Error, Fields, Resource, Value, kinds};
use async_trait::async_trait;
use auth::User;
use client::destination::{DestinationError, Origin};
use parking_lot::RwLock;
use serde_json::json;
use store::{Entry, Revision};

use crate::request::Query;
use crate::resolve::ResourceRequest;
use crate::verbs::Call;

use super::{Registry, Served, Stored, WriteOptions};

/// How many decoded objects are kept, and how long their encoded form may be.
const MAX_DECODED: usize = 256;
const MAX_DECODED_BYTES: usize = 4 << 10;

/// Objects that nearly every request asks for, its namespace above all, as they were decoded last.
#[derive(Default)]
pub(super) struct Decoded(RwLock<HashMap<DecodedKey, (Revision, Arc<Value>)>>);

/// A resource, by where its row is, and the key of an object.
type DecodedKey = (usize, Arc<str>);

impl Decoded {
    fn get(&self, served: &Served, entry: Arc<Entry>) -> Option<Arc<Value>> {
        // The versions of a resource share their keys, but not what is decoded.
        let key = (super::row(served.resource), entry.key.clone());
        if let Some((revision, value)) = self.0.read().get(&key)
            && *revision == entry.mod_revision
        {
            return Some(value.clone());
        }
        let (revision, bytes) = (entry.mod_revision, entry.value.len());
        let value = Arc::new(Stored::from(entry).value(served).ok()?);
        if bytes <= MAX_DECODED_BYTES {
            let mut kept = self.0.write();
            if kept.len() >= MAX_DECODED {
                kept.clear();
            }
            kept.insert(key, (revision, value.clone()));
        }
        Some(value)
    }
}

/// The body of a subresource, and what it was before if it could be read.
pub struct Part<'a> {
    pub operation: Operation,
    /// Of the object that it belongs to.
    pub name: &'a str,
    pub object: Value,
    pub old_object: Value,
}

/// Reads for admission plugins, from the newest state this process knows of.
pub struct StoreLookup<'a>(&'a Registry);

impl Registry {
    /// Asks admission whether a user may connect to an object.
    pub async fn admit_connect(
        &self,
        request: &ResourceRequest<'_>,
        user: &Arc<User>,
        query: &Query,
    ) -> Result<(), Error> {
        let (served, info) = (request.served(), request.info());
        let options = WriteOptions::internal(user.clone());
        let place = (request.namespace(), info.name.as_str());
        let mut attributes = self.attributes(served, Operation::Connect, &options, place);
        attributes.subresource.clone_from(&info.subresource);
        attributes.object = connect_options(served.resource, &info.subresource, query);
        self.admission.mutate(&mut attributes, &self.lookup()).await?;
        self.admission.validate(&attributes, &self.lookup()).await
    }

    /// Asks admission about a subresource whose body is an object of another kind than the resource; what came of it.
    pub async fn admit_part(&self, call: &Call<'_>, part: Part<'_>, options: &WriteOptions) -> Result<Value, Error> {
        let info = call.info;
        let mut attributes = self.attributes(&call.served, part.operation, options, (call.namespace, part.name));
        attributes.subresource.clone_from(&info.subresource);
        attributes.object = part.object;
        attributes.old_object = part.old_object;
        self.admission.mutate(&mut attributes, &self.lookup()).await?;
        self.admission.validate(&attributes, &self.lookup()).await?;
        Ok(attributes.object)
    }

    pub fn lookup(&self) -> StoreLookup<'_> {
        StoreLookup(self)
    }

    pub(super) fn attributes(
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
            remarks: crate::remarks::current(),
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

/// What a connection is asked for, as the object that admission sees: `PodExecOptions` and the like.
fn connect_options(resource: &Resource, subresource: &str, query: &Query) -> Value {
    let body = resource.subresource(subresource).and_then(|found| found.body);
    let Some((group, version, kind)) = body else {
        return Value::Null;
    };
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut object = json!({"kind": kind, "apiVersion": api_version});
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if query.first(flag).is_some() && query.flag(flag) {
            object[flag] = true.into();
        }
    }
    for text in ["container", "path"] {
        if let Some(value) = query.text(text) {
            object[text] = value.into();
        }
    }
    if !query.all("command").is_empty() {
        object["command"] = json!(query.all("command"));
    }
    let ports: Vec<i64> = query.all("ports").iter().filter_map(|port| port.parse().ok()).collect();
    if !ports.is_empty() {
        object["ports"] = json!(ports);
    }
    object
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
        Some(super::labels_of(&entry.value)?.into_iter().collect())
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
            let customs = self.0.customs.load();
            let same = |other: &&Resource| {
                (other.group, other.plural) == (resource.group, resource.plural) && other.version != resource.version
            };
            return customs.resources().filter(same).collect();
        }
        let others = self.0.served.iter().filter(|other| other.prefix == own.prefix);
        let others = others.filter(|other| !std::ptr::eq(other.resource, resource) && !resource.storage.is_empty());
        others.map(|other| other.resource).collect()
    }

    fn find_kind(&self, group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
        let customs = self.0.customs.load();
        let built_in = self.0.served.iter().map(|served| served.resource);
        let wanted = |resource: &&'static Resource| {
            (resource.group, resource.version, resource.kind) == (group, version, kind) && !resource.storage.is_empty()
        };
        built_in.chain(customs.resources()).find(wanted)
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
