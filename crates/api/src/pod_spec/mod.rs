//! What every kind with pods in it shares: a pod itself, and each template of one.

mod defaults;
mod disabled;
mod image;
pub mod resources;
mod update;
mod validate;

pub(crate) use defaults::default_legacy_volume;
pub use defaults::{default_container, default_pod_spec, default_template};
pub(crate) use disabled::{drop_disabled, drop_disabled_in, drop_old_annotations};
pub use image::pull_policy;
pub use update::validate_pod_update;
pub use validate::{Context, validate_pod_spec, validate_template};
pub(crate) use validate::{
    validate_access_modes, validate_any_resource, validate_claim_spec, validate_host_path, validate_node_selector,
    validate_optional_name, validate_required_texts, validate_requirements, validate_resource,
    validate_resource_amount, validate_size, validate_tolerations,
};
