use crate::Resource;

pub static MUTATING_WEBHOOK_CONFIGURATION: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    "mutatingwebhookconfiguration",
)
.in_categories(&["api-extensions"]);
