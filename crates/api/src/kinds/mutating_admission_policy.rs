use crate::Resource;

pub static MUTATING_ADMISSION_POLICY: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingAdmissionPolicy",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicy",
)
.in_categories(&["api-extensions"]);
