use crate::Resource;

pub static LIMIT_RANGE: Resource =
    Resource::namespaced("", "v1", "LimitRange", "limitranges", "limitrange").short(&["limits"]);
