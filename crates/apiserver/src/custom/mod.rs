//! Custom resources as the server serves them.
//!
//! [`Customs`] is the table of them, replaced as a whole when a definition changes, so that requests for built-in
//! resources never wait for it. `controller` follows the definitions: it accepts their names, keeps the table and
//! removes the objects of definitions that go.

mod controller;
mod convert;
mod row;

use std::sync::{Arc, Weak};

use api::custom::{Definition, Version};
use api::{Error, Resource, Value};
use tokio::sync::watch;

pub use controller::follow;
use convert::Converter;

use crate::ApiServer;
use crate::registry::Served;
use crate::watch::Hub;

/// What a custom resource's definition adds to the served form of one of its versions.
pub struct Custom {
    pub definition: Arc<Definition>,
    /// The place of the version in the definition.
    at: usize,
    converter: Converter,
    retired: watch::Sender<bool>,
}

/// All custom resources that are served.
#[derive(Default)]
pub struct Customs {
    /// Sorted by group, version and plural name.
    served: Vec<Arc<Served>>,
    /// Groups with their versions, the preferred one first.
    group_versions: Vec<(&'static str, &'static str)>,
    /// The definitions behind them, by name.
    pub definitions: Vec<Arc<Definition>>,
    /// OpenAPI documents made from this table.
    pub published: crate::openapi::Published,
}

impl Custom {
    pub fn new(definition: Arc<Definition>, at: usize, server: &Weak<ApiServer>) -> Custom {
        Custom {
            converter: Converter::new(&definition.conversion, server),
            definition,
            at,
            retired: watch::Sender::new(false),
        }
    }

    pub fn version(&self) -> &Version {
        &self.definition.versions[self.at]
    }

    /// Becomes true when the definition has changed and this form of it is no longer served.
    pub fn retired(&self) -> watch::Receiver<bool> {
        self.retired.subscribe()
    }

    pub fn retire(&self) {
        self.retired.send_replace(true);
    }

    /// Makes stored objects ones of the served version: what has been stored before the schema changed is brought into
    /// its present form first.
    pub fn read_stored(&self, objects: &mut [Value], api_version: &str) -> Result<(), Error> {
        for object in objects.iter_mut() {
            let stored = object["apiVersion"].as_str().unwrap_or_default();
            let stored = stored.rsplit('/').next().unwrap_or_default().to_owned();
            if let Some(version) = self.definition.version(&stored) {
                version.normalize(object)?;
                version.complete(object);
            }
        }
        self.convert(objects, api_version)
    }

    pub fn write_stored(&self, object: &mut Value, api_version: &str) -> Result<(), Error> {
        self.convert(std::slice::from_mut(object), api_version)
    }

    fn convert(&self, objects: &mut [Value], api_version: &str) -> Result<(), Error> {
        let is_other = |object: &&mut Value| object["apiVersion"] != api_version;
        let mut others: Vec<&mut Value> = objects.iter_mut().filter(is_other).collect();
        self.converter.convert(&mut others, api_version)?;
        let version = api_version.rsplit('/').next().unwrap_or_default();
        if let Some(version) = self.definition.version(version) {
            for object in others {
                version.normalize(object)?;
            }
        }
        Ok(())
    }
}

impl Customs {
    /// The table of these definitions; what has not changed since `before` stays as it is.
    fn new(definitions: Vec<Arc<Definition>>, before: &Customs, hub: &Hub, server: &Arc<ApiServer>) -> Customs {
        let mut served = Vec::new();
        for definition in definitions.iter().filter(|definition| definition.established) {
            let kept = before.served_of(definition);
            served.extend(kept.unwrap_or_else(|| make_served(definition, hub, server)));
        }
        served.sort_by_key(|served| served.address());
        served.dedup_by_key(|served| served.address());
        let mut group_versions: Vec<_> = served
            .iter()
            .map(|served| (served.resource.group, served.resource.version))
            .collect();
        group_versions.sort_by(|a, b| a.0.cmp(b.0).then(api::custom::compare_versions(a.1, b.1)));
        group_versions.dedup();
        Customs {
            served,
            group_versions,
            definitions,
            published: crate::openapi::Published::default(),
        }
    }

    pub fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        let at = self
            .served
            .binary_search_by(|served| served.address().cmp(&(group, version, plural)));
        at.ok().map(|at| &self.served[at])
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.iter()
    }

    pub fn resources(&self) -> impl Iterator<Item = &'static Resource> {
        self.served.iter().map(|served| served.resource)
    }

    pub fn group_versions(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.group_versions.iter().copied()
    }

    /// The versions that stand for this very definition.
    fn served_of(&self, definition: &Arc<Definition>) -> Option<Vec<Arc<Served>>> {
        let same = |served: &&Arc<Served>| {
            let custom = served.custom.as_ref();
            custom.is_some_and(|custom| Arc::ptr_eq(&custom.definition, definition))
        };
        let found: Vec<_> = self.served.iter().filter(same).cloned().collect();
        (!found.is_empty()).then_some(found)
    }

    /// Ends the watches on everything that `after` no longer has.
    fn retire_missing(&self, after: &Customs) {
        for served in &self.served {
            let kept = after.served.iter().any(|other| Arc::ptr_eq(served, other));
            if let (false, Some(custom)) = (kept, &served.custom) {
                custom.retire();
            }
        }
    }
}

fn make_served(definition: &Arc<Definition>, hub: &Hub, server: &Arc<ApiServer>) -> Vec<Arc<Served>> {
    let versions = definition.versions.iter().enumerate();
    versions
        .filter(|(_, version)| version.served)
        .map(|(at, version)| {
            let custom = Custom::new(definition.clone(), at, &Arc::downgrade(server));
            let row = row::row(definition, version);
            Arc::new(Served::of_custom(
                row,
                custom,
                hub,
                server.registry.root(),
                &server.metrics.store,
            ))
        })
        .collect()
}
