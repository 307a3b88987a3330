//! Lease: who leads, or who is alive.

use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Path, Problems, Resource, Rules, Value};

pub static LEASE: Resource = Resource::namespaced("coordination.k8s.io", "v1", "Lease", "leases", "lease")
    .requiring_revision()
    .with_unqualified_finalizers()
    .without_update_traces()
    .with_rules(&LeaseRules);

struct LeaseRules;

impl Rules for LeaseRules {
    /// How a leader is chosen among candidates is upstream's only when it is told to.
    fn prepare_create(&self, lease: &mut Value) {
        drop_election(lease, &Value::Null);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_election(new, old);
    }

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

fn drop_election(lease: &mut Value, old: &Value) {
    let Some(spec) = lease.child_mut("spec") else { return };
    for field in ["strategy", "preferredHolder"]
        .iter()
        .filter(|field| !old["spec"].has(field))
    {
        spec.remove(field);
    }
}

const COLUMNS: &[Column] = &[NAME, print::text("Holder", "Who holds it."), AGE];
