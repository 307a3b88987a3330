//! PersistentVolumes, their claims and classes: binding, provisioning, protection.

pub mod attach_detach;
pub mod default_class;
pub mod ephemeral_volume;
pub mod local_provisioner;
pub mod volume_binder;
pub mod volume_expand;
pub mod volume_protection;
