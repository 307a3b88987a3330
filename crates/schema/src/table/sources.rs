//! What the table is made of: its files, and the few facts that they leave out.

/// One file of facts: how other files name it, and the API group and version it describes.
pub(super) struct Source {
    pub name: &'static str,
    pub group: &'static str,
    pub version: &'static str,
    pub text: &'static str,
}

macro_rules! source {
    ($name:literal, $group:literal, $version:literal, $file:literal) => {
        Source {
            name: $name,
            group: $group,
            version: $version,
            text: include_str!(concat!("../../facts/", $file)),
        }
    };
}

#[rustfmt::skip]
pub(super) const SOURCES: &[Source] = &[
    source!("admission/v1", "admission.k8s.io", "v1", "admission_v1.txt"),
    source!("admissionregistration/v1", "admissionregistration.k8s.io", "v1", "admissionregistration_v1.txt"),
    source!("apidiscovery/v2", "apidiscovery.k8s.io", "v2", "apidiscovery_v2.txt"),
    source!("apidiscovery/v2beta1", "apidiscovery.k8s.io", "v2beta1", "apidiscovery_v2beta1.txt"),
    source!("apiextensions/v1", "apiextensions.k8s.io", "v1", "apiextensions_v1.txt"),
    source!("apiregistration/v1", "apiregistration.k8s.io", "v1", "apiregistration_v1.txt"),
    source!("apps/v1", "apps", "v1", "apps_v1.txt"),
    source!("authentication/v1", "authentication.k8s.io", "v1", "authentication_v1.txt"),
    source!("authorization/v1", "authorization.k8s.io", "v1", "authorization_v1.txt"),
    source!("autoscaling/v1", "autoscaling", "v1", "autoscaling_v1.txt"),
    source!("autoscaling/v2", "autoscaling", "v2", "autoscaling_v2.txt"),
    source!("batch/v1", "batch", "v1", "batch_v1.txt"),
    source!("certificates/v1", "certificates.k8s.io", "v1", "certificates_v1.txt"),
    source!("coordination/v1", "coordination.k8s.io", "v1", "coordination_v1.txt"),
    source!("core/v1", "", "v1", "core_v1.txt"),
    source!("discovery/v1", "discovery.k8s.io", "v1", "discovery_v1.txt"),
    source!("events/v1", "events.k8s.io", "v1", "events_v1.txt"),
    source!("flowcontrol/v1", "flowcontrol.apiserver.k8s.io", "v1", "flowcontrol_v1.txt"),
    source!("meta/v1", "meta.k8s.io", "v1", "meta_v1.txt"),
    source!("metrics/v1beta1", "metrics.k8s.io", "v1beta1", "metrics_v1beta1.txt"),
    source!("networking/v1", "networking.k8s.io", "v1", "networking_v1.txt"),
    source!("node/v1", "node.k8s.io", "v1", "node_v1.txt"),
    source!("policy/v1", "policy", "v1", "policy_v1.txt"),
    source!("rbac/v1", "rbac.authorization.k8s.io", "v1", "rbac_v1.txt"),
    source!("resource/v1", "resource.k8s.io", "v1", "resource_v1.txt"),
    source!("runtime", "runtime", "", "runtime.txt"),
    source!("scheduling/v1", "scheduling.k8s.io", "v1", "scheduling_v1.txt"),
    source!("storage/v1", "storage.k8s.io", "v1", "storage_v1.txt"),
];

/// Kinds of meta/v1 that upstream registers in every group and version.
pub(super) const EVERYWHERE: &[&str] = &[
    "WatchEvent",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// Kinds of meta/v1 that travel as `v1`.
pub(super) const UNVERSIONED: &[&str] = &[
    "Status",
    "APIVersions",
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "List",
];

/// Structs that have no fields and so no block in the table.
pub(super) const EMPTY_STRUCTS: &[(&str, &str)] = &[("apiextensions/v1", "CustomResourceSubresourceStatus")];

/// Defaults that the table names by a constant.
pub(super) const NAMED_DEFAULTS: &[(&str, &str)] = &[
    ("AzureDataDiskCachingReadWrite", "ReadWrite"),
    ("AzureSharedBlobDisk", "Shared"),
];
