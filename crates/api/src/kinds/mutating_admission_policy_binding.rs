use crate::Resource;

pub static MUTATING_ADMISSION_POLICY_BINDING: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicyBinding",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicybinding",
)
.in_categories(&["api-extensions"]);
