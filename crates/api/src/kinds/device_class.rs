use crate::Resource;

pub static DEVICE_CLASS: Resource =
    Resource::cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "deviceclass");
