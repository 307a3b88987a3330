use crate::Resource;

pub static CSI_DRIVER: Resource = Resource::cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "csidriver");
