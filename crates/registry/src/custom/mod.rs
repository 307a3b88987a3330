//! One version of a custom resource: what its definition adds to a built-in one.
//!
//! `convert` brings objects into another version, `row` makes the row that stands for it in the table of resources.

mod convert;
mod row;

use std::sync::{Arc, Weak};

use api::custom::{Definition, Version};
use api::{Error, Value};
use client::ServiceResolver;
use tokio::sync::watch;

pub(crate) use row::row;

use convert::Converter;

/// What a custom resource's definition adds to the served form of one of its versions.
pub struct Custom {
    pub definition: Arc<Definition>,
    /// The place of the version in the definition.
    at: usize,
    converter: Converter,
    retired: watch::Sender<bool>,
}

impl Custom {
    pub(crate) fn new(definition: Arc<Definition>, at: usize, services: &Weak<dyn ServiceResolver>) -> Custom {
        Custom {
            converter: Converter::new(&definition.conversion, services),
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
