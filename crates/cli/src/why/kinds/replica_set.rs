//! ReplicaSets.

use api::Value;
use api::kinds::pod::POD;
use api::kinds::replica_set::REPLICA_SET;
use api::kinds::resource_quota::RESOURCE_QUOTA;

use super::workload;
use crate::why::State;
use crate::why::facts::Facts;
use crate::why::look::Look;
use crate::why::table::Kind;

pub static ROW: Kind = Kind {
    resource: &REPLICA_SET,
    reads: &[&POD, &RESOURCE_QUOTA],
    state,
    checks: &[
        |facts, set| {
            let is_short = set.int("status.replicas") < workload::desired_replicas(set);
            workload::refused(facts, &REPLICA_SET, set, is_short)
        },
        |facts, set| workload::is_not_observed(facts, set, "replicaset"),
        |facts, set| workload::held_by_finalizers(facts, set, 30),
    ],
};

fn state(_: &Facts, set: &Value) -> State {
    workload::replicas(
        workload::desired_replicas(set),
        set.int("status.readyReplicas"),
        "ready",
    )
}
