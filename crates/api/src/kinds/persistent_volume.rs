use crate::{Resource, Subresource};

pub static PERSISTENT_VOLUME: Resource =
    Resource::cluster("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume")
        .short(&["pv"])
        .with_subresources(&[Subresource::STATUS]);
