//! Volumes that a PersistentVolumeClaim of the pod's namespace leads to.

use super::{MountedVolume, Needs, SetUp, SetUpError, VolumeStats, VolumeType, persistent};
use crate::claims::ClaimReference;
use crate::pod::Volume;

pub struct ClaimVolume;

impl VolumeType for ClaimVolume {
    fn field(&self) -> &'static str {
        "persistentVolumeClaim"
    }

    /// Nothing is set up under this name: the type of the PersistentVolume has one.
    fn directory(&self) -> &'static str {
        "persistent-claim"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.persistent_volume_claim.is_some()
    }

    fn needs<'a>(&self, volume: &'a Volume) -> Needs<'a> {
        let source = volume.persistent_volume_claim.as_ref();
        Needs {
            claim: source.map(|source| ClaimReference::Named {
                claim: &source.claim_name,
                read_only: source.read_only,
            }),
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
