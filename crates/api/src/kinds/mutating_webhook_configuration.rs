//! MutatingWebhookConfiguration: webhooks that may change objects.

use crate::admission_match::{default_match, default_rules, validate_rule};
use crate::expressions::{admission_environment, validate_conditions};
use crate::names::dns1123_subdomain;
use crate::print::{self, AGE, NAME};
use crate::webhook_client;
use crate::{
    Column, FieldError, Fields, Generation, Path, Problems, Resource, Rules, Value, repeats, validate_label_selector,
};

pub static MUTATING_WEBHOOK_CONFIGURATION: Resource = Resource::cluster(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    "mutatingwebhookconfiguration",
)
.in_categories(&["api-extensions"])
.requiring_revision()
.with_unqualified_finalizers()
.with_rules(&MutatingWebhookConfigurationRules);

struct MutatingWebhookConfigurationRules;

impl Rules for MutatingWebhookConfigurationRules {
    fn default(&self, configuration: &mut Value) {
        for webhook in configuration.list_mut("webhooks") {
            default_webhook(webhook);
            webhook.fill_absent("reinvocationPolicy", "Never");
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
    webhook.fill_absent("failurePolicy", "Fail");
    webhook.fill_absent("timeoutSeconds", 10);
    default_match(webhook);
    default_rules(webhook, "rules");
    if let Some(service) = webhook
        .child_mut("clientConfig")
        .and_then(|config| config.child_mut("service"))
    {
        service.fill_absent("port", 443);
    }
}

/// The longest that a webhook may take.
const LONGEST_SECONDS: i64 = 30;

/// What is wrong with webhooks of either kind.
pub(super) fn validate_webhooks(configuration: &Value) -> Problems {
    let mut problems = Problems::default();
    let webhooks = configuration.list("webhooks");
    let repeated = repeats(webhooks.iter().map(|webhook| webhook.text("name")));
    for (index, webhook) in webhooks.iter().enumerate() {
        let path = Path::new("webhooks").index(index);
        let name = webhook.text("name");
        if problems.needs(webhook, &path, "name") {
            let found = dns1123_subdomain(name, false);
            if found.is_empty() && name.split('.').count() < 3 {
                let detail = "should be a domain with at least three segments separated by dots";
                problems.invalid(&path, "name", name, detail);
            }
            problems.form(&path, "name", name, found);
        }
        if repeated[index] {
            problems.duplicate(&path, "name", name);
        }
        validate_webhook(webhook, &path, &mut problems);
    }
    problems
}

fn validate_webhook(webhook: &Value, path: &Path, problems: &mut Problems) {
    problems.optional_one_of(webhook, path, "failurePolicy", &["Fail", "Ignore"]);
    problems.optional_one_of(webhook, path, "matchPolicy", &["Equivalent", "Exact"]);
    if !webhook.has("sideEffects") {
        problems.required(path, "sideEffects", "must specify one of None, NoneOnDryRun");
    }
    problems.optional_one_of(webhook, path, "sideEffects", &["None", "NoneOnDryRun"]);
    problems.optional_one_of(webhook, path, "reinvocationPolicy", &["IfNeeded", "Never"]);
    for field in ["namespaceSelector", "objectSelector"] {
        problems.extend(validate_label_selector(&webhook[field], &path.child(field)));
    }
    let seconds = webhook.number("timeoutSeconds");
    if !(1..=LONGEST_SECONDS).contains(&seconds) {
        let detail = format!("the timeout value must be between 1 and {LONGEST_SECONDS} seconds");
        problems.invalid(path, "timeoutSeconds", seconds, detail);
    }
    validate_client(&webhook["clientConfig"], &path.child("clientConfig"), problems);
    let missing = "must specify one of v1, v1beta1";
    webhook_client::validate_review_versions(webhook, path, "admissionReviewVersions", missing, problems);
    validate_conditions(
        webhook.list("matchConditions"),
        &path.child("matchConditions"),
        &admission_environment(false),
        problems,
    );
    for (index, rule) in webhook.list("rules").iter().enumerate() {
        validate_rule(rule, &path.child("rules").index(index), problems);
    }
}

fn validate_client(client: &Value, path: &Path, problems: &mut Problems) {
    match (client["url"].as_str(), client.has("service")) {
        (None, false) | (Some(_), true) => {
            problems.required(path, "", "exactly one of url or service is required");
        }
        (Some(url), false) => webhook_client::validate_url(url, &path.child("url"), problems),
        (None, true) => webhook_client::validate_service(&client["service"], &path.child("service"), problems),
    }
}

pub(super) const COLUMNS: &[Column] = &[NAME, print::integer("Webhooks", "How many webhooks it has."), AGE];

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_understands_a_review_that_servers_send() {
        let mut webhook = json!({
            "name": "a.example.com", "clientConfig": {"url": "https://h"}, "sideEffects": "",
            "admissionReviewVersions": ["v2", "v2"], "reinvocationPolicy": "",
            "namespaceSelector": {"matchLabels": {"a": "b c"}},
        });
        default_webhook(&mut webhook);
        let found = validate_webhooks(&json!({"webhooks": [webhook]})).into_vec();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        expect![[r#"
            webhooks[0].sideEffects: Unsupported value: "": supported values: "None", "NoneOnDryRun"
            webhooks[0].reinvocationPolicy: Unsupported value: "": supported values: "IfNeeded", "Never"
            webhooks[0].namespaceSelector.matchLabels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
            webhooks[0].admissionReviewVersions[1]: Invalid value: "v2": duplicate version
            webhooks[0].admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1"#]]
        .assert_eq(&found.join("\n"));
    }
}
