use crate::Resource;

pub static ENDPOINTS: Resource = Resource::namespaced("", "v1", "Endpoints", "endpoints", "endpoints")
    .short(&["ep"])
    .stored_at("services/endpoints");
