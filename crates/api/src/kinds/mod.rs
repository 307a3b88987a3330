//! One file per kind, and the table of all of them.

pub mod api_service;
pub mod binding;
pub mod certificate_signing_request;
pub mod cluster_role;
pub mod cluster_role_binding;
pub mod component_status;
pub mod config_map;
pub mod controller_revision;
pub mod cron_job;
pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod custom_resource_definition;
pub mod daemon_set;
pub mod deployment;
pub mod device_class;
pub mod endpoint_slice;
pub mod endpoints;
pub mod event;
pub mod flow_schema;
pub mod horizontal_pod_autoscaler;
pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod job;
pub mod lease;
pub mod limit_range;
pub mod local_subject_access_review;
pub mod mutating_admission_policy;
pub mod mutating_admission_policy_binding;
pub mod mutating_webhook_configuration;
pub mod namespace;
pub mod network_policy;
pub mod node;
pub mod node_metrics;
pub mod persistent_volume;
pub mod persistent_volume_claim;
pub mod pod;
pub mod pod_disruption_budget;
pub mod pod_metrics;
pub mod pod_template;
pub mod priority_class;
pub mod priority_level_configuration;
pub mod replica_set;
pub mod replication_controller;
pub mod resource_claim;
pub mod resource_claim_template;
pub mod resource_quota;
pub mod resource_slice;
pub mod role;
pub mod role_binding;
pub mod runtime_class;
pub mod secret;
pub mod self_subject_access_review;
pub mod self_subject_review;
pub mod self_subject_rules_review;
pub mod service;
pub mod service_account;
pub mod service_cidr;
pub mod stateful_set;
pub mod storage_class;
pub mod subject_access_review;
pub mod token_review;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
pub mod volume_attachment;
pub mod volume_attributes_class;

use crate::Resource;

/// Every served built-in resource, by group and plural name.
static ALL: &[&Resource] = &[
    &binding::BINDING,
    &component_status::COMPONENT_STATUS,
    &config_map::CONFIG_MAP,
    &endpoints::ENDPOINTS,
    &event::EVENT,
    &limit_range::LIMIT_RANGE,
    &namespace::NAMESPACE,
    &node::NODE,
    &persistent_volume_claim::PERSISTENT_VOLUME_CLAIM,
    &persistent_volume::PERSISTENT_VOLUME,
    &pod::POD,
    &pod_template::POD_TEMPLATE,
    &replication_controller::REPLICATION_CONTROLLER,
    &resource_quota::RESOURCE_QUOTA,
    &secret::SECRET,
    &service_account::SERVICE_ACCOUNT,
    &service::SERVICE,
    &mutating_admission_policy::MUTATING_ADMISSION_POLICY,
    &mutating_admission_policy_binding::MUTATING_ADMISSION_POLICY_BINDING,
    &mutating_webhook_configuration::MUTATING_WEBHOOK_CONFIGURATION,
    &validating_admission_policy::VALIDATING_ADMISSION_POLICY,
    &validating_admission_policy_binding::VALIDATING_ADMISSION_POLICY_BINDING,
    &validating_webhook_configuration::VALIDATING_WEBHOOK_CONFIGURATION,
    &custom_resource_definition::CUSTOM_RESOURCE_DEFINITION,
    &api_service::API_SERVICE,
    &controller_revision::CONTROLLER_REVISION,
    &daemon_set::DAEMON_SET,
    &deployment::DEPLOYMENT,
    &replica_set::REPLICA_SET,
    &stateful_set::STATEFUL_SET,
    &self_subject_review::SELF_SUBJECT_REVIEW,
    &token_review::TOKEN_REVIEW,
    &local_subject_access_review::LOCAL_SUBJECT_ACCESS_REVIEW,
    &self_subject_access_review::SELF_SUBJECT_ACCESS_REVIEW,
    &self_subject_rules_review::SELF_SUBJECT_RULES_REVIEW,
    &subject_access_review::SUBJECT_ACCESS_REVIEW,
    &horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER_V1,
    &horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER,
    &cron_job::CRON_JOB,
    &job::JOB,
    &certificate_signing_request::CERTIFICATE_SIGNING_REQUEST,
    &lease::LEASE,
    &endpoint_slice::ENDPOINT_SLICE,
    &event::EVENTS_EVENT,
    &flow_schema::FLOW_SCHEMA,
    &priority_level_configuration::PRIORITY_LEVEL_CONFIGURATION,
    &node_metrics::NODE_METRICS,
    &pod_metrics::POD_METRICS,
    &ingress_class::INGRESS_CLASS,
    &ingress::INGRESS,
    &ip_address::IP_ADDRESS,
    &network_policy::NETWORK_POLICY,
    &service_cidr::SERVICE_CIDR,
    &runtime_class::RUNTIME_CLASS,
    &pod_disruption_budget::POD_DISRUPTION_BUDGET,
    &cluster_role_binding::CLUSTER_ROLE_BINDING,
    &cluster_role::CLUSTER_ROLE,
    &role_binding::ROLE_BINDING,
    &role::ROLE,
    &device_class::DEVICE_CLASS,
    &resource_claim::RESOURCE_CLAIM,
    &resource_claim_template::RESOURCE_CLAIM_TEMPLATE,
    &resource_slice::RESOURCE_SLICE,
    &priority_class::PRIORITY_CLASS,
    &csi_driver::CSI_DRIVER,
    &csi_node::CSI_NODE,
    &csi_storage_capacity::CSI_STORAGE_CAPACITY,
    &storage_class::STORAGE_CLASS,
    &volume_attachment::VOLUME_ATTACHMENT,
    &volume_attributes_class::VOLUME_ATTRIBUTES_CLASS,
];

/// The served groups and versions in the order in which discovery lists them, preferred versions first.
pub const GROUP_VERSIONS: &[(&str, &str)] = &[
    ("", "v1"),
    ("apiregistration.k8s.io", "v1"),
    ("apps", "v1"),
    ("events.k8s.io", "v1"),
    ("authentication.k8s.io", "v1"),
    ("authorization.k8s.io", "v1"),
    ("autoscaling", "v2"),
    ("autoscaling", "v1"),
    ("batch", "v1"),
    ("certificates.k8s.io", "v1"),
    ("networking.k8s.io", "v1"),
    ("policy", "v1"),
    ("rbac.authorization.k8s.io", "v1"),
    ("storage.k8s.io", "v1"),
    ("admissionregistration.k8s.io", "v1"),
    ("apiextensions.k8s.io", "v1"),
    ("scheduling.k8s.io", "v1"),
    ("coordination.k8s.io", "v1"),
    ("node.k8s.io", "v1"),
    ("discovery.k8s.io", "v1"),
    ("resource.k8s.io", "v1"),
    ("flowcontrol.apiserver.k8s.io", "v1"),
    ("metrics.k8s.io", "v1beta1"),
];

/// Every served built-in resource, by group and plural name.
pub fn all() -> &'static [&'static Resource] {
    ALL
}

/// The resource that is served under this group, version and plural name.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    let same_version = |resource: &&&'static Resource| resource.version == version;
    named(group, plural).iter().find(same_version).copied()
}

/// The resource of this group, version and kind.
pub fn find_kind(group: &str, version: &str, kind: &str) -> Option<&'static Resource> {
    all()
        .iter()
        .copied()
        .find(|resource| resource.group == group && resource.version == version && resource.kind == kind)
}

/// The versions of one resource.
fn named(group: &str, plural: &str) -> &'static [&'static Resource] {
    let start = ALL.partition_point(|resource| (resource.group, resource.plural) < (group, plural));
    let end = ALL[start..].partition_point(|resource| (resource.group, resource.plural) == (group, plural));
    &ALL[start..start + end]
}

#[cfg(test)]
mod core_tests;
#[cfg(test)]
mod long_tests;
#[cfg(test)]
mod refusal_tests;
#[cfg(test)]
mod tests;
