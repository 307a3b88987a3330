//! PersistentVolumes that a CSI driver mounts.

use super::{PersistentSetUp, PersistentType};
use crate::beneath::Dir;
use crate::claims::{PersistentVolume, VolumeMode};
use crate::paths::Paths;
use crate::volumes::{MountSource, SetUpError};

/// As upstream names directories of volumes that CSI drivers mount.
pub const CSI_DIRECTORY: &str = "csi";

pub struct CsiPersistent;

impl PersistentType for CsiPersistent {
    fn field(&self) -> &'static str {
        "csi"
    }

    fn directory(&self) -> &'static str {
        CSI_DIRECTORY
    }

    fn is_type_of(&self, volume: &PersistentVolume) -> bool {
        volume.spec.csi.is_some()
    }

    fn takes_mount_options(&self) -> bool {
        true
    }

    fn is_mounted_by_driver(&self) -> bool {
        true
    }

    /// A block volume has no directory of its own in the pod's.
    fn is_set_up(&self, paths: &Paths, uid: &str, volume: &PersistentVolume) -> bool {
        match volume.spec.volume_mode {
            VolumeMode::Filesystem => super::has_directory(self, paths, uid, volume),
            VolumeMode::Block => {
                let link = paths.volume_devices(uid, CSI_DIRECTORY).join(volume.name());
                link.symlink_metadata().is_ok()
            }
        }
    }

    /// The driver has mounted it by now.
    fn set_up(&self, request: &PersistentSetUp<'_>, _: &Dir) -> Result<MountSource, SetUpError> {
        request.request.published.cloned().ok_or(SetUpError::NotPublished)
    }
}
