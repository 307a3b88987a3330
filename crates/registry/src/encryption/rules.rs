//! What encrypts which resource.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use store::codec::CodecError;

use super::ENCRYPTED;
use super::cipher::Algorithm;

/// `*` for any group or any resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupResource {
    pub group: String,
    pub resource: String,
}

impl GroupResource {
    pub fn new(group: &str, resource: &str) -> GroupResource {
        GroupResource {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }

    /// `secrets`, `deployments.apps`, `*.apps`, `*.` for the core group, `*.*`.
    pub fn parse(text: &str) -> GroupResource {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        GroupResource::new(group, resource)
    }

    pub fn any() -> GroupResource {
        GroupResource::new("*", "*")
    }

    pub fn any_in(group: &str) -> GroupResource {
        GroupResource::new(group, "*")
    }
}

impl std::fmt::Display for GroupResource {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.group.as_str(), self.resource.as_str()) {
            ("", "*") => formatter.write_str("*."),
            ("", resource) => formatter.write_str(resource),
            (group, resource) => write!(formatter, "{resource}.{group}"),
        }
    }
}

/// What encrypts values, or leaves them as they are.
#[derive(Clone)]
pub(super) enum Provider {
    Identity,
    Key {
        algorithm: Algorithm,
        /// The whole prefix of values, with the key's name.
        prefix: String,
        secret: Vec<u8>,
    },
}

/// The first one writes, all of them read.
#[derive(Default)]
pub(super) struct Providers(pub Vec<Provider>);

impl Providers {
    pub fn encrypt(&self, place: &str, plain: &Bytes) -> Result<Bytes, CodecError> {
        match self.0.first() {
            None | Some(Provider::Identity) => Ok(plain.clone()),
            Some(Provider::Key {
                algorithm,
                prefix,
                secret,
            }) => {
                let sealed = algorithm.seal(secret, place, plain);
                let sealed = sealed.map_err(|error| CodecError(format!("failed to encrypt: {error}")))?;
                Ok([prefix.as_bytes(), &sealed].concat().into())
            }
        }
    }

    /// The plain text, and whether it is the first provider that reads it.
    pub fn decrypt(&self, place: &str, stored: &Bytes) -> Result<(Bytes, bool), CodecError> {
        let mut problems = Vec::new();
        for (index, provider) in self.0.iter().enumerate() {
            match provider {
                // Others may have a key for it.
                Provider::Identity if stored.starts_with(ENCRYPTED) => (),
                Provider::Identity => return Ok((stored.clone(), index == 0)),
                Provider::Key {
                    algorithm,
                    prefix,
                    secret,
                } => {
                    let Some(sealed) = stored.strip_prefix(prefix.as_bytes()) else {
                        continue;
                    };
                    // Two keys may have the same name while one is replaced by the other.
                    match algorithm.open(secret, place, sealed) {
                        Ok(plain) => return Ok((plain.into(), index == 0)),
                        Err(problem) => problems.push(problem.to_string()),
                    }
                }
            }
        }
        Err(CodecError(match problems.is_empty() {
            false => problems.join(", "),
            true => self.why_none_fits(stored).to_owned(),
        }))
    }

    fn why_none_fits(&self, stored: &[u8]) -> &'static str {
        let fitting = self.0.iter().find_map(|provider| match provider {
            Provider::Key { algorithm, .. } if stored.starts_with(algorithm.prefix().as_bytes()) => Some(algorithm),
            _ => None,
        });
        match fitting {
            None => "no matching prefix found",
            Some(Algorithm::Secretbox) => "no matching key was found for the provided Secretbox transformer",
            Some(_) => "no matching key was found for the provided AES transformer",
        }
    }
}

#[derive(Default)]
pub(super) struct Rules(pub HashMap<GroupResource, Providers>);

impl Rules {
    /// Who encrypts the value of a key, if anybody is named for its resource.
    pub fn providers_of(&self, root: &str, key: &str) -> Option<&Providers> {
        if self.0.is_empty() {
            return None;
        }
        let resource = resource_of(key.strip_prefix(root)?.strip_prefix('/')?)?;
        let any_in_group = GroupResource::any_in(&resource.group);
        let candidates = [resource, any_in_group, GroupResource::any()];
        candidates.iter().find_map(|candidate| self.0.get(candidate))
    }
}

/// Where built-in resources are stored below the root. The longest place that fits is the right one.
static PLACES: LazyLock<HashMap<&'static str, GroupResource>> = LazyLock::new(|| {
    let stored = api::kinds::all().iter().filter(|resource| !resource.storage.is_empty());
    // A row with another storage version shares its place with the one that is stored.
    let rows = stored.filter(|resource| resource.storage_version.is_none());
    rows.map(|resource| (resource.storage, GroupResource::new(resource.group, resource.plural)))
        .collect()
});

/// The resource of a key below the root; `None` for what is no object of the API.
fn resource_of(key: &str) -> Option<GroupResource> {
    let segments = key.match_indices('/').map(|(at, _)| &key[..at]).take(2);
    let places: Vec<&str> = segments.collect();
    if let Some(known) = places.iter().rev().find_map(|place| PLACES.get(place)) {
        return Some(known.clone());
    }
    // Custom resources lie below their group, which has a dot in its name.
    let (group, plural) = places.get(1)?.split_once('/')?;
    group.contains('.').then(|| GroupResource::new(group, plural))
}
