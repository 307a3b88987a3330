//! What admission is asked and in which order its plugins answer.

use api::{Error, Resource, Value};
use async_trait::async_trait;
use auth::User;

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
}

/// Reads of the server's own state, as new as this process knows it.
pub trait Lookup: Send + Sync {
    fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Value>;
    /// All objects of a namespace, or of all namespaces when it is empty.
    fn list(&self, resource: &'static Resource, namespace: &str) -> Vec<Value>;
}

/// One rule. Both phases see the whole request; only the first may change the object.
#[async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    async fn mutate(&self, _attributes: &mut Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        Ok(())
    }

    async fn validate(&self, _attributes: &Attributes, _lookup: &dyn Lookup) -> Result<(), Error> {
        Ok(())
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

    pub async fn mutate(&self, attributes: &mut Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        for plugin in &self.plugins {
            plugin.mutate(attributes, lookup).await?;
        }
        Ok(())
    }

    pub async fn validate(&self, attributes: &Attributes, lookup: &dyn Lookup) -> Result<(), Error> {
        for plugin in &self.plugins {
            plugin.validate(attributes, lookup).await?;
        }
        Ok(())
    }
}
