use crate::Resource;

pub static LEASE: Resource = Resource::namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease");
