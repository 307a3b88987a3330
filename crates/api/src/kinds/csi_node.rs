use crate::Resource;

pub static CSI_NODE: Resource = Resource::cluster("storage.k8s.io", "v1", "CSINode", "csinodes", "csinode");
