//! What the plugins' tests share: a cluster of a few objects, and requests against it.

use std::sync::Arc;

use api::{Error, Resource, Value};
use auth::User;
use futures_util::FutureExt;
use serde_json::json;

use crate::{Attributes, Lookup, Operation, Plugin};

/// The objects of a cluster.
#[derive(Default)]
pub struct Cluster(pub Vec<(&'static Resource, Value)>);

impl Lookup for Cluster {
    fn get(&self, resource: &'static Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let mut objects = self.list(resource, namespace).into_iter();
        let found = objects.find(|object| object["metadata"]["name"] == name);
        found.map(Arc::new)
    }

    fn list(&self, resource: &'static Resource, namespace: &str) -> Vec<Value> {
        let of_resource = self.0.iter().filter(|(held, _)| std::ptr::eq(*held, resource));
        let objects = of_resource.map(|(_, object)| object);
        objects
            .filter(|object| namespace.is_empty() || object["metadata"]["namespace"] == namespace)
            .cloned()
            .collect()
    }
}

/// A request of a user without special rights to create an object.
pub fn create(resource: &'static Resource, object: Value) -> Attributes {
    Attributes {
        user: User::system("jane", &[]),
        operation: Operation::Create,
        resource,
        subresource: String::new(),
        namespace: object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned(),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        object,
        old_object: Value::Null,
        dry_run: false,
        options: Value::Null,
        remarks: Default::default(),
        reinvocation: Default::default(),
    }
}

pub fn update(resource: &'static Resource, old: Value, new: Value) -> Attributes {
    Attributes {
        operation: Operation::Update,
        old_object: old,
        ..create(resource, new)
    }
}

/// Runs both phases; the object afterwards, or why it was refused.
pub fn run(plugin: &dyn Plugin, attributes: Attributes, cluster: &Cluster) -> Result<Value, String> {
    let mut attributes = attributes;
    let mut go = || -> Result<(), Error> {
        if plugin.handles(&attributes) {
            // The in-tree plugins never wait in tests, so that one poll is enough.
            plugin
                .mutate(&mut attributes, cluster)
                .now_or_never()
                .expect("the plugin waits")?;
            plugin
                .validate(&attributes, cluster)
                .now_or_never()
                .expect("the plugin waits")?;
        }
        Ok(())
    };
    go().map_err(|error| error.message)?;
    Ok(attributes.object)
}

pub fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
}
