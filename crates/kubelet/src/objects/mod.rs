//! ConfigMaps and Secrets as pods refer to them.

pub mod follow;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::pod::Container;

/// The data of a ConfigMap or Secret, decoded: text and binary values alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    pub values: BTreeMap<String, Vec<u8>>,
    /// The object's, not that of another that had its name.
    pub uid: String,
    /// A Secret's type, such as `kubernetes.io/dockerconfigjson`.
    pub secret_type: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    ConfigMap,
    Secret,
}

/// The objects that something refers to, by name; those that do not exist are known to be absent.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub objects: BTreeMap<(Kind, String), Option<Arc<Data>>>,
}

/// Something refers to an object that does not exist, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} not found")]
pub struct MissingObject {
    kind: String,
    name: String,
}

impl Kind {
    /// As messages call it.
    pub fn title(self) -> &'static str {
        match self {
            Kind::ConfigMap => "ConfigMap",
            Kind::Secret => "Secret",
        }
    }

    pub fn resource(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmaps",
            Kind::Secret => "secrets",
        }
    }
}

impl Found {
    pub fn get(&self, kind: Kind, name: &str) -> Result<&Data, MissingObject> {
        match self.objects.get(&(kind, name.to_owned())) {
            Some(Some(data)) => Ok(data),
            _ => Err(MissingObject {
                kind: kind.title().to_lowercase(),
                name: name.to_owned(),
            }),
        }
    }

    pub fn exists(&self, kind: Kind, name: &str) -> bool {
        matches!(self.objects.get(&(kind, name.to_owned())), Some(Some(_)))
    }
}

impl Data {
    pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Data, serde_json::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Metadata {
            uid: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Object {
            #[serde(default)]
            metadata: Metadata,
            #[serde(default, rename = "type")]
            secret_type: String,
            #[serde(default)]
            data: Option<BTreeMap<String, String>>,
            #[serde(default)]
            binary_data: Option<BTreeMap<String, String>>,
        }
        let object: Object = serde_json::from_slice(bytes)?;
        let mut values = BTreeMap::new();
        let (text, binary) = match kind {
            Kind::ConfigMap => (object.data, object.binary_data),
            Kind::Secret => (None, object.data),
        };
        values.extend(text.into_iter().flatten().map(|(key, value)| (key, value.into_bytes())));
        for (key, value) in binary.into_iter().flatten() {
            let value = STANDARD.decode(value).map_err(serde::de::Error::custom)?;
            values.insert(key, value);
        }
        Ok(Data {
            values,
            uid: object.metadata.uid,
            secret_type: object.secret_type,
        })
    }
}

/// What a container's environment refers to.
pub fn environment_objects(container: &Container) -> BTreeSet<(Kind, String)> {
    let mut names = BTreeSet::new();
    for source in &container.env_from {
        names.extend(source.config_map_ref.iter().map(|r| (Kind::ConfigMap, r.name.clone())));
        names.extend(source.secret_ref.iter().map(|r| (Kind::Secret, r.name.clone())));
    }
    for source in container.env.iter().filter_map(|variable| variable.value_from.as_ref()) {
        names.extend(
            source
                .config_map_key_ref
                .iter()
                .map(|r| (Kind::ConfigMap, r.name.clone())),
        );
        names.extend(source.secret_key_ref.iter().map(|r| (Kind::Secret, r.name.clone())));
    }
    names
}
