//! All controllers, by name.

use crate::{
    Row, certificates, cluster_dns, cluster_role_aggregation, cron_job, daemon_set, deployment, disruption,
    endpoint_slice, endpoint_slice_mirroring, endpoints, garbage_collector, job, namespace, node_ipam, node_lifecycle,
    pod_gc, replica_set, resource_quota, root_ca, service_account, stateful_set, taint_eviction, token_cleaner, ttl,
    ttl_after_finished, volume_binder, volume_protection,
};

/// Every controller that [`crate::run`] starts. A new controller is one file and one row.
pub fn table() -> &'static [&'static Row] {
    &[
        &certificates::approver::ROW,
        &certificates::cleaner::ROW,
        &certificates::serving_approver::ROW,
        &certificates::signer::ROW,
        &cluster_dns::ROW,
        &cluster_role_aggregation::ROW,
        &cron_job::ROW,
        &daemon_set::ROW,
        &deployment::ROW,
        &disruption::ROW,
        &endpoints::ROW,
        &endpoint_slice::ROW,
        &endpoint_slice_mirroring::ROW,
        &garbage_collector::ROW,
        &job::ROW,
        &namespace::ROW,
        &node_ipam::ROW,
        &node_lifecycle::ROW,
        &volume_binder::ROW,
        &volume_protection::VOLUME_ROW,
        &volume_protection::CLAIM_ROW,
        &pod_gc::ROW,
        &replica_set::ROW,
        &replica_set::REPLICATION_CONTROLLER_ROW,
        &resource_quota::ROW,
        &root_ca::ROW,
        &service_account::ROW,
        &stateful_set::ROW,
        &taint_eviction::ROW,
        &token_cleaner::ROW,
        &ttl::ROW,
        &ttl_after_finished::ROW,
        &volume_protection::CLASS_ROW,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_are_unique() {
        let names: Vec<&str> = table().iter().map(|row| row.name).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
    }
}
