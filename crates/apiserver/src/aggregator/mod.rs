//! What is done for groups and versions that other servers serve: `forward` passes requests on, `controller` keeps the
//! table of those servers and the conditions of the APIServices that name them.

mod controller;
mod forward;

pub use controller::follow;
pub use forward::forward;
