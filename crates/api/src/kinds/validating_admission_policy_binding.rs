use crate::Resource;

pub static VALIDATING_ADMISSION_POLICY_BINDING: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicybinding",
)
.in_categories(&["api-extensions"]);
