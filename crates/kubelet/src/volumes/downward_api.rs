//! Volumes with fields of their pod, in memory.

use super::payload::{DEFAULT_MODE, Payload, add_fields};
use super::{MountedVolume, SetUp, SetUpError, VolumeStats, VolumeType, stats, written};
use crate::pod::Volume;

pub struct DownwardApiVolume;

impl VolumeType for DownwardApiVolume {
    fn field(&self) -> &'static str {
        "downwardAPI"
    }

    fn directory(&self) -> &'static str {
        "downward-api"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.downward_api.is_some()
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
    if let Some(source) = &request.volume.downward_api {
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        add_fields(&mut files, source, mode, request)?;
    }
    Ok(files)
}
