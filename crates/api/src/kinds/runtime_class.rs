use crate::Resource;

pub static RUNTIME_CLASS: Resource =
    Resource::cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass");
