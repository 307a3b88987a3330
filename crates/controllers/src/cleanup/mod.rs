//! Removes what nobody needs any more: dependents, contents of namespaces, finished pods and jobs.

pub mod garbage_collector;
pub mod namespace;
pub mod pod_gc;
pub mod ttl_after_finished;
