use crate::{Resource, Subresource, Verb};

pub static CERTIFICATE_SIGNING_REQUEST: Resource = Resource::cluster(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    "certificatesigningrequest",
)
.short(&["csr"])
.with_subresources(&[
    Subresource::new("approval", &[Verb::Get, Verb::Patch, Verb::Update]),
    Subresource::STATUS,
]);
