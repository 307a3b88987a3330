use crate::{Resource, Subresource};

pub static VALIDATING_ADMISSION_POLICY: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    "validatingadmissionpolicy",
)
.in_categories(&["api-extensions"])
.with_subresources(&[Subresource::STATUS]);
