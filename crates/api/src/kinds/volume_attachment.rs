use crate::{Resource, Subresource};

pub static VOLUME_ATTACHMENT: Resource = Resource::cluster(
    "storage.k8s.io",
    "v1",
    "VolumeAttachment",
    "volumeattachments",
    "volumeattachment",
)
.with_subresources(&[Subresource::STATUS]);
