use crate::Resource;

pub static VALIDATING_WEBHOOK_CONFIGURATION: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    "validatingwebhookconfiguration",
)
.in_categories(&["api-extensions"]);
