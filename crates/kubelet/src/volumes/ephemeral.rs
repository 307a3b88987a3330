//! Volumes whose claim a controller makes for one pod, and which go with it.

use super::{MountedVolume, Needs, SetUp, SetUpError, VolumeStats, VolumeType, persistent};
use crate::claims::ClaimReference;
use crate::pod::Volume;

pub struct EphemeralVolume;

impl VolumeType for EphemeralVolume {
    fn field(&self) -> &'static str {
        "ephemeral"
    }

    /// Nothing is set up under this name: the type of the PersistentVolume has one.
    fn directory(&self) -> &'static str {
        "ephemeral-claim"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.ephemeral.is_some()
    }

    fn needs<'a>(&self, volume: &'a Volume) -> Needs<'a> {
        Needs {
            claim: volume.ephemeral.as_ref().map(|_| ClaimReference::Generated),
            ..Needs::default()
        }
    }

    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
        persistent::set_up(request)
    }

    fn stats(&self, volume: &MountedVolume) -> Option<VolumeStats> {
        persistent::stats(volume)
    }
}
