//! What the container runtime can do, as it last said: pods that ask for more are told so.

use std::collections::BTreeMap;

use cri::v1;
use parking_lot::RwLock;

/// Shared by the node, which asks the runtime now and then, and the pods, which depend on the answer.
#[derive(Debug, Default)]
pub struct RuntimeFeatures(RwLock<ReportedFeatures>);

/// One answer of the runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReportedFeatures {
    /// By the name of the RuntimeClass handler. Empty for a runtime that is too old to say.
    pub handlers: BTreeMap<String, HandlerFeatures>,
    /// None for a runtime that is too old to say.
    pub supplemental_groups_policy: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerFeatures {
    pub recursive_read_only_mounts: bool,
    pub user_namespaces: bool,
}

impl RuntimeFeatures {
    pub fn put(&self, known: ReportedFeatures) {
        *self.0.write() = known;
    }

    pub fn known(&self) -> ReportedFeatures {
        self.0.read().clone()
    }

    /// Whether a mount can be read-only with everything below it.
    pub fn recursive_read_only_mounts(&self, handler: &str) -> bool {
        let known = self.0.read();
        let features = known.handlers.get(handler);
        features.is_some_and(|features| features.recursive_read_only_mounts)
    }

    /// Whether pods can have users of their own.
    pub fn user_namespaces(&self, handler: &str) -> bool {
        let known = self.0.read();
        let features = known.handlers.get(handler);
        features.is_some_and(|features| features.user_namespaces)
    }

    /// Whether only the groups that a pod names can be given to its containers.
    pub fn supplemental_groups_policy(&self) -> bool {
        self.0.read().supplemental_groups_policy == Some(true)
    }
}

impl ReportedFeatures {
    pub fn from_status(status: &v1::StatusResponse) -> ReportedFeatures {
        let handlers = status.runtime_handlers.iter().map(|handler| {
            let features = handler.features.unwrap_or_default();
            let features = HandlerFeatures {
                recursive_read_only_mounts: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            };
            (handler.name.clone(), features)
        });
        ReportedFeatures {
            handlers: handlers.collect(),
            supplemental_groups_policy: status.features.map(|features| features.supplemental_groups_policy),
        }
    }
}
