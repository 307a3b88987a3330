//! Volumes with the files of an image, which the runtime mounts.

use super::{MountSource, MountedVolume, Needs, SetUp, SetUpError, VolumeType};
use crate::pod::Volume;

pub struct ImageVolume;

impl VolumeType for ImageVolume {
    fn field(&self) -> &'static str {
        "image"
    }

    fn directory(&self) -> &'static str {
        "image"
    }

    fn is_type_of(&self, volume: &Volume) -> bool {
        volume.image.is_some()
    }

    fn needs<'a>(&self, volume: &'a Volume) -> Needs<'a> {
        Needs {
            image: volume.image.as_ref(),
            ..Needs::default()
        }
    }

    fn set_up(&self, request: &SetUp<'_>) -> Result<MountedVolume, SetUpError> {
        let image = request.image.ok_or(SetUpError::NoImage)?;
        Ok(MountedVolume {
            source: MountSource::Image(image.to_owned()),
            read_only: true,
            claim: None,
        })
    }
}
