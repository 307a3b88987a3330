//! Volumes that join several sources, service account tokens among them, in memory.

use super::payload::{DEFAULT_MODE, Payload, add_fields, add_keys, add_token};
use super::{MountedVolume, Needs, SetUp, SetUpError, VolumeStats, VolumeType, config_map, secret, stats, written};
use crate::objects::Kind;
use crate::pod::{Projection, Volume};

pub struct ProjectedVolume;

impl VolumeType for ProjectedVolume {
    fn field(&self) -> &'static str {
        "projected"
    }

    fn directory(&self) -> &'static str {
        "projected"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.projected.is_some()
    }

    fn needs<'a>(&self, volume: &'a Volume) -> Needs<'a> {
        let mut needs = Needs::default();
        for source in volume.projected.iter().flat_map(|projected| &projected.sources) {
            let config_maps = source.config_map.iter().map(|it| (Kind::ConfigMap, it.name.clone()));
            let secrets = source.secret.iter().map(|it| (Kind::Secret, it.secret_name.clone()));
            needs.objects.extend(config_maps.chain(secrets));
            needs.tokens.extend(&source.service_account_token);
        }
        needs
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
    if let Some(projected) = &request.volume.projected {
        let mode = projected.default_mode.unwrap_or(DEFAULT_MODE);
        for source in &projected.sources {
            add_source(&mut files, source, mode, request)?;
        }
    }
    Ok(files)
}

fn add_source(files: &mut Payload, source: &Projection, mode: u32, request: &SetUp<'_>) -> Result<(), SetUpError> {
    if let Some(source) = &source.config_map {
        add_keys(files, config_map::keys(source, mode), request)
    } else if let Some(source) = &source.secret {
        add_keys(files, secret::keys(source, mode), request)
    } else if let Some(source) = &source.downward_api {
        add_fields(files, source, mode, request)
    } else if let Some(source) = &source.service_account_token {
        add_token(files, source, mode, request)
    } else {
        Err(SetUpError::UnsupportedProjection(
            source.other.keys().cloned().collect(),
        ))
    }
}
