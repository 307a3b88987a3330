//! PersistentVolumes, their claims and classes: binding, provisioning, protection.

pub mod volume_binder;
pub mod volume_protection;
