//! Clusters to test against: Karve in its variants, and upstream's own.

mod karve;
mod kubectl;
mod upstream;
pub mod workdir;
mod worker;

pub use karve::{Karve, NO_PRESSURE, Runtime, Setup, Store};
pub use kubectl::Kubectl;
pub use upstream::{Mixture, Side, Upstream};
pub use worker::Invitation;
