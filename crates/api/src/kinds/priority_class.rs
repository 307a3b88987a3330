use crate::Resource;

pub static PRIORITY_CLASS: Resource = Resource::cluster(
    "scheduling.k8s.io",
    "v1",
    "PriorityClass",
    "priorityclasses",
    "priorityclass",
)
.short(&["pc"]);
