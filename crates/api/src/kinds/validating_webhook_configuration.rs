//! ValidatingWebhookConfiguration: webhooks that may refuse objects.

use super::mutating_webhook_configuration::{COLUMNS, default_webhook, validate_webhooks};
use crate::print;
use crate::{Column, FieldError, Fields, Generation, Resource, Rules, Value};

pub static VALIDATING_WEBHOOK_CONFIGURATION: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    "validatingwebhookconfiguration",
)
.in_categories(&["api-extensions"])
.requiring_revision()
.with_unqualified_finalizers()
.with_rules(&ValidatingWebhookConfigurationRules);

struct ValidatingWebhookConfigurationRules;

impl Rules for ValidatingWebhookConfigurationRules {
    fn default(&self, configuration: &mut Value) {
        for webhook in configuration.list_mut("webhooks") {
            default_webhook(webhook);
        }
    }

    fn validate(&self, configuration: &Value) -> Vec<FieldError> {
        validate_webhooks(configuration).into_vec()
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn columns(&self) -> &'static [Column] {
        COLUMNS
    }

    fn cells(&self, configuration: &Value, now: i64) -> Vec<Value> {
        let webhooks = configuration.list("webhooks").len().into();
        vec![print::name(configuration), webhooks, print::age(configuration, now)]
    }
}
