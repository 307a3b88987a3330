//! MutatingWebhookConfiguration: webhooks that may change objects.

use crate::expressions::{admission_environment, validate_conditions};
use crate::names::dns1123_subdomain;
use crate::print::{self, AGE, NAME};
use crate::{Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value};
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

/// The longest that a webhook may take.
const LONGEST_SECONDS: i64 = 30;

/// What is wrong with webhooks of either kind.
pub(super) fn validate_webhooks(configuration: &Value) -> Problems {
    let mut problems = Problems::default();
    let mut names = Vec::new();
    for (index, webhook) in configuration.list("webhooks").iter().enumerate() {
        let path = Path::new("webhooks").index(index);
        let name = webhook.text("name");
        let found = dns1123_subdomain(name, false);
        if found.is_empty() && name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            problems.invalid(&path, "name", name, detail);
        }
        problems.form(&path, "name", name, found);
        if names.contains(&name) {
            problems.duplicate(&path, "name", name);
        }
        names.push(name);
        validate_webhook(webhook, &path, &mut problems);
    }
    problems
}

fn validate_webhook(webhook: &Value, path: &Path, problems: &mut Problems) {
    problems.optional_one_of(webhook, path, "failurePolicy", &["Fail", "Ignore"]);
    problems.optional_one_of(webhook, path, "matchPolicy", &["Equivalent", "Exact"]);
    match webhook.text("sideEffects") {
        "" => problems.required(path, "sideEffects", "must specify one of None, NoneOnDryRun"),
        _ => problems.optional_one_of(webhook, path, "sideEffects", &["None", "NoneOnDryRun"]),
    }
    let seconds = webhook.number("timeoutSeconds");
    if !(1..=LONGEST_SECONDS).contains(&seconds) {
        let detail = format!("the timeout value must be between 1 and {LONGEST_SECONDS} seconds");
        problems.invalid(path, "timeoutSeconds", seconds, detail);
    }
    let client = &webhook["clientConfig"];
    if client.has("url") == client.has("service") {
        problems.required(path, "clientConfig", "exactly one of url or service is required");
    }
    let versions = webhook.list("admissionReviewVersions");
    if versions.is_empty() {
        problems.required(path, "admissionReviewVersions", "must specify one of v1, v1beta1");
    }
    validate_conditions(
        webhook.list("matchConditions"),
        &path.child("matchConditions"),
        &admission_environment(false),
        problems,
    );
    for (index, rule) in webhook.list("rules").iter().enumerate() {
        let path = path.child("rules").index(index);
        for field in ["apiGroups", "apiVersions", "operations", "resources"] {
            if rule.list(field).is_empty() {
                problems.required(&path, field, "");
            }
        }
    }
}

pub(super) const COLUMNS: &[Column] = &[NAME, print::integer("Webhooks", "How many webhooks it has."), AGE];
