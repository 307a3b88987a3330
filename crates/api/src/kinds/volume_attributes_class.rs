use crate::Resource;

pub static VOLUME_ATTRIBUTES_CLASS: Resource = Resource::cluster(
    "storage.k8s.io",
    "v1",
    "VolumeAttributesClass",
    "volumeattributesclasses",
    "volumeattributesclass",
)
.short(&["vac"]);
