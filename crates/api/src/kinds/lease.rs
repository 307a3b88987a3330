//! Lease: who leads, or who is alive.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Resource, Rules, Value};

pub static LEASE: Resource =
    Resource::namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease").with_rules(&LeaseRules);

struct LeaseRules;

impl Rules for LeaseRules {
    fn create_on_update(&self) -> bool {
        true
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, lease: &Value, now: i64) -> Vec<Value> {
        let holder = lease["spec"].text("holderIdentity").into();
        vec![print::name(lease), holder, print::age(lease, now)]
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("Holder", "Who holds it."), AGE];
