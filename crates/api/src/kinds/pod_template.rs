use crate::Resource;

pub static POD_TEMPLATE: Resource = Resource::namespaced("", "v1", "PodTemplate", "podtemplates", "podtemplate");
