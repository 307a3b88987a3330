//! Volumes of a pod's own that a CSI driver makes and mounts.

use super::{MountedVolume, SetUp, SetUpError, VolumeType};
use crate::pod::Volume;

pub struct CsiVolume;

impl VolumeType for CsiVolume {
    fn field(&self) -> &'static str {
        "csi"
    }

    fn directory(&self) -> &'static str {
        super::persistent::CSI_DIRECTORY
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.csi.is_some()
    }

    /// The driver has mounted it by now.
    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
        Ok(MountedVolume {
            source: request.published.ok_or(SetUpError::NotPublished)?.clone(),
            read_only: request.volume.csi.as_ref().is_some_and(|source| source.read_only),
            claim: None,
        })
    }
}
