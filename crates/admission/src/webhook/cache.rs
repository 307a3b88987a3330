//! The webhooks of all configurations, parsed once.

use std::sync::Arc;

use api::{Fields, Resource};
use parking_lot::Mutex;

use super::hook::Hook;
use crate::Lookup;

/// The webhooks of one kind of configuration in the order in which they are called: by the configuration's name, then
/// as they stand in it.
pub struct Cache {
    resource: &'static Resource,
    parsed: Mutex<(u64, Arc<Vec<Hook>>)>,
}

impl Cache {
    pub fn new(resource: &'static Resource) -> Cache {
        Cache {
            resource,
            parsed: Mutex::default(),
        }
    }

    /// Never older than the server's own state: what was parsed is used again only while nothing has changed.
    pub fn current(&self, lookup: &dyn Lookup) -> Arc<Vec<Hook>> {
        let fingerprint = lookup.fingerprint(self.resource);
        let mut parsed = self.parsed.lock();
        if parsed.0 != fingerprint {
            let mut configurations = lookup.list(self.resource, "");
            configurations.sort_by(|one, other| one["metadata"].text("name").cmp(other["metadata"].text("name")));
            let hooks = configurations.iter().flat_map(Hook::all_of).collect();
            *parsed = (fingerprint, Arc::new(hooks));
        }
        parsed.1.clone()
    }
}
