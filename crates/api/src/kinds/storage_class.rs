use crate::Resource;

pub static STORAGE_CLASS: Resource =
    Resource::cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses", "storageclass").short(&["sc"]);
