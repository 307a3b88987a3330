use crate::Resource;

pub static CONTROLLER_REVISION: Resource = Resource::namespaced(
    "apps",
    "v1",
    "ControllerRevision",
    "controllerrevisions",
    "controllerrevision",
);
