//! Volumes with the keys of a ConfigMap.

use super::payload::{DEFAULT_MODE, Keys, Payload, add_keys};
use super::{MountedVolume, Needs, SetUp, SetUpError, VolumeStats, VolumeType, stats, written};
use crate::objects::Kind;
use crate::pod::{ConfigMapSource, Volume};

pub struct ConfigMapVolume;

impl VolumeType for ConfigMapVolume {
    fn field(&self) -> &'static str {
        "configMap"
    }

    fn directory(&self) -> &'static str {
        "configmap"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.config_map.is_some()
    }

    fn needs<'a>(&self, volume: &'a Volume) -> Needs<'a> {
        let names = volume.config_map.iter().map(|source| source.name.clone());
        Needs {
            objects: names.map(|name| (Kind::ConfigMap, name)).collect(),
            ..Needs::default()
        }
    }

    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
        written::write_on_disk(request, self, &files(request)?)
    }

    fn stats(&self, volume: &MountedVolume) -> Option<VolumeStats> {
        stats::of_directory(volume)
    }
}

pub fn files(request: &SetUp<'_>) -> Result<Payload, SetUpError> {
    let mut files = Payload::new();
    if let Some(source) = &request.volume.config_map {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        add_keys(&mut files, keys(source, mode), request)?;
    }
    Ok(files)
}

/// What a reference to a ConfigMap, in a volume of its own or in a projected one, asks for.
pub fn keys(source: &ConfigMapSource, mode: u32) -> Keys<'_> {
    Keys {
        kind: Kind::ConfigMap,
        name: &source.name,
        items: &source.items,
        mode,
        optional: source.optional,
    }
}
