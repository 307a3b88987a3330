use crate::{Resource, Subresource};

pub static POD_DISRUPTION_BUDGET: Resource = Resource::namespaced(
    "policy",
    "v1",
    "PodDisruptionBudget",
    "poddisruptionbudgets",
    "poddisruptionbudget",
)
.short(&["pdb"])
.with_subresources(&[Subresource::STATUS]);
