use crate::{Resource, Subresource};

pub static HORIZONTAL_POD_AUTOSCALER: Resource = Resource::namespaced(
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
)
.short(&["hpa"])
.in_categories(&["all"])
.with_subresources(&[Subresource::STATUS]);

pub static HORIZONTAL_POD_AUTOSCALER_V1: Resource = Resource::namespaced(
    "autoscaling",
    "v1",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
)
.short(&["hpa"])
.in_categories(&["all"])
.stored_as("autoscaling", "v2")
.with_subresources(&[Subresource::STATUS]);
