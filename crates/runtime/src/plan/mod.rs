//! From what the kubelet asks to what a supervisor does: pure, and tested as such.
//!
//! [`sandbox`] and [`container`] are the two entry points. What is asked for and cannot be given is an error here, never
//! silently left out.

mod confinement;
mod container;
mod limits;
mod sandbox;
mod sysctls;
mod user_namespace;
mod users;

pub use confinement::{HostAppArmor, apparmor_profile, seccomp_file};
pub use container::{ContainerInput, container, exec, stop_signal};
pub use limits::limits;
pub use sandbox::{RUNTIME_HANDLERS, files, sandbox};
pub use users::{UserError, image_user};

/// Why a request cannot be carried out as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("{0}")]
    Invalid(String),
    /// Something Kubernetes allows that this runtime cannot do.
    #[error("the embedded runtime does not support {0}")]
    Unsupported(String),
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Capability(#[from] crate::capability::UnknownCapability),
}

impl From<PlanError> for cri::Error {
    fn from(error: PlanError) -> Self {
        let code = match &error {
            PlanError::Unsupported(_) => cri::Code::Unsupported,
            _ => cri::Code::InvalidArgument,
        };
        cri::Error::new(code, error.to_string())
    }
}

fn unsupported(what: impl Into<String>) -> PlanError {
    PlanError::Unsupported(what.into())
}
