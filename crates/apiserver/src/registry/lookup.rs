//! What admission may read: the server's own state.

use std::sync::Arc;
use std::time::Duration;

use admission::{Attributes, Operation};
use api::{Error, Resource, Value};
use async_trait::async_trait;
use auth::User;

use crate::request::RequestInfo;

use super::{Registry, Served, Stored, WriteOptions};

/// Reads for admission plugins, from the newest state this process knows of.
pub struct StoreLookup<'a>(&'a Registry);

impl Registry {
    /// Asks admission whether a user may connect to an object.
    pub async fn admit_connect(&self, served: &Served, info: &RequestInfo, user: &Arc<User>) -> Result<(), Error> {
        let options = WriteOptions::internal(user.clone());
        let mut attributes = self.attributes(served, Operation::Connect, &options, &info.namespace);
        attributes.name.clone_from(&info.name);
        attributes.subresource.clone_from(&info.subresource);
        self.admission.mutate(&mut attributes, &self.lookup()).await?;
        self.admission.validate(&attributes, &self.lookup()).await
    }

    pub fn lookup(&self) -> StoreLookup<'_> {
        StoreLookup(self)
    }

    pub(super) fn attributes(
        &self,
        served: &Served,
        operation: Operation,
        options: &WriteOptions,
        namespace: &str,
    ) -> Attributes {
        Attributes {
            user: (*options.user).clone(),
            operation,
            resource: served.resource,
            subresource: String::new(),
            namespace: namespace.to_owned(),
            name: String::new(),
            object: Value::Null,
            old_object: Value::Null,
            dry_run: options.dry_run,
        }
    }
}

/// How long a request waits for an object that a controller is about to create, and how often it looks.
const SOON_PAUSE: Duration = Duration::from_millis(20);
const SOON_TRIES: usize = 75;

#[async_trait]
impl admission::Lookup for StoreLookup<'_> {
    fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        let served = self.0.served(resource).ok()?;
        let entry = self.0.store.snapshot().get(&self.0.key(served, namespace, name))?;
        Stored::from(entry).value(served).ok()
    }

    fn list(&self, resource: &'static Resource, namespace: &str) -> Vec<Value> {
        let Ok(served) = self.0.served(resource) else {
            return Vec::new();
        };
        let prefix = match namespace {
            "" => served.prefix.clone(),
            namespace => format!("{}{namespace}/", served.prefix),
        };
        let snapshot = self.0.store.snapshot();
        snapshot
            .range(&prefix, &prefix)
            .filter_map(|entry| Stored::from(Arc::clone(entry)).value(served).ok())
            .collect()
    }

    async fn get_soon(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value> {
        for _ in 0..SOON_TRIES {
            if let Some(found) = self.get(resource, namespace, name) {
                return Some(found);
            }
            tokio::time::sleep(SOON_PAUSE).await;
        }
        self.get(resource, namespace, name)
    }
}
