use crate::Resource;

pub static CSI_STORAGE_CAPACITY: Resource = Resource::namespaced(
    "storage.k8s.io",
    "v1",
    "CSIStorageCapacity",
    "csistoragecapacities",
    "csistoragecapacity",
);
