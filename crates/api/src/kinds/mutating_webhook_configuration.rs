//! MutatingWebhookConfiguration: webhooks that may change objects.

use crate::print::{self, AGE, NAME};
use crate::{Column, Fields, Generation, Resource, Rules, Value};
use serde_json::json;

pub static MUTATING_WEBHOOK_CONFIGURATION: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    "mutatingwebhookconfiguration",
)
.in_categories(&["api-extensions"])
.with_rules(&MutatingWebhookConfigurationRules);

struct MutatingWebhookConfigurationRules;

impl Rules for MutatingWebhookConfigurationRules {
    fn default(&self, configuration: &mut Value) {
        for webhook in configuration.list_mut("webhooks") {
            default_webhook(webhook);
            webhook.fill("reinvocationPolicy", "Never");
        }
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

/// The defaults of both kinds of webhooks.
pub(super) fn default_webhook(webhook: &mut Value) {
    webhook.fill("failurePolicy", "Fail");
    webhook.fill("timeoutSeconds", 10);
    default_match(webhook);
    for rule in webhook.list_mut("rules") {
        rule.fill("scope", "*");
    }
    if let Some(service) = webhook
        .child_mut("clientConfig")
        .and_then(|config| config.child_mut("service"))
    {
        service.fill("port", 443);
    }
}

/// Which requests are meant, in webhooks and in policies.
pub(super) fn default_match(matcher: &mut Value) {
    matcher.fill("matchPolicy", "Equivalent");
    matcher.fill("namespaceSelector", json!({}));
    matcher.fill("objectSelector", json!({}));
}

pub(super) const COLUMNS: &[Column] = &[NAME, print::integer("Webhooks", "How many webhooks it has."), AGE];
