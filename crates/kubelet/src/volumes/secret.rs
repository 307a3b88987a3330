//! Volumes with the keys of a Secret, in memory.

use super::payload::{DEFAULT_MODE, Keys, Payload, add_keys};
use super::{MountedVolume, Needs, SetUp, SetUpError, VolumeStats, VolumeType, stats, written};
use crate::objects::Kind;
use crate::pod::{SecretSource, Volume};

pub struct SecretVolume;

impl VolumeType for SecretVolume {
    fn field(&self) -> &'static str {
        "secret"
    }

    fn directory(&self) -> &'static str {
        "secret"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.secret.is_some()
    }

    fn needs<'a>(&self, volume: &'a Volume) -> Needs<'a> {
        let names = volume.secret.iter().map(|source| source.secret_name.clone());
        Needs {
            objects: names.map(|name| (Kind::Secret, name)).collect(),
            ..Needs::default()
        }
    }

    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
        written::write_in_memory(request, self, &files(request)?)
    }

    fn stats(&self, volume: &MountedVolume) -> Option<VolumeStats> {
        stats::of_directory(volume)
    }
}

pub fn files(request: &SetUp<'_>) -> Result<Payload, SetUpError> {
    let mut files = Payload::new();
    if let Some(source) = &request.volume.secret {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        add_keys(&mut files, keys(source, mode), request)?;
    }
    Ok(files)
}

/// What a reference to a Secret, in a volume of its own or in a projected one, asks for.
pub fn keys(source: &SecretSource, mode: u32) -> Keys<'_> {
    Keys {
        kind: Kind::Secret,
        name: &source.secret_name,
        items: &source.items,
        mode,
        optional: source.optional,
    }
}
