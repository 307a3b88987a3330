use crate::Resource;

pub static SECRET: Resource = Resource::namespaced("", "v1", "Secret", "secrets", "secret");
