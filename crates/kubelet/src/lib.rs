//! The kubelet: makes the containers on this node be what the pods bound to it say.
//!
//! Start with [`plan`], the pure heart: what a pod should be and what is known of it in, what to do next out. Around
//! it, `worker` runs one task per pod that carries plans out, `status` computes what the API is told, `container` and
//! `volumes` make configurations and files, `probe` asks containers how they are, `node` speaks for the machine, `pressure`
//! knows when an eviction threshold is met, `eviction` acts on it and `server` answers on port 10250.
//!
//! This crate drives any [`cri::Runtime`] and must not know which one it is. It meets the rest of the system only
//! through the API, and depends neither on the API server nor on the store.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod admission;
mod auth;
mod beneath;
mod certificate_request;
mod cgroup;
mod claims;
mod client_certificate;
mod container;
mod csi;
mod eviction;
mod features;
mod figures;
#[doc(hidden)]
pub mod fuzzing;
mod host_ports;
mod images;
mod inspect;
mod inventory;
mod limits;
mod local_volumes;
mod moment;
mod node;
mod objects;
mod observed;
mod options;
mod owners;
mod paths;
mod plan;
mod pleg;
mod pod;
mod pods;
mod pressure;
mod probe;
mod pull_records;
mod resize;
mod rotation;
mod run;
mod server;
mod service_account_tokens;
mod serving_certificate;
mod shared;
mod spdy;
mod static_pods;
mod status;
mod sweep;
#[cfg(test)]
mod testing;
mod text;
mod tls;
mod usage;
mod user_namespaces;
mod volumes;
mod worker;

pub use admission::{BadSysctl, SysctlRules};
pub use auth::{Access, ApiAuth, AuthError, Authenticator, Authorizer, User, bearer};
pub use certificate_request::RequestError;
pub use client_certificate::ClientCertificate;
pub use node::{BadReserved, Reserved};
pub use options::{ImageGcOptions, KubeletOptions, LogOptions, ManifestUrl, ServerOptions, ServingCertificate};
pub use pressure::{BadThreshold, Measurements, Places, Shortage, Thresholds};
pub use run::{Kubelet, KubeletError, run};
pub use server::{Server, StreamServer, user_of};

/// A quantity such as `10Mi`, in bytes; none if it is not one.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let quantity = pod::quantity::Milli::parse(text)?;
    u64::try_from(quantity.value()).ok()
}

/// Removes the cgroups that a kubelet with this `cgroup_root` made. To be called when none of its pods is left.
pub fn remove_cgroups(cgroup_root: &str) -> std::io::Result<()> {
    cgroup::Cgroups::detect(cgroup_root, None).remove_all()
}
