//! PersistentVolumes that are a path of whatever node their pod is on. Nothing is mounted and no owner is changed.

use super::{PersistentSetUp, PersistentType, checked_path};
use crate::beneath::Dir;
use crate::claims::{PersistentVolume, VolumeMode};
use crate::volumes::{MountSource, SetUpError, host_path};

pub struct HostPathPersistent;

impl PersistentType for HostPathPersistent {
    fn field(&self) -> &'static str {
        "hostPath"
    }

    fn directory(&self) -> &'static str {
        "host-path"
    }

    fn is_type_of(&self, volume: &PersistentVolume) -> bool {
        volume.spec.host_path.is_some()
    }

    fn set_up(&self, set_up: &PersistentSetUp<'_>, _place: &Dir) -> Result<MountSource, SetUpError> {
        let spec = &set_up.bound.volume.spec;
        if spec.volume_mode == VolumeMode::Block {
            return Err(SetUpError::NoBlockVolumes(self.field()));
        }
        let source = spec.host_path.clone().unwrap_or_default();
        checked_path(&source.path)?;
        host_path::check(&source).map(MountSource::Path)
    }
}
