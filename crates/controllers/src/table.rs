//! All controllers, by name.

use crate::driver::Row;
use crate::{access, autoscaling, certificates, cleanup, nodes, policy, services, storage, workloads};

/// Every controller that [`crate::run`] starts. A new controller is one file and one row.
pub fn table() -> &'static [&'static Row] {
    &[
        &access::bootstrap_signer::ROW,
        &certificates::approver::ROW,
        &certificates::cleaner::ROW,
        &certificates::serving_approver::ROW,
        &certificates::signer::ROW,
        &services::cluster_dns::ROW,
        &access::cluster_role_aggregation::ROW,
        &workloads::cron_job::ROW,
        &workloads::daemon_set::ROW,
        &workloads::deployment::ROW,
        &policy::disruption::ROW,
        &services::endpoints::ROW,
        &services::endpoint_slice::ROW,
        &services::endpoint_slice_mirroring::ROW,
        &storage::ephemeral_volume::ROW,
        &cleanup::garbage_collector::ROW,
        &autoscaling::horizontal::ROW,
        &workloads::job::ROW,
        &storage::local_provisioner::ROW,
        &cleanup::namespace::ROW,
        &nodes::node_ipam::ROW,
        &nodes::node_lifecycle::ROW,
        &storage::attach_detach::ROW,
        &storage::volume_binder::ROW,
        &storage::volume_expand::ROW,
        &storage::volume_protection::VOLUME_ROW,
        &storage::volume_protection::CLAIM_ROW,
        &cleanup::pod_gc::ROW,
        &workloads::replica_set::ROW,
        &workloads::replica_set::REPLICATION_CONTROLLER_ROW,
        &policy::resource_quota::ROW,
        &access::root_ca::ROW,
        &services::load_balancer::ROW,
        &services::service_cidr::ROW,
        &access::service_account::ROW,
        &access::account_tokens::ROW,
        &workloads::stateful_set::ROW,
        &nodes::taint_eviction::ROW,
        &access::token_cleaner::ROW,
        &nodes::ttl::ROW,
        &cleanup::ttl_after_finished::ROW,
        &policy::admission_policy_status::ROW,
        &storage::volume_protection::CLASS_ROW,
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

    #[test]
    fn event_sources_are_those_of_controllers() {
        let names: Vec<&str> = crate::driver::EVENT_SOURCES.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        for name in names {
            assert!(table().iter().any(|row| row.name == name), "{name}");
        }
    }
}
