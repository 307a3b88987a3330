use crate::Resource;

pub static CONFIG_MAP: Resource = Resource::namespaced("", "v1", "ConfigMap", "configmaps", "configmap").short(&["cm"]);
