use crate::{Resource, Subresource};

pub static PERSISTENT_VOLUME_CLAIM: Resource = Resource::namespaced(
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    "persistentvolumeclaim",
)
.short(&["pvc"])
.with_subresources(&[Subresource::STATUS]);
