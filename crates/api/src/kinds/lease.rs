//! Lease: who leads, or who is alive.

use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static LEASE: Resource =
    Resource::namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease").with_rules(&LeaseRules);

struct LeaseRules;

impl Rules for LeaseRules {
    fn validate(&self, lease: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (spec, path) = (&lease["spec"], Path::new("spec"));
        if let Some(seconds) = spec["leaseDurationSeconds"].as_i64()
            && seconds <= 0
        {
            problems.invalid(&path, "leaseDurationSeconds", seconds, "must be greater than 0");
        }
        problems.not_negative(spec, &path, "leaseTransitions");
        problems.into_vec()
    }

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
